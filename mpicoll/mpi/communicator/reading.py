"""Read the buffers of a call as flat arrays, and say what mpi4py refuses.

What is only moved is bytes, whatever the datatypes of one rank, and what is folded has a dtype. A
buffer of a derived datatype, with gaps, or on a GPU is packed into bytes, and its result unpacked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from mpicoll.mpi.communicator.buffers import (
    Flat,
    Refused,
    Unreadable,
    block,
    datatype,
    dtype_of,
    numbers,
    vector,
)

if TYPE_CHECKING:
    from mpicoll.mpi.communicator.packing import Packing

OPS = {
    MPI.SUM.handle: ("sum", "iufc"), MPI.PROD.handle: ("prod", "iufc"),
    MPI.MIN.handle: ("min", "iuf"), MPI.MAX.handle: ("max", "iuf"),
    MPI.BAND.handle: ("band", "iu"), MPI.BOR.handle: ("bor", "iu"), MPI.BXOR.handle: ("bxor", "iu"),
    MPI.LAND.handle: ("land", "biu"), MPI.LOR.handle: ("lor", "biu"),
    MPI.LXOR.handle: ("bxor", "b"),
}  # fmt: skip
"""Our name of MPI's operators, by handle, and the kinds of dtype on which MPI defines them."""

_SENDS = {"gather", "gatherv", "reduce"}
"""Methods of which ranks other than the root read no output."""
_RECEIVES = {"scatter", "scatterv"}
"""Methods of which ranks other than the root read no input."""
_BLOCKS = {
    "gather": (0, 1), "scatter": (1, 0), "allgather": (0, 1), "alltoall": (1, 1),
    "reduce_scatter_block": (1, 0),
}  # fmt: skip
"""Methods whose input or output is a row of blocks."""
VECTORS = {"gatherv": (0, 1), "scatterv": (1, 0), "allgatherv": (0, 1), "alltoallv": (1, 1)}
"""Methods whose input or output has a count for each block."""
FOLDS = {"reduce", "allreduce", "scan", "exscan", "reduce_scatter", "reduce_scatter_block"}
"""Methods that fold."""


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
            from mpicoll.mpi.communicator.packing import packing  # a program starts without

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
            from mpicoll.mpi.communicator.packing import vector_packing

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


def is_in_place(buffer: Any) -> bool:
    """Whether a rank's own block lies in its other buffer."""
    return buffer is None or buffer is MPI.IN_PLACE


def of_type(at: Reading, x: Any, out: Any, blocks: int = 0) -> Flat:
    """Return the input of a reduction, whose datatype mpi4py compares with its output's."""
    if datatype(x) != datatype(out):
        raise Refused("input and output have different datatypes")
    return at.block(x, blocks, written=False, folded=True)


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
        if out[1] is None:
            out[1] = _counts(x, out[0], exchange_counts)
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
    if name not in FOLDS:
        return name, arrays[0], arrays[1]
    data, result = arrays
    if reads_x and reads_out:
        check_sizes(at, name, data.size, result.size, counts)
    return name, data, result if counts is None else [result, counts]


def _counts(x: Any, out: Any, exchange: Callable[[int], list[int]] | None) -> list[int]:
    """Return how many elements each rank gets from a reduce_scatter; a rank knows its own count.

    Raises:
        Refused: mpi4py refuses a buffer before it asks; `Unreadable` where the ranks do not meet.
    """
    from mpicoll.mpi.communicator.packing import check_block, entries

    if not is_in_place(x):
        check_block(x, 0, written=False)
    check_block(out, 0, written=True)
    if exchange is None:
        raise Unreadable("the counts are unknown")
    return exchange(entries(out))


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
    if VECTORS.get(name, (0, 0))[index]:
        array, counts = at.vector(spec, written=is_written)
        return [array.view("u1"), [count * array.itemsize for count in counts]]
    blocks = at.size * _BLOCKS.get(name, (0, 0))[index]
    if name == "reduce_scatter_block" and index == 1 and is_in_place(x):
        blocks = at.size
    if name not in FOLDS:
        return at.block(spec, blocks, written=is_written).view("u1")
    if index == 0 and not (name == "reduce" and at.rank != root):
        return of_type(at, x, out, blocks)
    return at.block(spec, blocks, written=is_written, folded=True)


def check_sizes(at: Reading, name: str, given: int, wanted: int, counts: Any) -> None:
    """Raise `Refused` where the input and the output of a fold have different lengths."""
    if counts is not None:
        is_fit = given == sum(counts) and wanted == counts[at.rank]
    elif name == "reduce_scatter_block":
        is_fit = given == wanted * at.size
    else:
        is_fit = given == wanted
    if not is_fit:
        raise Refused(f"{given} elements of input, {wanted} of output")
