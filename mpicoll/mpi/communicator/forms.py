"""Read the forms of buffers: what mpi4py refuses, and flat arrays of all others."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.mpi.communicator.buffers import Refused, Unreadable, numbers
from mpicoll.mpi.communicator.reading import (
    Call,
    Reading,
    folding,
    is_in_place,
    like_row,
    of_type,
    words,
    writable,
)

_SENDS = {"gather", "gatherv", "reduce"}
"""Methods of which ranks other than the root read no output."""
_RECEIVES = {"scatter", "scatterv"}
"""Methods of which ranks other than the root read no input."""
_BLOCKS = {
    "gather": (0, 1), "scatter": (1, 0), "allgather": (0, 1), "alltoall": (1, 1),
    "reduce_scatter_block": (1, 0),
}  # fmt: skip
"""Methods whose input or output is a row of blocks."""
_VECTORS = {"gatherv": (0, 1), "scatterv": (1, 0), "allgatherv": (0, 1), "alltoallv": (1, 1)}
"""Methods whose input or output has a count for each block."""
_OWN_COUNT = "reduce_scatter_own"
"""A reduce_scatter of which each rank knows its own count alone."""
_FOLDS = {
    "reduce", "allreduce", "scan", "exscan", "reduce_scatter", "reduce_scatter_block", _OWN_COUNT
}  # fmt: skip


def read(at: Reading, name: str, x: Any, out: Any, op: Any, root: int) -> Call:
    """Return what the arguments of a method of mpi4py describe, whose blocks have equal lengths.

    Those of a reduce_scatter may differ. The arguments, and what is raised, are those of `flat`.
    """
    name, x, out = flat(at, name, x, out, op, root, None)
    in_place = x is MPI.IN_PLACE
    if in_place:
        at.pack()
    if name in _FOLDS:
        return _read_fold(at, name, None if in_place else x, out, op, root)
    if name in _VECTORS:
        if name != "allgatherv" or len({*out[1]}) > 1:
            raise Unreadable("the blocks have lengths of their own")
        name, out = "allgather", out[0]
    if name == "barrier":
        return Call(name, None, None)
    is_root = at.rank == root
    if name == "bcast":
        data = words(x, 1)
        data = data if data.flags.writeable else writable(data)
        return Call("broadcast", data if is_root else None, data, root=root)
    if name == "alltoall":
        rows = words(out, at.size)
        return Call(name, rows.copy() if in_place else words(x, at.size), rows)
    if name == "scatter":
        if not is_root:
            return Call(name, None, words(out, 1), root=root)
        rows = words(x, at.size)
        if out is MPI.IN_PLACE:
            return Call(name, rows, np.empty_like(rows[0]), root=root)
        return Call(
            name, rows, like_row(out[: rows[0].nbytes], rows), root=root
        )  # it may be longer
    if name == "gather" and not is_root:
        return Call(name, words(x, 1), None, root=root)
    rows = words(out, at.size)
    row = rows[at.rank] if in_place else like_row(x, rows)
    if name == "allgather":
        return Call(name, row, rows)
    return Call(name, row.copy() if in_place else row, rows, root=root)


def _read_fold(at: Reading, name: str, x: Any, out: Any, op: Any, root: int) -> Call:
    """Return what a method that folds describes; `x` is None where it does so in place."""
    counts = None
    if name == "reduce_scatter":
        out, counts = out
    if name in ("reduce_scatter", "reduce_scatter_block"):
        if x is None:
            stop = out.size // at.size if counts is None else counts[at.rank]
            x, out = out.copy(), out[:stop]
            _check_sizes(at, name, x.size, out.size, counts)
        if counts is None or len({*counts}) == 1:
            x, counts = x.reshape(at.size, -1), None
        name = "reduce_scatter"
    elif x is None:
        x = out.copy() if name == "reduce" else out
    return folding(name, x, out, op, root=root, counts=counts and tuple(counts))


def flat(
    at: Reading, name: str, x: Any, out: Any, op: Any, root: int,
    exchange_counts: Callable[[int], list[int]] | None,
) -> tuple[str, Any, Any]:  # fmt: skip
    """Return the method, and its buffers as arrays without gaps; with counts if it has some.

    What is moved is bytes, and what is folded has a dtype.

    Args:
        exchange_counts: takes this rank's count, and returns those of all ranks; None where the
            ranks do not meet.

    Raises:
        Refused: mpi4py's own method raises before it calls MPI, or the root is no rank.
        Exception: only MPI can read the arguments.
    """
    _check_names(at, op, root)
    counts = None
    if name == "reduce_scatter":
        out, counts = out
        counts = numbers(counts, at.size)
    reads_x, reads_out = _sides(at, name, x, out, root)
    arrays: list[Any] = [MPI.IN_PLACE, None]
    error: Exception | None = None
    for index, (spec, is_read) in enumerate(((x, reads_x), (out, reads_out))):
        try:
            if is_read:
                arrays[index] = _array(at, name, spec, index, x, out, root)
        except Refused:
            raise
        except Exception as unread:  # mpi4py may refuse the other buffer
            error = error or unread
    if error is not None:
        raise error
    if not reads_x and name in _RECEIVES and at.rank != root:
        arrays[0] = None
    if name in _RECEIVES and not reads_out:
        arrays[1] = MPI.IN_PLACE
    if name not in _FOLDS:
        return name, arrays[0], arrays[1]
    data, result = arrays
    if name == _OWN_COUNT and exchange_counts is not None:
        name, counts = "reduce_scatter", exchange_counts(result.size)
        if not reads_x:
            result = arrays[1]
    if reads_x and reads_out:
        _check_sizes(at, name, data.size, result.size, counts)
    return name, data, result if counts is None else [result, counts]


def _check_names(at: Reading, op: Any, root: Any) -> None:
    """Raise `Refused` where a root is no rank, or an operator none of MPI's."""
    try:
        is_rank = 0 <= operator.index(root) < at.size
    except TypeError:
        is_rank = False
    if not is_rank:
        raise Refused(f"the root is {root!r} of {at.size} ranks")
    if not (op is None or isinstance(op, MPI.Op)):
        raise Refused(f"the operator is {op!r}")


