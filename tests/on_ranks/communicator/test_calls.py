"""Every call of a communicator against MPI's own method."""

from __future__ import annotations

import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from communicator_calls import (
    MPI_CALLS,
    PACKED_CALLS,
    SERVED_CALLS,
    allreduce,
    calls_of_mpi,
    check,
)

MPI = pytest.importorskip("mpi4py.MPI")


@pytest.mark.parametrize("name", [*SERVED_CALLS, *PACKED_CALLS])
def test_what_is_ours_gives_what_mpi_gives(
    comm: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    names = calls_of_mpi(monkeypatch)
    check(comm, {**SERVED_CALLS, **PACKED_CALLS}[name])
    assert not names or comm.size == 1


@pytest.mark.parametrize("name", MPI_CALLS)
def test_what_mpi_alone_folds_is_mpis(
    comm: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    names = calls_of_mpi(monkeypatch)
    check(comm, MPI_CALLS[name])
    assert names == ["Allreduce"] * 3 or comm.size == 1


def test_calls_of_both_kinds_alternate(comm: Any) -> None:
    """Interleaved on one communicator, and where one rank gives now an array, now a datatype."""
    for _ in range(3):
        for call in (SERVED_CALLS | MPI_CALLS | PACKED_CALLS).values():
            np.testing.assert_array_equal(call(comm), call(MPI.COMM_WORLD))


def test_a_wrong_argument_is_mpis_own_error(comm: Any) -> None:
    with pytest.raises(MPI.Exception):
        comm.Bcast(np.empty(3), root=comm.size)
    with pytest.raises((TypeError, ValueError)):
        comm.Allreduce("nothing", np.empty(3))
    check(comm, allreduce)


ROOTED: dict[str, Callable[[Any, int], object]] = {
    "Bcast": lambda comm, root: comm.Bcast(np.ones(3), root),
    "Gather": lambda comm, root: comm.Gather(np.ones(3), np.ones((comm.size, 3)), root),
    "Scatter": lambda comm, root: comm.Scatter(np.ones((comm.size, 3)), np.ones(3), root),
    "Reduce": lambda comm, root: comm.Reduce(np.ones(3), np.ones(3), MPI.SUM, root),
    "bcast": lambda comm, root: comm.bcast(1, root),
    "gather": lambda comm, root: comm.gather(1, root),
    "scatter": lambda comm, root: comm.scatter([1] * comm.size, root),
    "reduce": lambda comm, root: comm.reduce(1, MPI.SUM, root),
}


@pytest.mark.parametrize("name", ROOTED)
@pytest.mark.parametrize("how", ["too large", "negative", "no number"])
def test_a_rank_that_alone_names_no_rank_as_root_may_go_on(comm: Any, name: str, how: str) -> None:
    root = {"too large": comm.size, "negative": -5, "no number": None}[how]
    for _ in range(3):
        if comm.rank == comm.size - 1:
            with pytest.raises((MPI.Exception, TypeError)):
                ROOTED[name](comm, root)
        ROOTED[name](comm, 0)
        check(comm, allreduce)


@pytest.mark.parametrize("follows", [False, True])
def test_messages_of_mpi_move_while_a_rank_waits_in_a_collective(
    comm: Any, *, follows: bool
) -> None:
    """A message too large to be sent before it is received, and collectives of MPI under way.

    Also where the communicator goes on with the channel of a freed one.
    """
    if follows:
        comm.Dup().Free()
        part = comm.Dup()
        part.Barrier()
        part.Free()
        comm = comm.Dup()
    x, out = np.full(1 << 20, comm.rank + 1.0), np.empty(1 << 20)
    if comm.rank == 0 and comm.size > 1:
        request = comm.Isend(x, 1)
        comm.Barrier()
        request.Wait()
    elif comm.rank == 1:
        comm.Recv(out, 0)
        assert out[-1] == 1
        comm.Barrier()
    else:
        comm.Barrier()
    started = comm.Iallreduce(x, out)
    if comm.rank == 0:
        comm.Barrier()
    started.Wait()
    if comm.rank:
        comm.Barrier()
    assert out[-1] == sum(range(1, comm.size + 1))
    if follows:
        comm.Free()


def test_threads_use_communicators_of_their_own(comm: Any) -> None:
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("MPI was started for one thread")
    parts = [comm.Dup() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            found = list(pool.map(allreduce, parts))
            np.testing.assert_array_equal(found, [allreduce(MPI.COMM_WORLD)] * 3)
    for part in parts:
        part.Free()


def test_threads_fold_objects_in_any_order(comm: Any) -> None:
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("MPI was started for one thread")
    comms = [comm.Dup() for _ in range(2)]
    for each in comms:
        each.Barrier()
    with ThreadPoolExecutor(2) as pool:
        # mpi4py duplicates each communicator in its first such call.
        order = comms if comm.rank % 2 else comms[::-1]
        calls = [pool.submit(each.allreduce, [comm.rank], op=operator.add) for each in order]
        assert [each.result(60) for each in calls] == [list(range(comm.size))] * 2
    for each in comms:
        each.Free()
