"""Pack buffers that NumPy cannot view: of a derived datatype, with gaps, or on a GPU.

MPI packs and unpacks them, by a message of this rank to itself. It also says what mpi4py refuses.
"""

from __future__ import annotations

import operator
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.mpi.communicator.buffers import Flat, Unreadable, datatype, indices, numbers, parts


class Packing:
    """The bytes of a buffer that NumPy cannot view.

    Attributes:
        flat: the bytes of the type signature.
        spec: the buffer, as a method of mpi4py that moves one message takes it.
        is_written: it is received into.
        indexed: the datatype that was made for it, if any.
    """

    def __init__(
        self, spec: Any, nbytes: int, *, is_written: bool, indexed: MPI.Datatype | None = None
    ) -> None:
        self.spec, self.flat = spec, np.empty(nbytes, "u1")
        self.is_written, self.indexed = is_written, indexed

    def pack(self) -> Flat:
        """Copy the buffer to the bytes, and return them."""
        _self_comm().Sendrecv(self.spec, 0, 0, [self.flat, MPI.PACKED], 0, 0)
        return self.flat

    def unpack(self) -> None:
        """Copy the bytes to the buffer."""
        _self_comm().Sendrecv([self.flat, MPI.PACKED], 0, 0, self.spec, 0, 0)

    def free(self) -> None:
        """Free the datatype."""
        if self.indexed is not None:
            self.indexed.Free()


def packing(spec: Any, blocks: int, *, is_written: bool) -> Packing:
    """Return the packing of a buffer that C cannot view.

    Raises:
        Unreadable: mpi4py refuses the buffer.
    """
    check_block(spec, is_written=is_written)
    memory, count, displacement, _ = parts(spec, list | tuple)
    kind = datatype(spec)
    total = entries(spec) * (1 if count is None else max(blocks, 1))
    if blocks > 1 and total % blocks:
        raise Unreadable(f"{total} elements for {blocks} ranks")
    local = [memory, (total, displacement or 0), kind]
    return Packing(local, total * kind.Get_size(), is_written=is_written)


def vector_packing(spec: Any, blocks: int, *, is_written: bool) -> tuple[Packing, list[int]]:
    """Return the packing of a buffer with a count for each block, and the bytes of its blocks.

    Raises:
        Unreadable: mpi4py refuses the buffer.
    """
    memory, counts, displacements, kind = parts(spec, tuple)
    check_block([memory, 0, kind], is_written=is_written)
    kind = datatype(spec)
    if counts is None:
        quotient, remainder = divmod(entries([memory, kind]), blocks)
        lengths = [quotient + (index < remainder) for index in range(blocks)]
    else:
        lengths = numbers(counts, blocks)
    starts = list(accumulate(lengths, initial=0))[:-1]
    if displacements is not None:
        starts = _strided(displacements, blocks)
    indexed = kind.Create_indexed(lengths, starts).Commit()
    nbytes = [length * kind.Get_size() for length in lengths]
    local = [memory, int(any(lengths)), indexed]
    return Packing(local, sum(nbytes), is_written=is_written, indexed=indexed), nbytes


def entries(spec: Any) -> int:
    """Return how many entries of its datatype a buffer has."""
    memory, count, displacement, _ = parts(spec, list | tuple)
    if count is not None:
        return operator.index(count)
    nbytes = 0 if memory is None else MPI.buffer(memory).nbytes
    return nbytes // datatype(spec).extent - operator.index(displacement or 0) if nbytes else 0


@cache
def _self_comm() -> MPI.Intracomm:
    """Return a communicator of this rank alone, whose messages never meet the user's."""
    return MPI.Intracomm(MPI.COMM_SELF).Dup()


def check_block(spec: Any, *, is_written: bool) -> None:
    """Raise `Unreadable` where mpi4py refuses a buffer: messages have the same rules.

    Args:
        is_written: it is received into.
    """
    bind = MPI.COMM_SELF.Recv_init if is_written else MPI.COMM_SELF.Send_init
    try:
        bind(spec, 0).Free()
    except MPI.Exception:
        return
    except Exception as error:
        raise Unreadable(str(error)) from error


def _strided(displacements: Any, blocks: int) -> list[int]:
    """Return the displacement of each block, given all of them or the distance between two."""
    try:
        return [operator.index(displacements) * index for index in range(blocks)]
    except TypeError:
        return indices(displacements, blocks)
