"""From the buffers of a call to arrays and arguments of ours, the same on all ranks.

What the ranks compare is what MPI wants to be the same on all: the type signature. So what is only
moved is bytes, whatever the datatypes of one rank, and what is folded has a dtype.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np
from mpi4py import MPI

from mpicoll.mpi.communicator.buffers import (
    Flat,
    Packing,
    Refused,
    Unreadable,
    WrongLength,
    block,
    datatype,
    dtype_of,
    packing,
    vector,
    vector_packing,
)

OPS = {
    MPI.SUM.handle: ("sum", "iufc"), MPI.PROD.handle: ("prod", "iufc"),
    MPI.MIN.handle: ("min", "iuf"), MPI.MAX.handle: ("max", "iuf"),
    MPI.BAND.handle: ("band", "iu"), MPI.BOR.handle: ("bor", "iu"), MPI.BXOR.handle: ("bxor", "iu"),
    MPI.LAND.handle: ("land", "biu"), MPI.LOR.handle: ("lor", "biu"),
    MPI.LXOR.handle: ("bxor", "b"),
}  # fmt: skip
"""Our name of MPI's operators, by handle, and the kinds of dtype on which MPI defines them."""


_EXTREMES = {MPI.MIN.handle, MPI.MAX.handle}


def is_extreme(op: Any) -> bool:
    """Whether an operator is MPI's minimum or maximum.

    MPI libraries compare NaN and zeros of both signs in the order of their own folds. So ours serve
    these operators from the first call, lest a result depends on the number of the call.
    """
    return isinstance(op, MPI.Op) and op.handle in _EXTREMES


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


class Reading:
    """The buffers of one call on one rank, as flat arrays.

    Attributes:
        rank, size: of the communicator.
        inputs, outputs: the packed ones, whose arrays have their contents after `pack`.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.inputs: list[Packing] = []
        self.outputs: list[Packing] = []

    @property
    def is_packed(self) -> bool:
        """Whether an array is a packed copy of a buffer."""
        return bool(self.inputs or self.outputs)

    def block(self, spec: Any, blocks: int = 0, *, written: bool, folded: bool = False) -> Flat:
        """Return the elements of a buffer, or the array of a packed one.

        Args:
            blocks, written: as `buffers.block` takes them.
            folded: by an operator, so that the elements have a dtype.

        Raises:
            Refused: mpi4py refuses the buffer.
            Unreadable: MPI folds no such datatype.
        """
        try:
            return block(spec, blocks, written=written)
        except Refused:
            raise
        except Exception:  # whatever is wrong, mpi4py says it of a message
            flat = self._packed(packing(spec, blocks, written=written), written=written)
            dtype = dtype_of(datatype(spec)) if folded else flat.dtype
            if dtype is None:
                raise Unreadable("MPI folds no derived datatype") from None
            return flat.view(dtype)

    def vector(self, spec: Any, *, written: bool) -> tuple[Flat, list[int]]:
        """Return the elements of a buffer with a count for each rank, and these counts.

        Raises:
            Refused: mpi4py refuses the buffer.
        """
        try:
            return vector(spec, self.size, written=written)
        except Refused:
            raise
        except Exception:  # as in `block`
            local, nbytes = vector_packing(spec, self.size, written=written)
            return self._packed(local, written=written), nbytes

    def _packed(self, local: Packing, *, written: bool) -> Flat:
        (self.outputs if written else self.inputs).append(local)
        return local.flat

    def pack(self) -> None:
        """Pack all buffers; what a call does not write stays in its output."""
        for local in (*self.inputs, *self.outputs):
            local.pack()

    def unpack(self) -> None:
        """Unpack the outputs after a call."""
        for local in self.outputs:
            local.unpack()

    def close(self) -> None:
        """Free what the packed buffers need."""
        for local in (*self.inputs, *self.outputs):
            local.free()


_WORD: dict[int, np.dtype[Any]] = {1: np.dtype("uint8"), 8: np.dtype("int64")}


def is_in_place(buffer: Any) -> bool:
    """Whether a rank's own block lies in its other buffer."""
    return buffer is None or buffer is MPI.IN_PLACE


def of_type(at: Reading, x: Any, out: Any, blocks: int = 0) -> Flat:
    """Return the input of a reduction, whose datatype mpi4py compares with its output's."""
    if datatype(x) != datatype(out):
        raise Refused("input and output have different datatypes")
    return at.block(x, blocks, written=False, folded=True)


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


def like_row(flat: Flat, rows: Flat) -> Flat:
    """Return an array as words; it must be as long as a row."""
    if flat.nbytes != rows[0].nbytes:
        raise WrongLength(f"{flat.nbytes} bytes, where a row has {rows[0].nbytes}")
    return flat.view(rows.dtype)


def writable(flat: Flat) -> Flat:
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
