"""From the buffers of a call to arrays and arguments of ours, the same on all ranks.

What the ranks compare is what MPI wants to be the same on all: the type signature. So what is only
moved is bytes, whatever the datatypes of one rank, and what is folded has a dtype.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np
from mpi4py import MPI

from mpicoll.mpi.communicator.buffers import Flat, block, numbers, vector

OPS = {
    MPI.SUM.handle: ("sum", "iufc"), MPI.PROD.handle: ("prod", "iufc"),
    MPI.MIN.handle: ("min", "iuf"), MPI.MAX.handle: ("max", "iuf"),
    MPI.BAND.handle: ("band", "iu"), MPI.BOR.handle: ("bor", "iu"), MPI.BXOR.handle: ("bxor", "iu"),
    MPI.LAND.handle: ("land", "biu"), MPI.LOR.handle: ("lor", "biu"),
    MPI.LXOR.handle: ("bxor", "b"),
}  # fmt: skip
"""Our name of MPI's operators, by handle, and the kinds of dtype on which MPI defines them."""


class Call(NamedTuple):
    """The arguments of a method of `mpicoll.Collectives`; ranks without an array have None."""

    name: str
    x: Flat | None
    out: Flat | None
    op: str = "sum"
    root: int = 0
    counts: tuple[int, ...] | None = None


class Arrays(Protocol):
    """Anything with the arrays of a call."""

    @property
    def x(self) -> Flat | None: ...
    @property
    def out(self) -> Flat | None: ...


class Place(NamedTuple):
    """A rank among how many."""

    rank: int
    size: int


Reader = Callable[[Place, Any, Any, Any, int, Any], Call | None]
"""Takes both buffers, operator, root and counts as a program gives them."""


