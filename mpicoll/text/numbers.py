"""Numbers as flags take them and tables print them."""

from __future__ import annotations

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


def whole(text: str, most: int) -> int | None:
    """Return the number that decimal digits write, None where they write none up to `most`.

    >>> whole("12", 100), whole("101", 100), whole("-1", 100), whole("²", 100)
    (12, None, None, None)
    """
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    # Python refuses to convert thousands of digits.
    found = int(digits) if len(digits) <= len(str(most)) else None
    return found if found is not None and found <= most else None
