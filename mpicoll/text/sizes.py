"""Sizes in bytes, as flags take them and tables print them: K, M and G are powers of 1024."""

from __future__ import annotations

import re

from mpicoll.errors import ArgumentError
from mpicoll.text.numbers import number

_UNITS = {"G": 1 << 30, "M": 1 << 20, "K": 1 << 10, "": 1}


def parse_size(text: str) -> int:
    """Return a number of bytes.

    >>> parse_size("1M"), parse_size("4"), parse_size("2KiB")
    (1048576, 4, 2048)

    Raises:
        ArgumentError: the text is no size.
    """
    matched = re.fullmatch(r"(\d+)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not matched:
        raise ArgumentError(f"{text!r} is not a size: give bytes, as 4, 64K, 1M or 2G")
    return int(matched[1]) * _UNITS[matched[2].upper()]


def size_text(count: int) -> str:
    """Return a number of bytes exactly, in the largest unit that divides it.

    >>> size_text(64), size_text(4096), size_text(1500000)
    ('64', '4K', '1500000')
    """
    for unit, factor in _UNITS.items():
        if count >= factor and count % factor == 0:
            return f"{count // factor}{unit}"
    return str(count)


def bytes_text(count: int) -> str:
    """Return the same with a unit for single bytes too, for a sentence.

    >>> bytes_text(8), bytes_text(65536)
    ('8 B', '64K')
    """
    text = size_text(count)
    return f"{text} B" if text.isdigit() else text


def rounded_size_text(count: float) -> str:
    """Return a number of bytes in the largest unit, to three digits where it is not whole.

    >>> rounded_size_text(4096), rounded_size_text(1234567), rounded_size_text(777.2)
    ('4K', '1.18M', '777')
    """
    unit, factor = next(each for each in _UNITS.items() if count >= each[1] or not each[0])
    value = count / factor
    return f"{round(value) if value == round(value) or not unit else number(value)}{unit}"


def size_steps(least: int, most: int, factor: float | None, add: int | None) -> tuple[int, ...]:
    """Return the sizes from `least` to `most`, multiplied or increased at each step.

    >>> size_steps(4, 64, 4, None), size_steps(100, 300, None, 100)
    ((4, 16, 64), (100, 200, 300))

    Raises:
        ArgumentError: these are no sizes, or the steps do not grow.
    """
    if least > most:
        raise ArgumentError(f"the smallest size {least} is above the largest, {most}")
    if (add is not None and add < 1) or (factor is not None and factor <= 1):
        raise ArgumentError("the step between sizes must make them grow")
    if least == 0 and add is None:
        raise ArgumentError("0 bytes cannot be multiplied: give a step with -i")
    sizes, size = [], least
    while size <= most:
        sizes.append(size)
        size = size + add if add is not None else max(size + 1, int(size * (factor or 2)))
    return tuple(sizes)
