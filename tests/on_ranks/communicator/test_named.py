"""Communicators whose collectives run by the algorithms that a variable names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from communicator_calls import (
    MPI_CALLS,
    PACKED_CALLS,
    SERVED_CALLS,
    allreduce,
    bcast,
    calls_of_mpi,
    check,
)
from random_buffers import RandomCalls

MPI = pytest.importorskip("mpi4py.MPI")
from mpicoll import Collectives, Comm  # noqa: E402
from mpicoll.errors import ArgumentError, CollectiveError, Disagreement  # noqa: E402
from mpicoll.machine.nodes import RANKS_PER_NODE  # noqa: E402
from mpicoll.mpi.communicator.state import FORCED  # noqa: E402

ALGORITHMS = {
    "allreduce": "two_level", "broadcast": "two_level", "barrier": "two_level",
    "reduce": "two_level", "allgather": "bruck", "reduce_scatter": "direct", "alltoall": "bruck",
    "gather": "binomial", "scatter": "binomial",
}  # fmt: skip


def _made(patch: pytest.MonkeyPatch, per_node: int) -> Comm:
    patch.setenv(RANKS_PER_NODE, str(per_node))
    patch.setenv(FORCED, ",".join(f"{name}={text}" for name, text in ALGORITHMS.items()))
    return Comm(MPI.COMM_WORLD.Dup())


@pytest.fixture(params=[1, 2, 3], scope="module")
def named(c: Collectives, request: pytest.FixtureRequest) -> Iterator[Comm]:
    """A communicator whose ranks are on nodes of this many."""
    if c.size <= request.param:
        pytest.skip("there is one node")
    with pytest.MonkeyPatch.context() as patch:
        comm = _made(patch, request.param)
        comm.Barrier()
        yield comm
        comm.Free()


@pytest.fixture
def alone(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> Comm:
    """A communicator of one test, which may spoil it."""
    if c.size == 1:
        pytest.skip("MPI serves one rank")
    return _made(monkeypatch, 2)


@pytest.mark.parametrize("name", [*SERVED_CALLS, *MPI_CALLS, *PACKED_CALLS])
def test_every_call_gives_what_mpi_gives(named: Comm, name: str) -> None:
    check(named, {**SERVED_CALLS, **MPI_CALLS, **PACKED_CALLS}[name])


def test_each_rank_may_choose_the_form_of_its_buffers(named: Comm) -> None:
    calls = RandomCalls(named, seed=named.size)
    for _ in range(120):
        calls.run()


@pytest.mark.parametrize("call", [allreduce, bcast])
@pytest.mark.parametrize(
    "algorithm", ["ring", "auto", "mpich_default", "native:reduce+broadcast", "native"]
)
def test_a_variable_concerns_the_collectives_that_it_names(
    c: Collectives, monkeypatch: pytest.MonkeyPatch, call: Callable[[Any], Any], algorithm: str
) -> None:
    if c.size == 1:
        pytest.skip("MPI serves one rank")
    names = calls_of_mpi(monkeypatch)
    monkeypatch.setenv(RANKS_PER_NODE, str(c.size))
    monkeypatch.setenv(FORCED, f"allreduce={algorithm},barrier=native")
    made = Comm(MPI.COMM_WORLD.Dup())
    check(made, call)
    is_mpi = call is allreduce and algorithm == "native"
    assert names == (["Allreduce"] if is_mpi else [])  # further calls begin in MPI's own method
    objects = [made.allreduce(1), made.bcast("text"), made.allgather(2)]
    assert objects == [made.size, "text", [2] * made.size]
    assert {"_ours_bcast", "allreduce"} <= vars(made).keys()
    assert not {"bcast", "_ours_allreduce"} & vars(made).keys()
    made.Free()


def test_an_algorithm_that_cannot_serve_a_call_is_an_error_on_all_ranks(
    c: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    if c.size == 1:
        pytest.skip("MPI serves one rank")
    monkeypatch.setenv(RANKS_PER_NODE, "1")
    monkeypatch.setenv(FORCED, "allreduce=ring@symmetric")
    made = Comm(MPI.COMM_WORLD.Dup())
    with pytest.raises(CollectiveError, match="symmetric"):
        made.Allreduce(np.ones(3), np.empty(3))


DIFFERENT: dict[str, Callable[[Comm, int], object]] = {
    "count": lambda comm, odd: comm.Allreduce(np.ones(4 + odd), np.ones(4 + odd)),
    "count of the root": lambda comm, odd: comm.Bcast(np.ones(4 + odd), comm.size - 1),
    "dtype": lambda comm, odd: _sum(comm, np.ones(5, "i8" if odd else "f8")),
    "collective": lambda comm, odd: comm.Barrier() if odd else allreduce(comm),
    "operator": lambda comm, odd: _sum(comm, np.ones(4), MPI.PROD if odd else MPI.SUM),
}


def _sum(comm: Comm, x: Any, op: MPI.Op = MPI.SUM) -> None:
    comm.Allreduce(x, np.zeros_like(x), op)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("name", DIFFERENT)
def test_different_calls_raise_on_all_ranks(alone: Comm, name: str, *, is_known: bool) -> None:
    for _ in range(2 if is_known else 0):
        alone.Barrier()
        alone.Bcast(np.ones(4), alone.size - 1)
        alone.Allreduce(np.ones(4), np.ones(4))
    with pytest.raises(CollectiveError):
        DIFFERENT[name](alone, int(alone.rank == alone.size - 1))
    MPI.COMM_WORLD.Barrier()


def test_a_row_of_the_root_with_another_length_is_an_error(alone: Comm) -> None:
    alone.Barrier()
    is_root = alone.rank == 0
    out = np.ones((alone.size, 4)) if is_root else None
    with pytest.raises(ArgumentError if is_root else Disagreement, match=r"rank 0 of . needs"):
        alone.Gather(np.ones(4 + is_root), out)
    MPI.COMM_WORLD.Barrier()
