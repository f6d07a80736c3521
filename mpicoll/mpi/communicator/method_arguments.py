"""From the buffers of a call to arrays and arguments of ours, the same on all ranks.

What the ranks compare is what MPI wants to be the same on all: the type signature.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np
from mpi4py import MPI

from mpicoll.mpi.communicator.buffers import Flat, Refused, Unreadable, WrongLength, numbers
from mpicoll.mpi.communicator.reading import (
    OPS,
    Reading,
    check,
    check_names,
    is_in_place,
    of_type,
)

_WORD: dict[int, np.dtype[Any]] = {1: np.dtype("uint8"), 8: np.dtype("int64")}


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


Reader = Callable[[Reading, Any, Any, Any, int, Any], Call]
"""Takes both buffers, operator, root and counts as a program passes them; raises `Unreadable`."""


def _barrier(at: Reading, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call:
    return Call("barrier", None, None)


def _bcast(at: Reading, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call:
    is_root = at.rank == root
    data = words(at.block(x, written=not is_root), 1)
    if not data.flags.writeable:
        data = _writable(data)
    return Call("broadcast", data if is_root else None, data, root=root)


def _gather(at: Reading, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call:
    if at.rank != root:
        return Call("gather", words(at.block(x, written=False), 1), None, root=root)
    rows = words(at.block(out, at.size, written=True), at.size)
    row = rows[at.rank].copy() if at.is_in_place(x) else _like_row(at.block(x, written=False), rows)
    return Call("gather", row, rows, root=root)


def _scatter(at: Reading, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call:
    if at.rank != root:
        return Call("scatter", None, words(at.block(out, written=True), 1), root=root)
    rows = words(at.block(x, at.size, written=False), at.size)
    if is_in_place(out):
        return Call("scatter", rows, np.empty_like(rows[0]), root=root)
    target = at.block(out, written=True)  # the row may be shorter
    row = target.view("u1")[: rows[0].nbytes]
    return Call("scatter", rows, _like_row(row, rows), root=root)


def _allgather(at: Reading, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call:
    return _gathered(at, x, at.block(out, at.size, written=True))


def _allgatherv(at: Reading, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call:
    flat, lengths = at.vector(out, written=True)
    if min(lengths) == max(lengths):  # an allgather, whose ranks need not acknowledge
        return _gathered(at, x, flat)
    nbytes = [length * flat.itemsize for length in lengths]
    whole = flat.view(word(nbytes))
    rows = tuple(length // whole.itemsize for length in nbytes)
    start = sum(rows[: at.rank])
    row = whole[start : start + rows[at.rank]]
    if at.is_in_place(x):
        return Call("allgather", row.copy(), whole, counts=rows)
    return Call("allgather", _like_row(at.block(x, written=False), row[None]), whole, counts=rows)


def _alltoall(at: Reading, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call:
    rows = words(at.block(out, at.size, written=True), at.size)
    if at.is_in_place(x):
        return Call("alltoall", rows.copy(), rows)
    return Call("alltoall", words(at.block(x, at.size, written=False), at.size), rows)


def _reduce(at: Reading, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call:
    if at.rank != root:
        return folding("reduce", at.block(x, written=False, folded=True), None, op, root=root)
    result = at.block(out, written=True, folded=True)
    if at.is_in_place(x):
        return folding("reduce", result.copy(), result, op, root=root)
    return folding("reduce", of_type(at, x, out), result, op, root=root)


def _allreduce(at: Reading, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call:
    return _prefix(at, "allreduce", x, out, op)


def _scan(at: Reading, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call:
    return _prefix(at, "scan", x, out, op)


def _exscan(at: Reading, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call:
    return _prefix(at, "exscan", x, out, op)


def _reduce_scatter_block(at: Reading, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call:
    if is_in_place(x):
        whole = at.block(out, at.size, written=True, folded=True)
        at.pack()
        data, result = whole.copy(), whole[: whole.size // at.size]
    else:
        data, result = of_type(at, x, out, at.size), at.block(out, written=True, folded=True)
        if data.size != result.size * at.size:
            raise Refused(f"{data.size} elements, and {result.size} of {at.size} ranks")
    return folding("reduce_scatter", data.reshape(at.size, -1), result, op)


def _reduce_scatter(at: Reading, x: Any, out: Any, op: Any, root: int, counts: Any) -> Call:
    target, counts = out
    rows = numbers(counts, at.size)
    result = at.block(target, written=True, folded=True)
    if at.is_in_place(x):
        data = result.copy()
        result = result[: rows[at.rank]]
    else:
        data = of_type(at, x, target)
    if data.size != sum(rows) or result.size != rows[at.rank]:
        raise Refused(f"{data.size} elements, and {result.size} of rows of {rows}")
    if min(rows) == max(rows):
        return folding("reduce_scatter", data.reshape(at.size, -1), result, op)
    return folding("reduce_scatter", data, result, op, counts=tuple(rows))


READERS: dict[str, Reader] = {
    reader.__name__[1:]: reader
    for reader in (_barrier, _bcast, _gather, _scatter, _allgather, _allgatherv, _alltoall, _reduce,
                 _allreduce, _reduce_scatter_block, _reduce_scatter, _scan, _exscan)
}  # fmt: skip
"""What reads the arguments of a method of mpi4py, by its name in small letters."""


def read(
    at: Reading, name: str, x: Any, out: Any, op: Any, root: Any, counts: Any
) -> Call:  # fmt: skip
    """Return what the arguments of a method of mpi4py describe, whose counts are known.

    Raises:
        Refused: mpi4py's own method raises before it calls MPI, or the root is no rank.
        Exception: only MPI can read the arguments.
    """
    check_names(at, op, root)
    try:
        return READERS[name](at, x, out, op, root, counts)
    except Refused:
        raise
    except Exception:
        check(at, name, x, out, root)
        raise


def _gathered(at: Reading, x: Any, whole: Flat) -> Call:
    """Return an allgather of rows of one length."""
    rows = words(whole, at.size)
    row = rows[at.rank] if at.is_in_place(x) else _like_row(at.block(x, written=False), rows)
    return Call("allgather", row, rows)


def _prefix(at: Reading, name: str, x: Any, out: Any, op: Any) -> Call:
    result = at.block(out, written=True, folded=True)
    return folding(name, result if at.is_in_place(x) else of_type(at, x, out), result, op)


def folding(
    name: str, data: Flat, result: Flat | None, op: Any, *, root: int = 0,
    counts: tuple[int, ...] | None = None,
) -> Call:  # fmt: skip
    """Return a call that folds. A user's operator has no name.

    Raises:
        Unreadable: MPI does not define its operator on the dtype.
        Refused: input and output have different lengths.
    """
    if result is not None and name != "reduce_scatter" and data.size != result.size:
        raise Refused(f"{data.size} elements of input, {result.size} of output")
    text, kinds = OPS.get(op.handle, ("", "" if op.is_predefined else data.dtype.kind))
    if data.dtype.kind not in kinds:
        raise Unreadable(f"the operator is not defined on {data.dtype}")
    return Call(name, data, result, text, root, counts)


def words(flat: Flat, blocks: int) -> Flat:
    """Return an array as words, the same on all ranks as their blocks have the same bytes.

    Of more than one block it has the shape ``(blocks, words)``.
    """
    whole: Flat = flat.view(word((flat.nbytes // blocks,)))
    return whole if blocks == 1 else whole.reshape(blocks, whole.size // blocks)


def word(lengths: Iterable[int]) -> np.dtype[Any]:
    """Return the longest dtype of which all blocks, of so many bytes, are whole numbers."""
    return _WORD[1 if any(length % 8 for length in lengths) else 8]


def _like_row(flat: Flat, rows: Flat) -> Flat:
    """Return an array as words; it must be as long as a row."""
    if flat.nbytes != rows[0].nbytes:
        raise WrongLength(f"{flat.nbytes} bytes, where a row has {rows[0].nbytes}")
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
    source, target = _array_of(x), _array_of(out)
    shift, inner = _distance(call.x, source), False
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
    start, first = (int(array.__array_interface__["data"][0]) for array in (whole, part))
    return first - start if start <= first <= start + whole.nbytes else None
