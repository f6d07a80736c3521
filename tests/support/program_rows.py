"""Rows of the compiled executor, and programs of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import chain
from types import SimpleNamespace
from typing import Any

from mpicoll.engine import extension


def place(register: int, offset: int = 0) -> list[int]:
    """Return an operand: an address relative to that in a register."""
    return [register, offset, 0, 0, 1, 0]


def row(code: int, *places: list[int], count: int = 0, extra: int = 0) -> list[int]:
    """Return a row; operands that are not given lie at the first register."""
    operands = [*places, *[place(0)] * (3 - len(places))]
    return [code, count, extra, *chain.from_iterable(operands)]


def ignore(*_: object) -> None: ...


def program(
    rows: list[list[int]], *callbacks: Callable[..., object],
    registers: Any = (1000, 2000, 3000), op: str | None = None, dtype: str | None = None,
    wait: Any = None, fail: Any = ignore, **changes: Any,
) -> Any:  # fmt: skip
    """Return a program of some rows, which looks at nothing else while it waits."""
    waits = SimpleNamespace(wait=wait, test=ignore, fail=fail)
    options = {"check": len(rows), "light": True, "heavy": False, "waits": waits, "keep": None,
               **changes}  # fmt: skip
    table = array("q", chain.from_iterable(rows))
    return extension._compiled.Program(
        table, registers, op, dtype, callbacks=callbacks, **options
    )  # fmt: skip


def address(x: Any) -> int:
    return int(x.__array_interface__["data"][0])
