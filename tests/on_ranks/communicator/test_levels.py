"""Communicators of several nodes: long calls run within the nodes, then between them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from communicator_calls import (
    MPI_CALLS,
    PACKED_CALLS,
    SERVED_CALLS,
    calls_of_mpi,
    check,
    state_of,
)
from random_buffers import FORMS, FORMS_OF_ONE_TYPE_SIZE, RandomCalls

MPI = pytest.importorskip("mpi4py.MPI")
from mpicoll import Collectives, Comm, Disagreement, RankLost  # noqa: E402
from mpicoll.machine.nodes import RANKS_PER_NODE  # noqa: E402
from mpicoll.mpi.communicator import levels  # noqa: E402
from mpicoll.mpi.communicator.levels import Levels  # noqa: E402

LONG = levels.LEVELS_FROM // 8


@pytest.fixture(params=[2, 3])
def nodes(c: Collectives, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let nodes have this many ranks, and levels run all calls."""
    if c.size <= request.param:
        pytest.skip("there is one node")
    monkeypatch.setenv(RANKS_PER_NODE, str(request.param))
    monkeypatch.setattr(levels, "LEVELS_AFTER", 0)
    monkeypatch.setattr(levels, "LEVELS_FROM", 0)


@pytest.fixture
def across(nodes: None) -> Iterator[Comm]:
    made = Comm(MPI.COMM_WORLD.Dup())
    sums(made, 1)
    assert isinstance(state_of(made).server, Levels)
    yield made
    made.Free()


@pytest.mark.parametrize("name", [*SERVED_CALLS, *MPI_CALLS, *PACKED_CALLS])
def test_every_call_gives_what_mpi_gives(across: Comm, name: str) -> None:
    check(across, {**SERVED_CALLS, **MPI_CALLS, **PACKED_CALLS}[name])


@pytest.mark.parametrize("name", ["Allreduce", "Reduce_scatter_block", "Reduce_scatter"])
def test_buffers_of_different_datatypes_are_mpi4pys_own_error(across: Comm, name: str) -> None:
    x, length = np.ones(4 * across.size), 4 * across.size if name == "Allreduce" else 4
    method = getattr(across, name)
    with pytest.raises(ValueError, match="mismatch"):
        method(
            x, np.empty(length, "i8"), *([[4] * across.size] if name == "Reduce_scatter" else [])
        )
    assert sums(across, 1).tolist() == sums(MPI.COMM_WORLD, 1).tolist()


def test_each_rank_may_choose_the_form_of_its_buffers(across: Comm) -> None:
    # Each rank of Open MPI 5 chooses its algorithm by the size of its own datatype.
    is_open_mpi = MPI.get_vendor()[0] == "Open MPI"
    forms = FORMS_OF_ONE_TYPE_SIZE if is_open_mpi else FORMS
    calls = RandomCalls(across, seed=across.size, forms=forms)
    for _ in range(120):
        calls.run()


def test_nodes_whose_ranks_do_not_follow_each_other(nodes: None) -> None:
    order = MPI.COMM_WORLD.rank % 2 * MPI.COMM_WORLD.size + MPI.COMM_WORLD.rank
    plain = MPI.COMM_WORLD.Split(0, order)
    made = Comm(plain)
    for call in SERVED_CALLS.values():
        np.testing.assert_array_equal(call(made), call(MPI.Intracomm(plain)))
    made.Free()


def sums(comm: Any, count: int) -> Any:
    out = np.empty(count)
    comm.Allreduce(np.full(count, 1.0 * comm.rank), out)
    return out


def rows(comm: Any, count: int) -> Any:
    out = np.empty((comm.size, count))
    comm.Allgather(np.full(count, 1.0 * comm.rank), out)
    return out


def row_of_sums(comm: Any, count: int) -> Any:
    out = np.empty(count)
    comm.Reduce_scatter_block(np.full((comm.size, count), 1.0 * comm.rank), out)
    return out


def uneven_rows(comm: Any, count: int) -> Any:
    """Only the last rank gets many elements, and no rank gets its counts from the others."""
    counts = [1] * (comm.size - 1) + [count * comm.size]
    out = np.empty(counts[comm.rank])
    comm.Reduce_scatter(np.full(sum(counts), 1.0 * comm.rank), out, counts)
    return out


def greatest(dtype: str) -> Any:
    def call(comm: Any, count: int) -> Any:
        out = np.empty(count, dtype)
        comm.Allreduce(np.full(count, comm.rank, dtype), out, MPI.MAX)
        return out

    return call


GREATEST = greatest("f8")


@pytest.mark.parametrize("call", [sums, rows, row_of_sums, uneven_rows, GREATEST, greatest("i8")])
@pytest.mark.parametrize("count", [1, LONG])
def test_levels_run_long_calls_after_the_first_ones(
    nodes: None, monkeypatch: pytest.MonkeyPatch, call: Callable[[Any, int], Any], count: int
) -> None:
    """MPI finds the extremes of floating-point numbers: no call may treat NaN in another way."""
    monkeypatch.setattr(levels, "LEVELS_AFTER", 2)
    monkeypatch.setattr(levels, "LEVELS_FROM", 8 * LONG)
    names, made = calls_of_mpi(monkeypatch), Comm(MPI.COMM_WORLD.Dup())
    for _ in range(5):
        np.testing.assert_array_equal(call(made, count), call(MPI.COMM_WORLD, count))
    # Further short calls begin in MPI's own method, unless a rank cannot tell them.
    of_short = 5 if call is uneven_rows else 1
    assert len(names) == (of_short if count == 1 else 5 if call is GREATEST else 2)
    made.Free()


CALLS: dict[str, Callable[[Comm, bool], object]] = {
    "lengths": lambda comm, odd: sums(comm, 4 + odd),
    "collectives": lambda comm, odd: sums(comm, 1) if odd else rows(comm, 1),
    "operators": lambda comm, odd: comm.Allreduce(
        np.ones(4), np.ones(4), MPI.PROD if odd else MPI.SUM
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_different_calls_on_a_node_raise_with_the_numbers_of_their_ranks(
    nodes: None, name: str
) -> None:
    made = Comm(MPI.COMM_WORLD.Split(0, -MPI.COMM_WORLD.rank))
    sums(made, 1)
    last = state_of(made).nodes[-1]
    if made.rank in last and len(last) > 1:
        with pytest.raises((Disagreement, RankLost), match=f"rank ({'|'.join(map(str, last))}) "):
            CALLS[name](made, made.rank == last[0])
    MPI.COMM_WORLD.Barrier()


def test_communicators_that_are_made_and_freed_take_no_descriptors(nodes: None) -> None:
    counts = []
    for _ in range(2):
        for _ in range(20):
            made = Comm(MPI.COMM_WORLD.Dup())
            sums(made, 3)
            made.Free()
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[0] == counts[1]
