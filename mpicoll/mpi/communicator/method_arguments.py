"""From the buffers of a call to arrays and arguments of ours, the same on all ranks.

What the ranks compare is what MPI wants to be the same on all: the type signature.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpicoll.mpi.communicator.buffers import OPS, Flat, Unreadable, WrongLength
from mpicoll.mpi.communicator.reading import FOLDS, Reading

_WORD: dict[int, np.dtype[Any]] = {1: np.dtype("uint8"), 8: np.dtype("int64")}


class Call(NamedTuple):
    """The arguments of a method of `mpicoll.Collectives`; ranks without an array have None."""

    name: str
    x: Flat | None
    out: Flat | None
    op: str = "sum"
    root: int = 0
    counts: tuple[int, ...] | None = None


def read(at: Reading, name: str, x: Any, out: Any, op: Any, root: int) -> Call:
    """Return what the arguments of a method of mpi4py describe, whose blocks have equal lengths.

    Those of a reduce_scatter may differ. The arguments are those of `Reading.flat`, as are errors.
    """
    x, out = at.flat(name, x, out, root)
    in_place = x is MPI.IN_PLACE
    if in_place:
        at.pack()
    if name in FOLDS:
        return _read_fold(at, name, None if in_place else x, out, op, root)
    if name.endswith("v"):
        if name != "allgatherv" or len({*out[1]}) > 1:
            raise Unreadable("the blocks have lengths of their own")
        name, out = "allgather", out[0]
    if name == "barrier":
        return Call(name, None, None)
    is_root = at.rank == root
    if name == "bcast":
        data = words(x, 1)
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
        row = out[: rows[0].nbytes]  # the buffer may be longer
        return Call(name, rows, like_row(row, rows), root=root)
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
        if counts is None:
            raise Unreadable("the counts are unknown")
    if name in ("reduce_scatter", "reduce_scatter_block"):
        if x is None:
            stop = out.size // at.size if counts is None else counts[at.rank]
            x, out = out.copy(), out[:stop]
            at.check_fold(name, x, out, counts)
        if counts is None or len({*counts}) == 1:
            x, counts = x.reshape(at.size, -1), None
        name = "reduce_scatter"
    elif x is None:
        x = out.copy() if name == "reduce" else out
    return folding(name, x, out, op, root=root, counts=counts and tuple(counts))


def folding(
    name: str, data: Flat, result: Flat | None, op: Any, *, root: int = 0,
    counts: tuple[int, ...] | None = None,
) -> Call:  # fmt: skip
    """Return a call that folds. A user's operator has no name.

    Raises:
        Unreadable: MPI does not define its operator on the dtype.
    """
    if result is not None and name != "reduce_scatter" and data.size != result.size:
        raise Unreadable(f"{data.size} elements of input, {result.size} of output")
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


def like_row(flat: Flat, rows: Flat) -> Flat:
    """Return an array as words; it must be as long as a row."""
    if flat.nbytes != rows[0].nbytes:
        raise WrongLength(f"{flat.nbytes} bytes, where a row has {rows[0].nbytes}")
    return flat.view(rows.dtype)
