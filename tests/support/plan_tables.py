"""The plan table of a group's only rank, and the calls that it serves."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from program_rows import address, place, program, row

from mpicoll.engine import extension
from mpicoll.engine.compiled import COPY
from mpicoll.memory.numpy_arrays import NumpyArrays


class SoleRank:
    """A group of one rank.

    Attributes:
        numbers: the number of the current call first.
        python_calls: the calls that the table has left to Python.
    """

    def __init__(self, arrays: Any = None) -> None:
        self.lines, self.numbers = np.zeros(64, np.int64), array("q", [0, 0, 0])
        self.python_calls: list[tuple[Any, ...]] = []
        self.table = extension._compiled.PlanTable(
            *(arrays or NumpyArrays()).layout(), self.numbers, self.call_python, None,
            lines=[address(self.lines)], stride=8,
        )  # fmt: skip

    def call_python(self, *arguments: Any) -> str:
        self.python_calls.append(arguments)
        return "slow"

    def add(self, x: Any, out: Any = None, *, nbytes: int = 0, **options: Any) -> Any:
        """Add a program for a call, which copies its input; return the program."""
        copying = program([row(COPY, place(1), count=nbytes)] if nbytes else [])
        make_output = None if out is not None else lambda: np.empty_like(x)
        self.table.add(call_of(x, out, **options), copying, 7, copying, 0, True, make_output)
        return copying

    def serves(self, x: Any, out: Any = None, **options: Any) -> bool:
        """Whether the table runs a call by itself."""
        return not isinstance(self.table(*call_of(x, out, **options)), str)


def call_of(
    x: Any, out: Any = None, *, name: str = "allreduce", op: Any = "sum", root: Any = 0,
    counts: Any = None, algorithm: str = "auto",
) -> tuple[Any, ...]:  # fmt: skip
    """Return the seven arguments of a call."""
    return name, x, out, op, root, counts, algorithm
