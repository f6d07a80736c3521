"""Sizes in bytes, as flags take them and tables print them: K, M and G are powers of 1024."""

from __future__ import annotations

import re
from collections.abc import Sequence
from reprlib import repr as short

from mpicoll.errors import ArgumentError
from mpicoll.text.numbers import number, whole

MOST_BYTES = 1 << 60
MOST_SIZES = 4096
"""Sizes that one run may have."""
LEAST_FACTOR, MOST_FACTOR = 1.01, 1 << 30
_UNITS = {"G": 1 << 30, "M": 1 << 20, "K": 1 << 10, "": 1}


def parse_size(text: str) -> int:
    """Return a number of bytes.

    >>> parse_size("1M"), parse_size("4"), parse_size("2KiB")
    (1048576, 4, 2048)

    Raises:
        ArgumentError: the text is no size, or above `MOST_BYTES`.
    """
    matched = re.fullmatch(r"([0-9]+)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not matched:
        raise ArgumentError(f"{short(text)} is not a size: give bytes, as 4, 64K, 1M or 2G")
    count = whole(matched[1], MOST_BYTES // _UNITS[matched[2].upper()])
    if count is None:
        raise ArgumentError(
            f"{short(text)} is too large: at most 2^60 bytes, {size_text(MOST_BYTES)}"
        )
    return count * _UNITS[matched[2].upper()]


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes between commas, each once.

    >>> parse_sizes("4,1K, 1M,4")
    (4, 1024, 1048576)

    Raises:
        ArgumentError: one is no size, or there are none, or more than `MOST_SIZES`.
    """
    parts = list(filter(None, map(str.strip, text.split(","))))
    if not parts:
        raise ArgumentError(f"{text!r} names nothing: leave it out for its default")
    if len(parts) > MOST_SIZES:
        raise ArgumentError(f"{len(parts)} sizes are too many: at most {MOST_SIZES}")
    return tuple(dict.fromkeys(map(parse_size, parts)))


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
    unit, factor = next(entry for entry in _UNITS.items() if count >= entry[1] or not entry[0])
    value = count / factor
    return f"{round(value) if value == round(value) or not unit else number(value)}{unit}"


def size_steps(
    smallest: int, largest: int, factor: float | None, add: int | None
) -> tuple[int, ...]:
    """Return the sizes from `smallest` to `largest`, multiplied or increased at each step.

    >>> size_steps(4, 64, 4, None), size_steps(100, 300, None, 100)
    ((4, 16, 64), (100, 200, 300))

    Raises:
        ArgumentError: these are no sizes, the steps do not grow, or there are more sizes than
            `MOST_SIZES`.
    """
    if smallest > largest:
        raise ArgumentError(f"the smallest size {smallest} is above the largest, {largest}")
    sizes = (
        _added(smallest, largest, add)
        if add is not None
        else _multiplied(smallest, largest, factor or 2)
    )
    if len(sizes) > MOST_SIZES:
        raise ArgumentError(
            f"from {smallest} to {largest} bytes these steps make {len(sizes)} sizes: take larger "
            f"steps, for {MOST_SIZES} sizes at most"
        )
    return tuple(sizes)


def _added(smallest: int, largest: int, add: int) -> Sequence[int]:
    if add < 1:
        raise ArgumentError(f"the step between sizes must make them grow: add 1 or more, not {add}")
    return range(smallest, largest + 1, add)


def _multiplied(smallest: int, largest: int, factor: float) -> Sequence[int]:
    if not LEAST_FACTOR <= factor <= MOST_FACTOR:
        raise ArgumentError(
            "the step between sizes must make them grow: "
            f"multiply by {LEAST_FACTOR} to {MOST_FACTOR}, not {factor}"
        )
    if smallest == 0:
        raise ArgumentError("0 bytes cannot be multiplied: give a step with -i")
    sizes = [smallest]
    while (size := max(sizes[-1] + 1, int(sizes[-1] * factor))) <= largest:
        sizes.append(size)
    return sizes
