"""Numbers as flags take them and tables print them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import floor, log10


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with `digits` significant ones, never in powers of ten.

    >>> number(0.01234), number(3.14159), number(123456.7), number(None)
    ('0.0123', '3.14', '123457', '-')
    >>> number(0.6932), number(0.0000001)
    ('0.693', '0.000000')
    """
    if value is None:
        return "-"
    exponent = floor(log10(abs(value))) if value else 0
    return f"{value:.{min(6, max(0, digits - 1 - exponent))}f}"


def count_text(number: int, thing: str) -> str:
    """Return a count with its noun.

    >>> count_text(1, "round"), count_text(6, "round"), count_text(2, "launch")
    ('1 round', '6 rounds', '2 launches')
    """
    ending = "" if number == 1 else "es" if thing.endswith("ch") else "s"
    return f"{number} {thing}{ending}"


def ordinal(number: int) -> str:
    """Return the place of something in an order.

    >>> ordinal(1), ordinal(2), ordinal(11), ordinal(23)
    ('1st', '2nd', '11th', '23rd')
    """
    is_teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if is_teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def span(seconds: float) -> str:
    """Return a time in words.

    >>> span(42.0), span(170.0)
    ('42 s', '3 min')
    """
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def duration(nanoseconds: float) -> str:
    """Return a time in the unit that suits it; a negative one, by clocks that differ, as none.

    >>> duration(4_100_000), duration(52_000), duration(2.5e9), duration(-3)
    ('4.1 ms', '52 us', '2.5 s', '0.0 us')
    """
    for unit, length in (("s", 1e9), ("ms", 1e6)):
        if nanoseconds >= length:
            return f"{number(nanoseconds / length, 2)} {unit}"
    return f"{number(max(0.0, nanoseconds / 1e3), 2)} us"


def interval(low: float, high: float, joint: str = " to ") -> str:
    """Return the bounds of numbers; one number where both bounds look alike.

    >>> interval(1.5, 2.19), interval(2.188, 2.191), interval(1.5, 2.19, " and ")
    ('1.50 to 2.19', '2.19', '1.50 and 2.19')
    """
    return joint.join(dict.fromkeys((number(low), number(high))))


def ranges(numbers: Sequence[int]) -> str:
    """Return whole numbers in their order, runs of neighbours as the first and the last.

    >>> ranges([0, 1, 2, 5, 4]), ranges([3]), ranges([])
    ('0-2,5,4', '3', '')
    """
    runs = []
    for _, neighbours in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in neighbours]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(runs)


def whole(text: str, limit: int) -> int | None:
    """Return the number that decimal digits write, None where they write none up to `limit`.

    >>> whole("12", 100), whole("101", 100), whole("-1", 100), whole("²", 100)
    (12, None, None, None)
    """
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    # Python refuses to convert thousands of digits.
    value = int(digits) if len(digits) <= len(str(limit)) else None
    return value if value is not None and value <= limit else None
