"""The compiled executor: the extension module, where it was built, and its objects for calls."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from mpicoll.execution import methods
from mpicoll.flight.rows import PYTHON
from mpicoll.interfaces import Array, SharedMemory
from mpicoll.memory.allocator import LINE
from mpicoll.memory.mailbox import CAPACITY

if TYPE_CHECKING:
    from mpicoll.execution._compiled import Program

SWITCH = "MPICOLL_COMPILED"
"""``0`` in this variable leaves the compiled executor out."""


def _load() -> tuple[Any, str]:
    """Return the extension module, or None and why there is none."""
    if os.environ.get(SWITCH, "").lower() in ("0", "off", "no", "false"):
        return None, f"{SWITCH} turns it off"
    try:
        from mpicoll.execution import _compiled
    except ImportError as error:
        return None, f"it was not built when mpicoll was installed ({error})"
    return _compiled, ""


_compiled, MISSING = _load()
WRITERS = _compiled or PYTHON
"""The types that write the rows of the flight recorder."""
METHODS = _compiled or methods.PYTHON
"""What makes methods that stand before others."""
OBJECTS = _compiled
"""What writes and reads Python's objects as messages; None without the compiled executor."""


class PythonCounted:
    """A call that is counted, so that another thread sees which is under way for how long.

    Attributes:
        oldest: the number of that which began first and has not ended, 0 where there is none.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.numbers, self.under_way = function, count(1), set[int]()

    def __call__(self, *args: Any) -> Any:
        number = next(self.numbers)
        self.under_way.add(number)
        try:
            return self.function(*args)
        finally:
            self.under_way.remove(number)

    def comes(self, test: Callable[[], bool], yields: int) -> bool:
        """Return whether a test that is counted holds before or between so many yields of the core.

        It is made twice each time: in one a library moves a message, and in the next it goes on
        with what waited for that, which would come a turn of all ranks on this core later.
        """
        for _ in range(yields):
            if self(test) or self(test):
                return True
            os.sched_yield()
        return False

    def through(self, start: Callable[[], Any], test: Callable[[], bool], yields: int) -> bool:
        """Make a call that is counted, and return whether a test then holds, as `comes` does."""
        self(start)
        return self.comes(test, yields)

    @property
    def oldest(self) -> int:
        return min(tuple(self.under_way), default=0)  # a copy, as other threads go on


Counted: Any = _compiled.Counted if _compiled else PythonCounted
_SPINS, _OVERSUBSCRIBED_SPINS = 1000, 8


def executor() -> str:
    """Return the executor of programs over host memory in this process.

    ``compiled (avx512)`` names the instructions; after ``closures:`` stands why Python runs them.
    """
    return f"closures: {MISSING}" if MISSING else f"compiled ({_compiled.target()})"


def calls(
    layout: tuple[Array, object], memory: SharedMemory, slow: Any, give_up: Any, **known: object
) -> Any:
    """Return an object that runs the program of a call without Python: `_compiled.Calls`.

    Args:
        layout: how arrays are read, as `Arrays.layout` has it.
        slow: serves the calls that are not known.
        give_up: takes a program that has failed in the middle of a run.
        known: `in_place`, `datatype` and `in_method`, as `_compiled.Calls` takes them.
    """
    mailbox = memory.mailbox
    assert mailbox is not None
    segments = [memory.address(rank, 0) for rank in memory.intra_node]
    return _compiled.Calls(
        *layout, [address + mailbox.start for address, _ in segments],
        (LINE + CAPACITY) // 8, memory.rank, mailbox.number, spins=spins(memory), slow=slow,
        wait=mailbox.wait, broken=give_up, keep=segments, **known,
    )  # fmt: skip


def functions(layout: tuple[Array, object] | None, slow: Any) -> Any:
    """Return a table that finds the functions that serve calls without Python: `_compiled.Calls`.

    None where there is no compiled executor, or no known layout of arrays.
    """
    if MISSING or layout is None:
        return None
    none = [0], 1, 0, array("q", [0, 0])
    return _compiled.Calls(*layout, *none, spins=0, slow=slow, wait=print, broken=print, keep=None)


def stated(arrays: Any, numbers: array[int], plan: int, log: Any, place: int, **known: Any) -> Any:
    """Return what serves calls of a method between nodes: `_compiled.Stated`."""
    return _compiled.Stated(arrays, numbers, plan, log, place, **known)


def queue(calls: Any, lent: tuple[Array, object] | None = None) -> Any:
    """Return a queue that runs issued calls, `_compiled.Queue`; None without `calls`.

    Args:
        lent: how arrays that are lent to NumPy are read, as `Arrays.layout` has it.
    """
    if calls is not None and lent is not None:
        calls.lend(*lent)
    return None if calls is None else _compiled.Queue(calls)


def nothing(memory: SharedMemory) -> Program:
    """Return a program that does nothing, for calls in which ranks only compare what they call."""
    program: Program = _compiled.Program(
        array("q"), [0, 0], None, None, check=0, spins=spins(memory), light=True, heavy=False,
        wait=print, look=print, keep=None,
    )  # fmt: skip
    return program


def spins(memory: SharedMemory) -> int:
    """Return how often a program looks at a word before it gives its core away."""
    return _OVERSUBSCRIBED_SPINS if memory.wait_policy.oversubscribed else _SPINS
