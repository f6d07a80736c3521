"""Blocks that are longer or shorter than what comes there, and buffers without equal blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

MPI = pytest.importorskip("mpi4py.MPI")
from mpicoll import Comm  # noqa: E402

ROOTED = "Gather", "Gatherv", "Scatter", "Scatterv"
NAMES = *ROOTED, "Allgather", "Allgatherv", "Alltoall", "Alltoallv"


@pytest.fixture(scope="module")
def comm() -> Iterator[Comm]:
    made = Comm(MPI.COMM_WORLD.Dup())
    if made.size == 1:
        pytest.skip("MPI serves one rank")
    yield made
    made.Free()


class Lengths(NamedTuple):
    """The elements that each rank sends to another one, and for which it has room."""

    sent: list[int]
    room: list[int]


def blocks(comm: Any, rank: int, length: int) -> Any:
    """Return a row for each rank, which this rank sends."""
    return 100.0 * rank + np.arange(comm.size)[:, None] + np.zeros(length)


def run(comm: Any, name: str, lengths: Lengths, root: int) -> Any:
    """Make a call; return the rows that this rank gets, None for none."""
    rank, is_root = comm.rank, comm.rank == root
    sent, room = lengths.sent[rank], lengths.room[rank]
    scatters = name.startswith(("Scatter", "Alltoall"))
    x = blocks(comm, rank, sent) if scatters else blocks(comm, rank, sent)[0]
    out = np.full((1 if name.startswith("Scatter") else comm.size, room), -1.0)
    source, target = x, out
    if name.endswith("v") and scatters:
        source = [x, [sent] * comm.size]
    if name.endswith("v") and name != "Scatterv":
        target = [out, [room] * comm.size]
    if name in ROOTED and not is_root:
        source, target = (None, target) if scatters else (source, None)
    getattr(comm, name)(source, target, *([root] if name in ROOTED else []))
    return out if target is not None else None


def rows(comm: Any, name: str, lengths: Lengths, root: int) -> Any:
    """Return what `run` does: the beginning of each block gets what comes."""
    rank, size = comm.rank, comm.size
    room = lengths.room[rank]
    sources = [root] if name.startswith("Scatter") else [*range(size)]
    out = np.full((len(sources), room), -1.0)
    for row, source in zip(out, sources, strict=True):
        block = rank if name.startswith(("Scatter", "Alltoall")) else 0
        count = min(room, lengths.sent[source])
        if name.startswith("Allgather"):
            count = min(count, lengths.room[source])
        row[:count] = blocks(comm, source, count)[block]
    return out if name not in ("Gather", "Gatherv") or rank == root else None


def longer_room(name: str, size: int, length: int, who: int, root: int) -> Lengths:
    return Lengths([length] * size, [length + 2 * (rank == who) for rank in range(size)])


def shorter_message(name: str, size: int, length: int, who: int, root: int) -> Lengths:
    return Lengths([length - (rank == who) for rank in range(size)], [length] * size)


def own_block(name: str, size: int, length: int, who: int, root: int) -> Lengths:
    """The rank's own block alone is longer than its room."""
    sent, room = [length] * size, [length] * size
    if name.startswith("Scatter"):
        room[root] -= 1
    elif name in ROOTED:
        sent[root] += 2
    elif name.startswith("Allgather"):
        sent[who] += 2
    return Lengths(sent, room)


@pytest.mark.parametrize("who", [0, -1])
@pytest.mark.parametrize("length", [4, 40_000])
@pytest.mark.parametrize("make", [longer_room, shorter_message, own_block])
@pytest.mark.parametrize("name", NAMES)
def test_a_block_may_be_longer_than_what_comes(
    comm: Comm, name: str, make: Any, length: int, who: int
) -> None:
    for root in (0, comm.size - 1):
        lengths = make(name, comm.size, length, who % comm.size, root)
        np.testing.assert_array_equal(
            run(comm, name, lengths, root), rows(comm, name, lengths, root)
        )
    assert comm.allreduce(1) == comm.size


@pytest.mark.parametrize("has_datatype", [False, True])
@pytest.mark.parametrize("name", ["Gather", "Scatter", "Allgather", "Alltoall"])
def test_a_buffer_without_equal_blocks_is_mpi4pys_own_error(
    comm: Comm, name: str, *, has_datatype: bool
) -> None:
    """On all ranks, or on the root alone."""
    kind = MPI.DOUBLE.Create_vector(2, 1, 2).Commit() if has_datatype else MPI.DOUBLE
    numbers = 3 * (2 * comm.size + 1)  # elements of the vector have an extent of 3 numbers
    whole, row = np.full(numbers, -1.0), np.ones(2)
    buffer = [whole, kind]
    both = (buffer, [whole.copy(), kind]) if name == "Alltoall" else (row, buffer)
    if name == "Scatter":
        both = buffer, row
    expected = pytest.raises((ValueError, MPI.Exception))
    if numbers % comm.size == 0 and not has_datatype:
        pytest.skip("these are equal blocks")
    if name in ROOTED and comm.rank:
        comm.Barrier()
    else:
        with expected:
            getattr(comm, name)(*both)
        comm.Barrier()
    assert comm.allreduce(1) == comm.size
    if has_datatype:
        kind.Free()