def _barrier(at: Place, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call | None:
    return Call("barrier", None, None)


def _bcast(at: Place, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call | None:
    is_root = at.rank == root
    data = block(x, written=not is_root)
    if data is None:
        return None
    own = words(data, 1)
    if own is not None and not own.flags.writeable:
        own = _writable(own)
    return own if own is None else Call("broadcast", own if is_root else None, own, root=root)


def _gather(at: Place, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call | None:
    if at.rank != root:
        own = block(x, written=False)
        return None if own is None else Call("gather", words(own, 1), None, root=root)
    whole = block(out, at.size, written=True)
    if whole is None:
        return None
    rows = words(whole, at.size)
    own = rows[at.rank].copy() if is_in_place(x) else _like_row(block(x, written=False), rows)
    return Call("gather", own, rows, root=root)


def _scatter(at: Place, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call | None:
    if at.rank != root:
        own = block(out, written=True)
        return None if own is None else Call("scatter", None, words(own, 1), root=root)
    whole = block(x, at.size, written=False)
    if whole is None:
        return None
    rows = words(whole, at.size)
    in_place = is_in_place(out)
    own = np.empty_like(rows[0]) if in_place else _like_row(block(out, written=True), rows)
    return Call("scatter", rows, own, root=root)


def _allgather(at: Place, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call | None:
    whole = block(out, at.size, written=True)
    return None if whole is None else _gathered(at, x, whole)


def _allgatherv(at: Place, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call | None:
    found = vector(out, at.size, written=True)
    if found is None:
        return None
    flat, given = found
    if min(given) == max(given):  # an allgather, whose ranks need not acknowledge
        return _gathered(at, x, flat)
    nbytes = [count * flat.itemsize for count in given]
    whole = flat.view(word(nbytes))
    rows = tuple(each // whole.itemsize for each in nbytes)
    start = sum(rows[: at.rank])
    own = whole[start : start + rows[at.rank]]
    if is_in_place(x):
        return Call("allgather", own.copy(), whole, counts=rows)
    return Call("allgather", _like_row(block(x, written=False), own[None]), whole, counts=rows)


def _alltoall(at: Place, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call | None:
    whole = block(out, at.size, written=True)
    if whole is None:
        return None
    rows = words(whole, at.size)
    if is_in_place(x):
        return Call("alltoall", rows.copy(), rows)
    given = block(x, at.size, written=False)
    return None if given is None else Call("alltoall", words(given, at.size), rows)


def _reduce(at: Place, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call | None:
    is_root = at.rank == root
    result = block(out, written=True) if is_root else None
    if is_root and is_in_place(x):
        own = None if result is None else result.copy()
    else:
        own = block(x, written=False)
    return folding("reduce", own, result, op, needs=is_root, root=root)


def _allreduce(at: Place, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call | None:
    return _prefix("allreduce", x, out, op)


def _scan(at: Place, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call | None:
    return _prefix("scan", x, out, op)


def _exscan(at: Place, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call | None:
    return _prefix("exscan", x, out, op)


def _reduce_scatter_block(
    at: Place, x: Any, out: Any, op: Any, root: int, counts: Any
) -> Call | None:
    if is_in_place(x):
        whole = block(out, at.size, written=True)
        if whole is None:
            return None
        own, result = whole.copy(), whole[: whole.size // at.size]
    else:
        given, target = block(x, at.size, written=False), block(out, written=True)
        if given is None or target is None or given.size != target.size * at.size:
            return None
        own, result = given, target
    return folding("reduce_scatter", own.reshape(at.size, -1), result, op)


def _reduce_scatter(at: Place, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call | None:
    target, counts = out
    rows = numbers(counts, at.size)
    result = block(target, written=True)
    if rows is None or result is None:
        return None
    if is_in_place(x):
        own: Flat | None = result.copy()
        result = result[: rows[at.rank]]
    else:
        own = block(x, written=False)
    if own is None or own.size != sum(rows) or result.size != rows[at.rank]:
        return None
    return folding("reduce_scatter", own, result, op, counts=tuple(rows))


READERS: dict[str, Reader] = {
    each.__name__[1:]: each
    for each in (_barrier, _bcast, _gather, _scatter, _allgather, _allgatherv, _alltoall, _reduce,
                 _allreduce, _reduce_scatter_block, _reduce_scatter, _scan, _exscan)
}  # fmt: skip
"""What reads the arguments of a method of mpi4py, by its name in small letters."""

_WORD: dict[int, np.dtype[Any]] = {1: np.dtype("uint8"), 8: np.dtype("int64")}


def is_in_place(given: Any) -> bool:
    """Whether a rank's own block lies in its other buffer."""
    return given is None or given is MPI.IN_PLACE


def _gathered(at: Place, x: Any, whole: Flat) -> Call:
    """Return an allgather of rows of one length."""
    rows = words(whole, at.size)
    own = rows[at.rank] if is_in_place(x) else _like_row(block(x, written=False), rows)
    return Call("allgather", own, rows)


def _prefix(name: str, x: Any, out: Any, op: Any) -> Call | None:
    result = block(out, written=True)
    own = result if is_in_place(x) else block(x, written=False)
    return folding(name, own, result, op)


def folding(
    name: str, own: Flat | None, result: Flat | None, op: Any, *, needs: bool = True,
    root: int = 0, counts: tuple[int, ...] | None = None,
) -> Call | None:  # fmt: skip
    """Return a call that folds, where MPI defines its operator on the dtype.

    A user's operator has no name.
    """
    if own is None or (needs and result is None):
        return None
    text, kinds = OPS.get(op.handle, ("", "" if op.is_predefined else own.dtype.kind))
    if own.dtype.kind not in kinds:
        return None
    return Call(name, own, result, text, root, counts)


def words(flat: Flat, blocks: int) -> Flat:
    """Return an array as words, the same on all ranks as their blocks have the same bytes.

    Of more than one block it has the shape ``(blocks, words)``.
    """
    whole: Flat = flat.view(word((flat.nbytes // blocks,)))
    return whole if blocks == 1 else whole.reshape(blocks, whole.size // blocks)


def word(lengths: Iterable[int]) -> np.dtype[Any]:
    """Return the longest dtype of which all blocks, of so many bytes, are whole numbers."""
    return _WORD[1 if any(each % 8 for each in lengths) else 8]


def _like_row(flat: Flat | None, rows: Flat) -> Flat | None:
    """Return an array as words, None where it is not as long as a row."""
    if flat is None or flat.nbytes != rows[0].nbytes:
        return None
    return flat.view(rows.dtype)


def _writable(flat: Flat) -> Flat:
    """Return the same memory, which is not written: a program wants its input and output alike."""
    memory = (ctypes.c_char * flat.nbytes).from_address(flat.__array_interface__["data"][0])
    alike: Flat = np.frombuffer(memoryview(memory), flat.dtype)
    return alike


def lies_in(call: Arrays, x: Any, out: Any) -> tuple[bool, int, int] | None:
    """Return where a call's arrays lie in those that were given, None where they lie elsewhere.

    Whether the input lies in the array that is given as output, and the bytes from the beginning of
    an array to that of the input and of the output.
    """
    given, target = _array_of(x), _array_of(out)
    shift, inner = _distance(call.x, given), False
    if shift is None and x is MPI.IN_PLACE:
        shift, inner = _distance(call.x, target), True
    out_shift = _distance(call.out, target)
    return None if shift is None or out_shift is None else (inner, shift, out_shift)


def _array_of(spec: Any) -> Any:
    return spec[0] if type(spec) in (list, tuple) and spec else spec


def _distance(part: Flat | None, whole: Any) -> int | None:
    """Return the bytes from where an array begins to a part of it, None for a part of another."""
    if part is None or not part.size:
        return 0
    if type(whole) is not np.ndarray:
        return None
    start, first = (int(each.__array_interface__["data"][0]) for each in (whole, part))
    return first - start if start <= first <= start + whole.nbytes else None
