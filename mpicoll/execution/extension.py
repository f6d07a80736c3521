"""The extension module, and its objects for calls."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from mpicoll.backend import Array, SharedMemory
from mpicoll.memory.allocator import LINE
from mpicoll.memory.mailbox import CAPACITY

if TYPE_CHECKING:
    from mpicoll.execution._compiled import Program


def _load() -> Any:
    try:
        from mpicoll.execution import _compiled
    except ImportError as error:
        raise ImportError(
            f"mpicoll's C extension cannot be loaded ({error}): install a C compiler and the "
            "headers of this Python, then run pip install mpicoll, or in a source tree "
            "python -c 'from setuptools import setup; setup()' build_ext --inplace"
        ) from error
    return _compiled


_compiled = _load()
_SPINS, _OVERSUBSCRIBED_SPINS = 1000, 8


def executor() -> str:
    """Return the executor and its instructions, such as ``compiled (avx512)``."""
    return f"compiled ({_compiled.target()})"


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
    table = _compiled.Calls(
        *layout, [address + mailbox.start for address, _ in segments],
        (LINE + CAPACITY) // 8, memory.rank, mailbox.number, spins=spins(memory), slow=slow,
        wait=mailbox.wait, broken=give_up, keep=segments, **known,
    )  # fmt: skip
    mailbox.complete = table.complete
    return table


def functions(layout: tuple[Array, object] | None, slow: Any) -> Any:
    """Return a table that finds the functions that serve calls without Python: `_compiled.Calls`.

    None where there is no known layout of arrays.
    """
    if layout is None:
        return None
    none = [0], 1, 0, array("q", [0, 0, 0])
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
