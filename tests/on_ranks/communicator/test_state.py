"""What serves a communicator, by which variables, and the memory that it takes and gives back."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from communicator_calls import (
    allgather,
    allreduce,
    bcast,
    calls_of_mpi,
    check,
    state_of,
)

MPI = pytest.importorskip("mpi4py.MPI")
from mpicoll import Comm  # noqa: E402
from mpicoll.errors import ArgumentError, CollectiveError, Disagreement, RankLost  # noqa: E402
from mpicoll.machine.nodes import RANKS_PER_NODE  # noqa: E402
from mpicoll.mpi.communicator import classes, levels, state  # noqa: E402
from mpicoll.mpi.communicator.arenas import UNITS  # noqa: E402
from mpicoll.mpi.communicator.classes import FIRST_CALLS, FIRST_MADE  # noqa: E402
from mpicoll.mpi.communicator.state import FORCED  # noqa: E402


@pytest.fixture
def several(c: Any, comm: Any) -> None:
    """Skip what one rank alone does not make."""
    if c.size == 1:
        pytest.skip("MPI serves one rank")


@pytest.mark.usefixtures("several")
def test_a_communicator_without_shared_memory_is_mpis(
    monkeypatch: pytest.MonkeyPatch, comm: Any
) -> None:
    names = calls_of_mpi(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setenv("MPICOLL_SYMMETRIC", "0")
        check(comm, allreduce)
    assert comm.allreduce(comm.rank, MPI.MAX) == comm.size - 1
    assert state_of(comm).channel is None
    other = comm.Dup()
    names.clear()
    check(other, allreduce)
    assert not names
    other.Free()


@pytest.mark.usefixtures("several")
def test_a_variable_forces_an_algorithm(monkeypatch: pytest.MonkeyPatch, comm: Any) -> None:
    monkeypatch.setenv(FORCED, "allreduce=ring")
    check(comm, allreduce)
    plans = state_of(comm).server.collectives.plans.plans.values()
    assert [plan.plan.algorithm for plan in plans] == ["ring"]


@pytest.mark.usefixtures("several")
def test_a_wrong_variable_of_one_rank_is_an_error_on_every_rank(
    monkeypatch: pytest.MonkeyPatch, comm: Any
) -> None:
    monkeypatch.setenv(FORCED, "allreduce=ring" if comm.rank else "allreduce=rnig")
    with pytest.raises(ArgumentError, match=FORCED):
        comm.Barrier()


# -- memory ----------------------------------------------------------------------------------


def _use(made: Any) -> None:
    """Make some calls, and free the communicator."""
    _check_sums(made)
    assert made.allreduce(made.rank, MPI.MAX) == made.size - 1
    made.Free()


def _held() -> tuple[int, int]:
    """Return how much address space this process has, in pages, and how many descriptors."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages, len(os.listdir("/proc/self/fd"))


@pytest.mark.usefixtures("several")
def test_communicators_that_are_made_and_freed_take_no_memory(comm: Any) -> None:
    makers = [comm.Dup, lambda: comm.Split(0, -comm.rank), lambda: comm.Create_cart([comm.size])]
    for turn in range(UNITS + 6):
        _use(makers[turn % 3]())
    before = _held()
    for turn in range(150):
        _use(makers[turn % 3]())
    after = _held()
    assert after[1] <= before[1]  # what other tests have left may go
    assert after[0] - before[0] < 4096


