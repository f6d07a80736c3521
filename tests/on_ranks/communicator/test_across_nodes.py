"""Communicators of several nodes: plans that all ranks find by the key of a call."""

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
    check,
    signatures,
)
from random_buffers import RandomCalls

MPI = pytest.importorskip("mpi4py.MPI")
from mpicoll import Collectives, Comm, RankLost  # noqa: E402
from mpicoll.errors import ArgumentError  # noqa: E402
from mpicoll.machine.nodes import RANKS_PER_NODE  # noqa: E402
from mpicoll.mpi.communicator.state import FORCED, WARMUP  # noqa: E402
from mpicoll.mpi.transport import MpiTransport  # noqa: E402
from mpicoll.selection import shipped  # noqa: E402

SCHEDULES = {
    "allreduce": "two_level", "broadcast": "two_level", "barrier": "two_level",
    "reduce": "two_level", "allgather": "bruck", "reduce_scatter": "direct", "alltoall": "bruck",
    "gather": "binomial", "scatter": "binomial",
}  # fmt: skip


def _made(patch: pytest.MonkeyPatch, per_node: int) -> Comm:
    patch.setenv(RANKS_PER_NODE, str(per_node))
    patch.setenv(WARMUP, "0")
    patch.setenv(FORCED, ",".join(f"{name}={text}" for name, text in SCHEDULES.items()))
    return Comm(MPI.COMM_WORLD.Dup())


@pytest.fixture(params=[1, 2, 3], scope="module")
def across(c: Collectives, request: pytest.FixtureRequest) -> Iterator[Comm]:
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
        pytest.skip("there is one node")
    return _made(monkeypatch, 2 if c.size > 2 else 1)


@pytest.mark.parametrize("name", [*SERVED_CALLS, *MPI_CALLS, *PACKED_CALLS])
def test_every_call_gives_what_mpi_gives(across: Comm, name: str) -> None:
    check(across, {**SERVED_CALLS, **MPI_CALLS, **PACKED_CALLS}[name])


def test_calls_of_equal_rows_are_ours(across: Comm) -> None:
    names = {signature.plan.program is not None for signature in signatures(across)
             if signature.plan is not None}  # fmt: skip
    assert names == {True}
    assert len(signatures(across)) > 10


def test_each_rank_may_choose_the_form_of_its_buffers(across: Comm) -> None:
    calls = RandomCalls(across, seed=across.size)
    for _ in range(120):
        calls.run()


def test_auto_chooses_by_its_table_after_the_first_calls(
    alone: Comm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short broadcast is ours by the table, an allreduce is MPI's."""
    if alone.size < 4:
        pytest.skip("MPI serves groups with one rank on each node")
    monkeypatch.delenv(FORCED)
    monkeypatch.delenv(WARMUP)
    monkeypatch.setattr(shipped, "LEVELS", {"broadcast": ((np.inf, 64, "two_level"),)})
    for _ in range(40):
        np.testing.assert_array_equal(bcast(alone), bcast(MPI.COMM_WORLD))
        np.testing.assert_array_equal(allreduce(alone), allreduce(MPI.COMM_WORLD))
    algorithms = [signature.plan and signature.plan.algorithm for signature in signatures(alone)]
    assert [text and text.partition("(")[0] for text in algorithms] == ["two_level"]


def test_a_plan_is_made_without_a_message_to_another_node(
    alone: Comm, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(alone, allreduce)

    def refuse(*arguments: object) -> None:
        raise AssertionError("the ranks exchange something")

    monkeypatch.setattr(MpiTransport, "exchange", refuse)
    check(alone, bcast)
    assert len(signatures(alone)) == 2


DIFFERENT: dict[str, Callable[[Comm, int], object]] = {
    "count": lambda comm, odd: comm.Allreduce(np.ones(4 + odd), np.ones(4 + odd)),
    "count of the root": lambda comm, odd: comm.Bcast(np.ones(4 + odd), comm.size - 1),
    "collective": lambda comm, odd: comm.Barrier() if odd else allreduce(comm),
    "operator": lambda comm, odd: comm.Allreduce(
        np.ones(4), np.ones(4), MPI.PROD if odd else MPI.SUM
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_ranks_in_different_calls_raise(alone: Comm, name: str) -> None:
    for _ in range(2):
        alone.Barrier()
        alone.Bcast(np.ones(4))
        alone.Allreduce(np.ones(4), np.ones(4))

    def call() -> None:
        DIFFERENT[name](alone, int(alone.rank == alone.size - 1))
        alone.Barrier()  # a root has gone on

    with pytest.raises(RankLost):
        call()
    MPI.COMM_WORLD.Barrier()


NEW_CALLS: dict[str, Callable[[Comm, int], object]] = {
    "shorter message": lambda comm, odd: comm.Bcast(np.ones(5 + odd)),
    "longer message": lambda comm, odd: comm.Bcast(np.ones(6 - odd)),
    "dtype": lambda comm, odd: allreduce_of(comm, np.ones(5, "i8" if odd else "f8")),
    "operator": lambda comm, odd: allreduce_of(comm, np.ones(5), MPI.PROD if odd else MPI.SUM),
    "collective": lambda comm, odd: comm.Bcast(np.ones(5)) if odd else allreduce_of(
        comm, np.ones(5)
    ),
}  # fmt: skip


def allreduce_of(comm: Comm, x: Any, op: MPI.Op = MPI.SUM) -> None:
    comm.Allreduce(x, np.zeros_like(x), op)


@pytest.mark.parametrize("is_on_node", [False, True])
@pytest.mark.parametrize("name", NEW_CALLS)
def test_two_new_calls_never_match(alone: Comm, name: str, is_on_node: bool) -> None:
    """Every rank tells both signatures, whether the ranks of a node differ or those of two."""
    odd = alone.rank == 1 if is_on_node else alone.rank >= alone.size // 2

    def call() -> None:
        NEW_CALLS[name](alone, int(odd))
        alone.Barrier()  # a root has gone on

    with pytest.raises(RankLost, match=r"different calls: rank \d calls .*, rank \d calls "):
        call()
    MPI.COMM_WORLD.Barrier()


def test_a_row_of_the_root_with_another_length_is_an_error(alone: Comm) -> None:
    alone.Barrier()
    is_root = alone.rank == 0
    out = np.ones((alone.size, 4)) if is_root else None

    def call() -> None:
        alone.Gather(np.ones(4 + is_root), out)
        alone.Barrier()

    with pytest.raises(ArgumentError if is_root else RankLost, match=r"40 bytes|has left it"):
        call()
    MPI.COMM_WORLD.Barrier()