def _sides(at: Reading, name: str, x: Any, out: Any, root: int) -> tuple[bool, bool]:
    """Return whether this rank reads its input, and its output."""
    is_root = at.rank == root
    if name == "barrier":
        return False, False
    if name == "bcast":
        return True, False
    if name in _RECEIVES:
        return is_root, not (is_root and is_in_place(out))
    if name in _SENDS:
        return not (is_root and is_in_place(x)), is_root
    return not is_in_place(x), True


def _array(
    at: Reading, name: str, spec: Any, index: int, x: Any, out: Any, root: int
) -> Any:  # fmt: skip
    """Return one buffer as an array, or as a list of an array and the bytes of its blocks."""
    is_written = index == 1 or (name == "bcast" and at.rank != root)
    if _VECTORS.get(name, (0, 0))[index]:
        array, counts = at.vector(spec, written=is_written)
        return [array.view("u1"), [count * array.itemsize for count in counts]]
    blocks = at.size * _BLOCKS.get(name, (0, 0))[index]
    if name == "reduce_scatter_block" and index == 1 and is_in_place(x):
        blocks = at.size
    if name not in _FOLDS:
        return at.block(spec, blocks, written=is_written).view("u1")
    if index == 0 and not (name == "reduce" and at.rank != root):
        return of_type(at, x, out, blocks)
    return at.block(spec, blocks, written=is_written, folded=True)


def _check_sizes(at: Reading, name: str, given: int, wanted: int, counts: Any) -> None:
    """Raise `Refused` where the input and the output of a fold have different lengths."""
    if counts is not None:
        is_fit = given == sum(counts) and wanted == counts[at.rank]
    elif name == "reduce_scatter_block":
        is_fit = given == wanted * at.size
    else:
        is_fit = given == wanted or name == _OWN_COUNT
    if not is_fit:
        raise Refused(f"{given} elements of input, {wanted} of output")


def is_refused(at: Reading, name: str, x: Any, out: Any, op: Any, root: Any) -> bool:
    """Whether mpi4py refuses the arguments of a method on this rank alone."""
    try:
        flat(at, name, x, out, op, root, None)
    except Refused:
        return True
    except Exception:  # MPI's own method says it
        return False
    finally:
        at.close()
    return False