@pytest.mark.usefixtures("several")
def test_as_many_communicators_as_an_arena_has_units_are_alive_at_once(comm: Any) -> None:
    """What has no unit is MPI's, and gives the same."""
    made = [comm.Dup() for _ in range(UNITS + 6)]
    for call in (allreduce, bcast):
        for part in made:
            np.testing.assert_array_equal(call(part), call(MPI.COMM_WORLD))
    assert made[-1].allgather(comm.rank) == list(range(comm.size))
    for part in made:
        part.Free()
    _use(comm.Dup())


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize(("variable", "text"), [("MPICOLL_SYMMETRIC", "0"), (RANKS_PER_NODE, "1")])
def test_communicators_without_a_channel_take_no_memory_of_channels(
    comm: Any, monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    check(comm, allreduce)
    with monkeypatch.context() as patch:
        patch.setenv(variable, text)
        for _ in range(UNITS + 1):
            part = MPI.COMM_WORLD.Dup()
            Comm(part).Barrier()
            part.Free()
    other = comm.Dup()
    check(other, allreduce)
    assert state_of(other).channel is not None
    other.Free()


def test_memory_of_a_communicator_that_one_rank_has_not_freed_is_not_used(comm: Any) -> None:
    """MPI's own `Free` of a rank need not wait for the others."""
    first, second = comm.Dup(), comm.Dup()
    check(first, allreduce)
    unit = state_of(first).unit
    if comm.rank == 0:
        first.Free()
        pending = None
    else:
        pending = first
    check(second, allreduce)
    assert state_of(second).unit != unit or comm.rank
    if pending is not None:
        pending.Free()
    second.Free()


def _unit_of_next(comm: Any) -> tuple[int, int]:
    """Return what names the channel of a new communicator of all ranks, and its memory."""
    made = comm.Dup()
    _check_sums(made)
    state = state_of(made)
    made.Free()
    return state.token, state.unit


MAKERS = {
    "Clone": lambda comm: comm.Clone(),
    "Create": lambda comm: comm.Create(comm.Get_group()),
    "Create_cart": lambda comm: comm.Create_cart([comm.size]),
    "Create_group": lambda comm: comm.Create_group(comm.Get_group()),
    "Create_dist_graph_adjacent": lambda comm: comm.Create_dist_graph_adjacent([], []),
    "Dup": lambda comm: comm.Dup(),
    "Dup_with_info": lambda comm: comm.Dup_with_info(MPI.INFO_NULL),
    "Split": lambda comm: comm.Split(0, comm.rank),
    "Split_type": lambda comm: comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank),
    "Sub": lambda comm: comm.Create_cart([comm.size]).Sub([True]),
}


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("maker", MAKERS)
def test_mpi_runs_the_first_calls_of_a_new_communicator(
    comm: Any, maker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So they wait for no rank that MPI would not wait for."""
    check(comm, allreduce)
    with monkeypatch.context() as patch:
        patch.setattr(classes, "FIRST_MADE", 0)
        made, x = MAKERS[maker](comm), np.full(3, comm.rank)
    if made.rank:  # the root has gone on
        MPI.COMM_WORLD.recv(source=0)
    made.Bcast(x, 0)
    for rank in range(1, 1 if made.rank else made.size):
        MPI.COMM_WORLD.send(None, rank)
    assert list(x) == [0, 0, 0]
    for _ in range(FIRST_CALLS - 1):
        with pytest.raises(MPI.Exception):  # a call that fails does not count
            made.Bcast(x, made.size)
        assert state.find_state(made) is None
        assert made.allreduce(1) == made.size
    check(made, allreduce)
    served = state.find_state(made)
    assert served is not None and (served.channel is not None) == (made.size > 1)
    made.Free()


@pytest.mark.usefixtures("several")
def test_communicators_that_some_ranks_make_do_not_count(
    comm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks agree on the communicators whose first calls MPI runs."""
    monkeypatch.setattr(classes, "FIRST_MADE", FIRST_MADE)
    group = comm.Get_group()
    first = group.Incl([0])
    for _ in range(FIRST_MADE if comm.rank == 0 else 0):
        comm.Create_group(first).Free()
    made = [comm.Dup() for _ in range(FIRST_MADE + 2)]
    for part in made:
        assert part.allreduce(1) == comm.size
    is_served = [state.find_state(part) is not None for part in made]
    assert comm.allgather(is_served) == [is_served] * comm.size
    for part in made:
        part.Free()
    first.Free()
    group.Free()


@pytest.mark.usefixtures("several")
def test_a_communicator_that_cannot_be_made_leaves_its_parent(comm: Any) -> None:
    check(comm, allreduce)
    for _ in range(3):
        with pytest.raises(MPI.Exception):
            comm.Create_cart([comm.size + 1])
        check(comm, allreduce)


@pytest.mark.usefixtures("several")
def test_a_parent_whose_channel_has_failed_makes_communicators(comm: Any) -> None:
    check(comm, allreduce)
    _unit_of_next(comm)
    length = 2 + (comm.rank == 1)
    with pytest.raises((Disagreement, RankLost)):
        comm.Allreduce(np.ones(length), np.empty(length))
    for _ in range(2):
        _unit_of_next(comm)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("is_rooted", [False, True])
def test_ranks_that_free_in_different_orders_have_different_channels(
    comm: Any, *, is_rooted: bool
) -> None:
    made = [comm.Dup(), comm.Dup()]
    for part in made:
        check(part, bcast if is_rooted else allreduce)
    for part in made if comm.rank else made[::-1]:
        part.Free()
    for _ in range(3):
        tokens = comm.allgather(_unit_of_next(comm)[0])
        assert len(set(tokens)) == 1


@pytest.mark.usefixtures("several")
def test_another_environment_has_another_channel(
    comm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = _unit_of_next(comm)[0]
    with monkeypatch.context() as patch:
        patch.setenv(FORCED, "allreduce=ring")
        made = comm.Dup()
        check(made, allreduce)
        assert state_of(made).channel is None
        made.Free()
    assert _unit_of_next(comm)[0] != token


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("as_vector", [False, True])
def test_another_object_of_a_freed_communicator_makes_no_calls_of_the_next_one(
    comm: Any, *, as_vector: bool
) -> None:
    made = comm.Dup()
    other = Comm(made)
    check(made, allreduce)
    check(other, allreduce)
    made.Free()
    x, following = np.zeros(6), comm.Dup()
    datatype = MPI.DOUBLE.Create_vector(2, 1, 2).Commit() if as_vector else MPI.DOUBLE
    with pytest.raises(RuntimeError, match="freed"):
        other.Bcast([x, 1, datatype])
    check(following, allreduce)
    following.Free()
    if as_vector:
        datatype.Free()


@pytest.mark.usefixtures("several")
def test_a_channel_that_has_failed_serves_no_other_communicator(comm: Any) -> None:
    made = comm.Dup()
    check(made, allreduce)
    token = state_of(made).token
    with pytest.raises((Disagreement, RankLost)):
        made.Allreduce(np.ones(2 + (made.rank == 1)), np.empty(2 + (made.rank == 1)))
    comm.Barrier()
    made.Free()
    assert _unit_of_next(comm)[0] != token


@pytest.mark.usefixtures("several")
def test_lengths_take_no_memory(comm: Any) -> None:
    def call(count: int) -> None:
        x = np.full(count, 1.0)
        comm.Allreduce(MPI.IN_PLACE, x)
        comm.Bcast(x, count % comm.size)
        assert x[0] == x[-1] == comm.size

    for count in range(1, 400):
        call(count)
    call(20_000)
    tracemalloc.start()
    before = _held()
    for count in range(1, 2500):
        call(count * 7 % 4999 + 1)
    _, peak = tracemalloc.get_traced_memory()
    after = _held()
    tracemalloc.stop()
    assert after[1] == before[1]
    assert after[0] - before[0] < 1024
    assert peak < 1 << 20


# -- communicators of other ranks ----------------------------------------------------------------


def _check_sums(comm: Any) -> None:
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


@pytest.mark.parametrize("make", [_grid, _graph, _backward_grid])
def test_a_grid_of_fewer_ranks_has_memory_of_its_ranks(comm: Any, make: Any) -> None:
    """MPICH 5.0.2 returns the parent's group for some of them."""
    for size in (comm.size, comm.size - 1, comm.size, comm.size - 1, 1):
        part = make(comm, size) if size else MPI.COMM_NULL
        if part != MPI.COMM_NULL:
            _check_sums(part)
            ranks = part.allgather(comm.rank)
            assert len(set(ranks)) == part.size
            part.Free()
        whole = comm.Dup()
        _check_sums(whole)
        whole.Free()


def test_pairs_of_different_ranks_follow_each_other(comm: Any) -> None:
    if comm.size < 3:
        pytest.skip("a part of two ranks, and another one")
    for turn in range(12):
        part = comm.Split(int(comm.rank == turn % 3), comm.rank)
        _check_sums(part)
        assert part.allgather(comm.rank) == [
            rank for rank in range(comm.size) if (rank == turn % 3) == (comm.rank == turn % 3)
        ]
        part.Free()


@pytest.mark.usefixtures("served_at_once")
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


@pytest.mark.usefixtures("several")
def test_a_child_of_a_fork_ends_and_its_parent_goes_on(comm: Any) -> None:
    check(comm, allreduce)
    child = os.fork()
    if not child:
        del comm
        os._exit(0)
    check(comm, allreduce)
    assert os.waitpid(child, 0)[1] == 0
    check(comm, allreduce)


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
    assert len(state_of(across).nodes) == comm.size
    assert state_of(across).server is None
    across.Free()


@pytest.fixture
def two_nodes(comm: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Comm]:
    """A communicator of two nodes or more."""
    if comm.size < 3:
        pytest.skip("there is one node, or one rank on each")
    monkeypatch.setenv(RANKS_PER_NODE, "2")
    world = Comm(MPI.COMM_WORLD.Dup())
    check(world, allreduce)
    yield world
    world.Free()


def test_communicators_of_several_nodes_follow_each_other(two_nodes: Comm) -> None:
    logs = set()
    for turn in range(3):
        made = two_nodes.Split(0, two_nodes.rank)
        for call in (allreduce, bcast, allgather):
            np.testing.assert_array_equal(call(made), call(MPI.Intracomm(made)))
        assert made.allreduce(turn) == turn * two_nodes.size
        logs.add(state_of(made).flight.log)
        made.Free()
    assert len(logs) == 3


def test_communicators_of_several_nodes_are_freed_in_different_orders(
    two_nodes: Comm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next ones make their channels in the same call on all ranks."""
    monkeypatch.setattr(levels, "LEVELS_FROM", 0)
    made = [two_nodes.Dup(), two_nodes.Dup()]
    for count, part in enumerate(made):
        for _ in range(count * levels.LEVELS_AFTER):
            check(part, allreduce)
    for part in made if two_nodes.rank else made[::-1]:
        part.Free()
    made = [two_nodes.Dup(), two_nodes.Dup()]
    for part in made:
        for _ in range(levels.LEVELS_AFTER + 1):
            check(part, allreduce)
        part.Free()


@pytest.mark.parametrize("form", [list, tuple, None])
def test_mpi_runs_a_short_call_on_several_nodes_at_once(
    two_nodes: Comm, monkeypatch: pytest.MonkeyPatch, form: Any
) -> None:
    x, out = np.ones(3), np.empty(3)
    buffers = [buffer if form is None else form((buffer, MPI.DOUBLE)) for buffer in (x, out)]
    two_nodes.Allreduce(*buffers)
    with monkeypatch.context() as patch:
        patch.setattr(levels.Levels, "run", None)
        two_nodes.Allreduce(*buffers)
    assert out.tolist() == [two_nodes.size] * 3


def test_an_impossible_node_of_one_rank_is_an_error_on_all(
    monkeypatch: pytest.MonkeyPatch, comm: Any
) -> None:
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    if comm.rank == 0:
        monkeypatch.setenv(RANKS_PER_NODE, "none")
    with pytest.raises(CollectiveError, match=f"{RANKS_PER_NODE} must be a number of ranks"):
        allreduce(comm)
