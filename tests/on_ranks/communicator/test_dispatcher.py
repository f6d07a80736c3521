"""The choice between our calls and MPI's: what ranks remember, count and are told by variables."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest
from communicator_calls import (
    allreduce,
    check,
    gatherv,
    gatherv_counts_everywhere,
    long_double,
    mpi_methods,
    signatures,
)

MPI = pytest.importorskip("mpi4py.MPI")
from mpicoll.errors import ArgumentError  # noqa: E402
from mpicoll.mpi.communicator import dispatcher, state  # noqa: E402
from mpicoll.mpi.communicator.state import FORCED  # noqa: E402


def test_counts_beside_no_array_are_found(comm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check(comm, gatherv_counts_everywhere)
    asked: list[str] = []
    monkeypatch.setattr(
        dispatcher.Dispatcher, "_dispatch", lambda own, given, differs: asked.append(given)
    )
    gatherv_counts_everywhere(comm)
    assert not asked


def test_an_array_that_pickle_has_restored_is_found_as_others_are(
    comm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its dtype is another object; so is that of every array which MPI has moved as an object."""
    x, longlong = pickle.loads(pickle.dumps(np.ones(5))), np.ones(5, "q")
    asked: list[str] = []
    for _ in range(2):
        for given in (x, longlong):
            comm.Allreduce(given, np.empty_like(given))
        monkeypatch.setattr(
            dispatcher.Dispatcher, "_dispatch", lambda own, given, differs: asked.append(given)
        )
    assert not asked
    swapped, out = np.ones(5, ">f8"), np.zeros(5)
    if comm.size > 1:
        comm.Allreduce(swapped, out)
        assert asked


def test_counts_may_change_in_every_call(monkeypatch: pytest.MonkeyPatch, comm: Any) -> None:
    """One rank has gaps now and then; after many misses the methods are MPI's, on all ranks."""
    monkeypatch.setattr(dispatcher, "UNKNOWN_COUNTS", 8)
    draw = random.Random(1)
    for turn in range(24):
        counts = [[draw.randrange(3) for _ in range(comm.size)] for _ in range(comm.size)]
        mine, theirs = counts[comm.rank], [each[comm.rank] for each in counts]
        gap = turn % 5 == 3 and comm.rank == 0
        starts = [sum(theirs[:rank]) + rank * gap for rank in range(comm.size)]
        x, out = (
            np.repeat(np.arange(comm.size) + turn, mine),
            np.zeros(sum(theirs) + comm.size, int),
        )
        comm.Alltoallv([x, mine], [out, theirs, starts, MPI.INT64_T])
        for start, count in zip(starts, theirs, strict=True):
            assert (out[start : start + count] == comm.rank + turn).all()
    check(comm, gatherv)
    assert mpi_methods(comm) in (None, {"alltoallv"})


def test_a_rank_that_need_not_wait_counts_with_the_others(
    monkeypatch: pytest.MonkeyPatch, comm: Any
) -> None:
    """Ranks between the root and the last one know a call that is MPI's, and go on at once."""
    monkeypatch.setattr(dispatcher, "UNKNOWN_COUNTS", 8)
    monkeypatch.setattr(dispatcher.Dispatcher, "_plan", lambda own, arguments: None)
    for turn in (1, 1, 1, *range(1, 16)):
        counts = [5] * (comm.size - 1) + [turn]
        out = np.zeros(sum(counts))
        x = np.full(counts[comm.rank], comm.rank + turn)
        comm.Gatherv(x.astype(float), [out, counts] if comm.rank == 0 else None, 0)
        comm.Allreduce(MPI.IN_PLACE, out)
        np.testing.assert_array_equal(out, np.repeat(np.arange(comm.size) + turn, counts))
    assert mpi_methods(comm) in (None, {"gatherv"})


def test_ranks_keep_calls_of_their_own(comm: Any) -> None:
    """One rank has met so many calls that it keeps no other, not even that one is left to MPI."""
    check(comm, long_double)
    if comm.size > 1 and comm.rank == 0:
        table = comm.Get_attr(state._key()).dispatcher.table
        for root in range(10_000):
            table.add_function(("bcast", None, None, None, root, None, None), None, 0, 0)
    for call in (long_double, allreduce, long_double, allreduce):
        check(comm, call)


def test_a_variable_forces_an_algorithm(monkeypatch: pytest.MonkeyPatch, comm: Any) -> None:
    monkeypatch.setenv(FORCED, "allreduce=ring")
    check(comm, allreduce)
    found = [each.plan.algorithm for each in signatures(comm) if each.plan]
    assert found == (["ring"] if comm.size > 1 else [])


def test_a_wrong_variable_is_an_error_on_every_rank(
    monkeypatch: pytest.MonkeyPatch, comm: Any
) -> None:
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    monkeypatch.setenv(FORCED, "allreduce=ring" if comm.rank else "allreduce=rnig")
    with pytest.raises(ArgumentError, match=FORCED):
        comm.Barrier()
