"""Single values out of records that anything may have happened to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpicoll.errors import ArgumentError

Record = Mapping[str, Any]
MOST = 1 << 60
"""No number in a record is larger."""


def number(record: Record, *path: str, least: float = 0, most: float = MOST) -> float:
    """Return a number, found by its name, or by those that lead to it.

    Raises:
        ArgumentError: there is none, or it is below `least` or above `most`.

    >>> number({"time_us": {"median": 3}}, "time_us", "median")
    3.0
    """
    found: Any = record
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if not (is_number and least <= found <= most):
        end = f"to {most:g}" if most < MOST else "on"
        raise _damaged(".".join(path), found, f"a number from {least:g} {end}")
    return float(found)


def count(record: Record, name: str, least: int = 0, most: int = MOST) -> int:
    """Return a whole number.

    Raises:
        ArgumentError: there is none, or it is below `least` or above `most`.
    """
    found = number(record, name, least=least, most=most)
    if not found.is_integer():
        raise _damaged(name, found, "a whole number")
    return int(found)


def word(record: Record, name: str) -> str:
    """Return a text.

    Raises:
        ArgumentError: there is none.
    """
    if not isinstance(found := record.get(name), str):
        raise _damaged(name, found, "a text")
    return found


def _damaged(name: str, found: object, wanted: str) -> ArgumentError:
    return ArgumentError(f"a damaged record: {name} is {found!r}, not {wanted}")
