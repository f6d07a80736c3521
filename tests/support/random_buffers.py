"""Random calls of a communicator, in which each rank chooses the form of its buffers by itself.

usage: mpirun -n 4 python -m mpicoll.run tests/support/random_buffers.py SEED CALLS
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpicoll import Comm
from mpicoll.mpi.communicator import state

OPERATORS = {
    "SUM": np.add, "MAX": np.maximum, "MIN": np.minimum, "PROD": np.multiply, "BOR": np.bitwise_or,
}  # fmt: skip
LENGTHS = (0, 1, 3, 8, 64, 512, 513, 5000, 40000)
FORMS_OF_ONE_TYPE_SIZE = ("array", "columns", "displaced", "resized")
FORMS = (*FORMS_OF_ONE_TYPE_SIZE, "vector", "pairs")

Flat = Any


class Buffer(NamedTuple):
    """A buffer as mpi4py takes it, and its elements."""

    spec: Any
    elements: Flat


class RandomCalls:
    """Makes the same calls on all ranks, with buffers of each rank's own form.

    Args:
        forms: those from which a rank chooses.

    Attributes:
        datatypes: those of the last buffers, which are freed later.
    """

    def __init__(self, comm: Any, seed: int, forms: Sequence[str] = FORMS) -> None:
        self.forms = forms
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.shared, self.local = random.Random(seed), random.Random(f"{seed} {comm.rank}")
        self.datatypes: list[MPI.Datatype] = []
        self.turn = 0

    def run(self) -> str:
        """Make a call, compare its result with NumPy's, and return its description."""
        draw = self.shared
        self.turn += 1
        self.dtype = np.dtype(draw.choice(("f8", "i4", "i8", "u1")))
        self.length, self.root = draw.choice(LENGTHS), draw.randrange(self.size)
        names = [name for name in OPERATORS if name != "BOR" or self.dtype.kind != "f"]
        self.op_name = draw.choice([name for name in names if name != "PROD" or self.length < 64])
        self.in_place = draw.random() < 0.3
        name = draw.choice([*CALLS])
        text = f"call {self.turn}: {name} of {self.length} {self.dtype}, {self.op_name}, root "
        text += f"{self.root}, in place {self.in_place}, rank {self.rank} of {self.size}"
        received, expected = CALLS[name](self)
        np.testing.assert_array_equal(received, expected, text)
        while len(self.datatypes) > 20:
            self.datatypes.pop(0).Free()
        return text

    @property
    def op(self) -> MPI.Op:
        operator: MPI.Op = getattr(MPI, self.op_name)
        return operator

    def values(self, rank: int, length: int | None = None, shift: int = 0) -> Flat:
        """Return the input of a rank."""
        count = self.length if length is None else length
        return ((np.arange(count) * 7 + rank * 3 + self.turn + shift) % 5 + 1).astype(self.dtype)

    def zeros(self, length: int) -> Flat:
        return np.zeros(length, self.dtype)

    def fold(self, rows: Sequence[Flat]) -> Flat:
        total = rows[0].copy()
        for row in rows[1:]:
            total = OPERATORS[self.op_name](total, row).astype(self.dtype)
        return total

    def buffer(self, values: Flat, blocks: int = 1) -> Buffer:
        """Return a buffer with these elements, in a form that this rank chooses.

        Args:
            blocks: of a call that takes the count of one block.
        """
        count, form = values.size, self.local.choice(self.forms)
        kind = MPI.Datatype.fromcode(values.dtype.char)
        if form == "columns":
            column = np.asfortranarray(values.reshape(-1, 1))
            return Buffer(column, column.reshape(-1))
        if form == "displaced":
            whole = np.full(count + 3, 9, self.dtype)
            whole[2 : 2 + count] = values
            return Buffer([whole, (count // blocks, 2), kind], whole[2 : 2 + count])
        if form == "pairs" and count and count % (2 * blocks) == 0:
            pair = self.committed(kind.Create_contiguous(2))
            whole = values.copy()
            return Buffer([whole, count // 2 // blocks, pair], whole)
        if form in ("resized", "vector") and count and (form == "resized" or blocks == 1):
            whole = np.full(2 * count, 9, self.dtype)
            whole[::2] = values
            if form == "vector":
                spec = [whole, 1, self.committed(kind.Create_vector(count, 1, 2))]
            else:
                wide = self.committed(kind.Create_resized(0, 2 * values.itemsize))
                spec = [whole, count // blocks, wide]
            return Buffer(spec, whole[::2])
        whole = values.copy()
        return Buffer(whole, whole)

    def blocks(self, values: Flat, counts: Sequence[int]) -> tuple[Any, Flat, Flat]:
        """Return a buffer of blocks with these counts, its memory, and where the elements are.

        This rank chooses the gaps between blocks, and between elements.
        """
        step, gap = self.local.choice((1, 2)), self.local.choice((0, 3))
        starts = [sum(counts[:rank]) + gap * rank for rank in range(len(counts))]
        places = np.repeat(np.subtract(starts, np.cumsum([0, *counts[:-1]])), counts)
        places = step * (places + np.arange(sum(counts)))
        whole = np.full(step * (starts[-1] + counts[-1]), 9, self.dtype)
        whole[places] = values
        kind = MPI.Datatype.fromcode(self.dtype.char)
        if step > 1:
            kind = self.committed(kind.Create_resized(0, step * self.dtype.itemsize))
        return [whole, counts, starts, kind], whole, places

    def committed(self, datatype: MPI.Datatype) -> MPI.Datatype:
        self.datatypes.append(datatype.Commit())
        return datatype


Result = tuple[Flat, Flat]
"""What a rank has received, and what it should have."""


def _barrier(calls: RandomCalls) -> Result:
    calls.comm.Barrier()
    return (), ()


def _nonblocking(calls: RandomCalls) -> Result:
    x, out = calls.values(calls.rank), calls.zeros(calls.length)
    calls.comm.Iallreduce(x, out, MPI.MAX).Wait()
    return out, np.max([calls.values(rank) for rank in range(calls.size)], axis=0)


def _object(calls: RandomCalls) -> Result:
    return calls.comm.bcast(
        calls.turn if calls.rank == calls.root else None, calls.root
    ), calls.turn


def _bcast(calls: RandomCalls) -> Result:
    values = calls.values(calls.root)
    buffer = calls.buffer(values if calls.rank == calls.root else calls.zeros(calls.length))
    calls.comm.Bcast(buffer.spec, calls.root)
    return buffer.elements, values


def _folding(name: str) -> Callable[[RandomCalls], Result]:
    def call(calls: RandomCalls) -> Result:
        rows = [calls.values(rank) for rank in range(calls.size)]
        first_rows = {"Scan": rows[: calls.rank + 1], "Exscan": rows[: calls.rank]}.get(name, rows)
        # A part of an array may overlap the input on this rank alone.
        whole = calls.zeros(calls.length + 2)
        out = whole[1:-1] if calls.local.random() < 0.5 else calls.zeros(calls.length)
        out[:] = rows[calls.rank]
        x = MPI.IN_PLACE if calls.in_place else rows[calls.rank].copy()
        getattr(calls.comm, name)(x, out, calls.op)
        return out, calls.fold(first_rows) if first_rows else rows[calls.rank]

    return call


def _reduce(calls: RandomCalls) -> Result:
    rows, is_root = [calls.values(rank) for rank in range(calls.size)], calls.rank == calls.root
    out = rows[calls.rank].copy() if is_root else None
    x = MPI.IN_PLACE if is_root and calls.in_place else rows[calls.rank]
    calls.comm.Reduce(x, out, calls.op, calls.root)
    return (out, calls.fold(rows)) if is_root else ((), ())


def _reduce_scatter_block(calls: RandomCalls) -> Result:
    length = calls.length
    rows = [calls.values(rank, length * calls.size) for rank in range(calls.size)]
    local = slice(calls.rank * length, (calls.rank + 1) * length)
    out = rows[calls.rank].copy() if calls.in_place else calls.zeros(length)
    x = MPI.IN_PLACE if calls.in_place else rows[calls.rank]
    calls.comm.Reduce_scatter_block(x, out, calls.op)
    return out[:length], calls.fold(rows)[local]


def _reduce_scatter(calls: RandomCalls) -> Result:
    is_even = calls.turn % 2
    counts = [calls.length if is_even else (rank + calls.turn) % 4 for rank in range(calls.size)]
    rows = [calls.values(rank, sum(counts)) for rank in range(calls.size)]
    start, out = sum(counts[: calls.rank]), calls.zeros(counts[calls.rank])
    calls.comm.Reduce_scatter(rows[calls.rank], out, counts, calls.op)
    return out, calls.fold(rows)[start : start + out.size]


def _gathered(calls: RandomCalls, *, in_place: bool) -> tuple[Flat, Flat, Any]:
    """Return all rows, an output with this rank's row if it is in place, and the input."""
    rows = np.concatenate([calls.values(rank) for rank in range(calls.size)])
    before = rows.reshape(calls.size, -1).copy()
    before[np.arange(calls.size) != (calls.rank if in_place else -1)] = 0
    x = MPI.IN_PLACE if in_place else calls.buffer(calls.values(calls.rank)).spec
    return rows, before.reshape(-1), x


def _gather(calls: RandomCalls) -> Result:
    is_root = calls.rank == calls.root
    rows, before, x = _gathered(calls, in_place=calls.in_place and is_root)
    out = calls.buffer(before, calls.size)
    calls.comm.Gather(x, out.spec if is_root else None, calls.root)
    return (out.elements, rows) if is_root else ((), ())


def _allgather(calls: RandomCalls) -> Result:
    rows, before, x = _gathered(calls, in_place=calls.in_place)
    out = calls.buffer(before, calls.size)
    calls.comm.Allgather(x, out.spec)
    return out.elements, rows


def _allgatherv(calls: RandomCalls) -> Result:
    rows, before, x = _gathered(calls, in_place=calls.in_place)
    spec, out, places = calls.blocks(before, [calls.length] * calls.size)
    calls.comm.Allgatherv(x, spec)
    return out[places], rows


def _gatherv(calls: RandomCalls) -> Result:
    is_root = calls.rank == calls.root
    rows, before, x = _gathered(calls, in_place=calls.in_place and is_root)
    spec, out, places = calls.blocks(before, [calls.length] * calls.size)
    calls.comm.Gatherv(x, spec if is_root else None, calls.root)
    return (out[places], rows) if is_root else ((), ())


def _scatterv(calls: RandomCalls) -> Result:
    rows = np.concatenate([calls.values(rank) for rank in range(calls.size)])
    out = calls.buffer(calls.zeros(calls.length))
    spec, *_ = calls.blocks(rows, [calls.length] * calls.size)
    calls.comm.Scatterv(spec if calls.rank == calls.root else None, out.spec, calls.root)
    return out.elements, calls.values(calls.rank)


def _scatter(calls: RandomCalls) -> Result:
    rows = np.concatenate([calls.values(rank) for rank in range(calls.size)])
    is_root, out = calls.rank == calls.root, calls.buffer(calls.zeros(calls.length))
    x = calls.buffer(rows, calls.size).spec if is_root else None
    if is_root and calls.in_place:
        calls.comm.Scatter(x, MPI.IN_PLACE, calls.root)
        return (), ()
    calls.comm.Scatter(x, out.spec, calls.root)
    return out.elements, calls.values(calls.rank)


def _alltoall(calls: RandomCalls) -> Result:
    ranks = range(calls.size)
    sent = np.concatenate([calls.values(calls.rank, shift=10 * rank) for rank in ranks])
    expected = np.concatenate([calls.values(rank, shift=10 * calls.rank) for rank in ranks])
    out = calls.buffer(sent if calls.in_place else calls.zeros(sent.size), calls.size)
    x = MPI.IN_PLACE if calls.in_place else calls.buffer(sent, calls.size).spec
    calls.comm.Alltoall(x, out.spec)
    return out.elements, expected


def _alltoallv(calls: RandomCalls) -> Result:
    ranks = range(calls.size)
    counts = [[(source + target + calls.turn) % 3 for target in ranks] for source in ranks]
    received = [row[calls.rank] for row in counts]
    sent = np.concatenate([calls.values(calls.rank, counts[calls.rank][rank]) for rank in ranks])
    expected = np.concatenate([calls.values(rank, received[rank]) for rank in ranks])
    x, *_ = calls.blocks(sent, counts[calls.rank])
    spec, out, places = calls.blocks(calls.zeros(sum(received)), received)
    calls.comm.Alltoallv(x, spec)
    return out[places], expected


CALLS: dict[str, Callable[[RandomCalls], Result]] = {
    "Barrier": _barrier, "Iallreduce": _nonblocking, "bcast": _object, "Bcast": _bcast,
    **{name: _folding(name) for name in ("Allreduce", "Scan", "Exscan")}, "Reduce": _reduce,
    "Reduce_scatter_block": _reduce_scatter_block, "Reduce_scatter": _reduce_scatter,
    "Gather": _gather, "Allgather": _allgather, "Allgatherv": _allgatherv, "Scatter": _scatter,
    "Gatherv": _gatherv, "Scatterv": _scatterv, "Alltoall": _alltoall, "Alltoallv": _alltoallv,
}  # fmt: skip


def main(seed: int, count: int) -> None:
    """Make random calls on the world; print how many plans of ours have served them."""
    comm = MPI.COMM_WORLD.Dup()
    assert isinstance(comm, Comm)
    calls = RandomCalls(comm, seed)
    for _ in range(count):
        calls.run()
    server = state.find_state(comm).server
    plans = server.collectives.plans.plans
    print(f"{count} calls are right, {len(plans)} plans", flush=True)
    comm.Free()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
