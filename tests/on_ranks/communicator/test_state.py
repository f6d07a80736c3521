"""The state of a communicator, which one of the same ranks takes over once it is freed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from communicator_calls import (
    allgather,
    allreduce,
    alltoallv,
    bcast,
    check,
    close_idle_states,
    long_double,
    signatures,
)

MPI = pytest.importorskip("mpi4py.MPI")
from mpicoll import Comm  # noqa: E402
from mpicoll.errors import CollectiveError  # noqa: E402
from mpicoll.machine.nodes import RANKS_PER_NODE  # noqa: E402
from mpicoll.mpi.communicator import state  # noqa: E402


def test_many_communicators_are_mpis(monkeypatch: pytest.MonkeyPatch, comm: Any) -> None:
    """One rank has too many: all ranks leave this one to MPI, through whichever object."""
    monkeypatch.setattr(state, "_MOST_SERVED", 1)
    monkeypatch.setattr(state, "_live", {object()} if comm.rank == 0 else set())
    check(comm, allreduce)
    check(Comm(comm) if comm.rank else comm, allreduce)
    assert not signatures(comm)


def test_a_communicator_without_shared_memory_does_not_count(
    monkeypatch: pytest.MonkeyPatch, comm: Any
) -> None:
    monkeypatch.setattr(state, "_live", set())
    with monkeypatch.context() as patch:
        patch.setenv("MPICOLL_SYMMETRIC", "0")
        check(comm, allreduce)
    assert not state._live
    other = comm.Dup()
    check(other, allreduce)
    assert len(state._live) == int(comm.size > 1)
    other.Free()


@pytest.fixture
def reused(served_at_once: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let communicators take over what freed ones have made."""
    monkeypatch.setattr(state, "_MOST_IDLE", 2)
    yield
    close_idle_states()


def _state(comm: Any) -> Any:
    return comm.Get_attr(state._key())


def _used(made: Any) -> Any:
    """Return the state of a communicator after some calls, and free it."""
    for call in (allreduce, bcast, alltoallv, long_double):
        check(made, call)
    assert made.allreduce(made.rank, MPI.MAX) == made.size - 1
    last = _state(made)
    made.Free()
    return last


@pytest.mark.usefixtures("reused")
def test_a_communicator_takes_over_what_a_freed_one_of_the_same_ranks_has_made(comm: Any) -> None:
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    first = _used(comm.Dup())
    made = len(first.dispatcher.plans)
    for other in (comm.Split(0, comm.rank), comm.Create_cart([comm.size]), comm.Dup()):
        assert MPI.Comm.Compare(other, comm) == MPI.CONGRUENT
        assert _used(other) is first
    assert len(first.dispatcher.plans) == made


@pytest.mark.usefixtures("reused")
def test_communicators_of_one_time_or_another_order_of_ranks_share_nothing(comm: Any) -> None:
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    first = _used(comm.Dup())
    backwards, pair = comm.Split(0, -comm.rank), [comm.Dup(), comm.Dup()]
    for each in (*pair, backwards):
        check(each, allgather)
    states = [_state(each) for each in (*pair, backwards)]
    assert [each is first for each in states] == [True, False, False]
    assert len({id(each.dispatcher) for each in states}) == 3
    for each in (*pair, backwards):
        check(each, allreduce)
        each.Free()


def _check_sums(comm: Any) -> None:
    """Make calls until plans serve them."""
    out = np.empty(2)
    for _ in range(4):
        comm.Allreduce(np.ones(2), out)
        assert list(out) == [comm.size, comm.size]


def _grid(comm: Any, size: int) -> Any:
    return comm.Create_cart([size])


def _graph(comm: Any, size: int) -> Any:
    return comm.Create_graph(range(1, size + 1), [(rank + 1) % size for rank in range(size)])


def _backward_grid(comm: Any, size: int) -> Any:
    backwards = comm.Split(0, -comm.rank)
    grid = backwards.Create_cart([size])
    backwards.Free()
    return grid


@pytest.mark.usefixtures("reused")
@pytest.mark.parametrize("make", [_grid, _graph, _backward_grid])
def test_a_grid_of_fewer_ranks_takes_over_no_state_of_its_parent(comm: Any, make: Any) -> None:
    """MPICH 5.0.2 returns the parent's group for some of them."""
    for size in (comm.size, comm.size - 1, comm.size, comm.size - 1, 1):
        part = make(comm, size) if size else MPI.COMM_NULL
        if part != MPI.COMM_NULL:
            _check_sums(part)
            if part.size > 1:
                assert _state(part).members == tuple(part.allgather(MPI.COMM_WORLD.rank))
            part.Free()
        whole = comm.Dup()
        _check_sums(whole)
        whole.Free()


@pytest.mark.usefixtures("reused")
def test_a_state_is_that_of_the_ranks_whatever_mpi_says(
    comm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if comm.size < 3:
        pytest.skip("a part of two ranks, and another one")
    pairs = [comm.Split(int(comm.rank == lone), comm.rank) for lone in (2, 0)]
    monkeypatch.setattr(state, "world_ranks", lambda part: tuple(range(part.size)))
    for part in pairs:
        _check_sums(part)
        part.Free()
    members = {idle.members for idle in state._idle}
    assert members == {(1, 2) if comm.rank else (0, 1)}


@pytest.mark.usefixtures("reused")
def test_a_state_that_one_rank_has_dropped_is_reused_by_none(comm: Any) -> None:
    """A rank closes its oldest states when it has too many, whatever the others have."""
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    first = _used(comm.Dup())
    if comm.rank == 0:
        state._idle.pop().close()
    made = comm.Dup()
    check(made, allreduce)
    assert _state(made) is not first
    assert first not in state._idle
    made.Free()


@pytest.mark.usefixtures("reused")
def test_a_freed_communicator_makes_no_calls_of_the_next_one() -> None:
    made = Comm(MPI.COMM_WORLD.Dup())
    check(made, allreduce)
    assert made.bcast("text") == "text"
    made.Free()
    following = Comm(MPI.COMM_WORLD.Dup())
    check(following, allreduce)
    for call in (made.Barrier, lambda: made.bcast("text"), lambda: allreduce(made)):
        with pytest.raises(MPI.Exception):
            call()
    check(following, allreduce)
    following.Free()


def test_nothing_is_made_for_calls_that_are_mpis_on_several_nodes(
    monkeypatch: pytest.MonkeyPatch, comm: Any
) -> None:
    """One rank on each node: `auto` leaves its calls to MPI, so no call makes anything."""
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    monkeypatch.setenv(RANKS_PER_NODE, "1")
    across = comm.Dup()
    for call in (allreduce, bcast, allgather):
        check(across, call)
    assert across.allreduce(across.rank, MPI.MAX) == across.size - 1
    assert len(_state(across).nodes) == comm.size
    assert _state(across).is_mpi
    assert _state(across).dispatcher is None
    across.Free()


def test_an_impossible_node_of_one_rank_is_an_error_on_all(
    monkeypatch: pytest.MonkeyPatch, comm: Any
) -> None:
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    if comm.rank == 0:
        monkeypatch.setenv(RANKS_PER_NODE, "none")
    with pytest.raises(CollectiveError, match=f"{RANKS_PER_NODE} must be a number of ranks"):
        allreduce(comm)
