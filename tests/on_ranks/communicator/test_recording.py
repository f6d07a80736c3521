"""Calls in the flight recorder: ours and MPI's own, in the same order on all ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_native_id

import numpy as np
import pytest
from communicator_calls import local_array

MPI = pytest.importorskip("mpi4py.MPI")
from mpicoll import Comm  # noqa: E402
from mpicoll.flight import reader  # noqa: E402
from mpicoll.flight.layout import Outcome  # noqa: E402
from mpicoll.mpi.communicator import state  # noqa: E402


def test_our_calls_and_mpis_own_are_recorded_in_the_same_order(comm: Comm) -> None:
    if comm.size == 1:
        pytest.skip("a rank alone records nothing")
    for _ in range(3):
        comm.Allreduce(local_array(comm), np.empty(3))
    op = MPI.Op.Create(lambda left, right, dtype: None, commute=True)
    comm.Reduce(local_array(comm), np.empty(3), op)
    op.Free()
    comm.Iallreduce(local_array(comm), np.empty(3)).Wait()
    comm.Barrier_init().Free()
    with pytest.raises((MPI.Exception, TypeError)):
        comm.Ibcast(3)
    serving = state.find_state(comm)
    assert serving is not None and serving.flight is not None
    flight = serving.flight
    dump = reader.read(flight.recorder.path)
    (group,) = {
        entry.group for entry in dump.entries if entry.call.collective == "barrier_init"
    }  # fmt: skip
    entries = [entry for entry in dump.entries if entry.group == group]
    outcomes = [(entry.sequence, entry.call.collective, entry.outcome) for entry in entries]
    assert comm.allgather(outcomes) == [outcomes] * comm.size
    calls = [entry.call for entry in entries]
    assert [call for call in calls if call.collective == "allreduce"][-1].algorithm not in (
        "", "native",
    )  # fmt: skip
    assert ("reduce", "native") in [(call.collective, call.algorithm) for call in calls]
    issued = [entry for entry in entries if entry.outcome is Outcome.ISSUED]
    assert [entry.call.collective for entry in issued] == ["iallreduce", "barrier_init"]
    assert {entry.location.file for entry in entries if entry.location} == {__file__}
    assert get_native_id() in {sample.thread for sample in dump.samples}


def receive_by_tests(comm: Comm, values: np.ndarray) -> None:
    request = comm.Irecv(values, 0)
    while not request.Test():
        pass


def receive_by_probes(comm: Comm, values: np.ndarray) -> None:
    while not comm.Iprobe(0):
        pass
    comm.Recv(values, 0)


@pytest.mark.parametrize("receive", [MPI.Comm.Recv, receive_by_tests, receive_by_probes])
def test_samples_have_the_time_in_messages(comm: Comm, receive: Callable[..., None]) -> None:
    if comm.size == 1:
        pytest.skip("a rank alone records nothing")
    comm.Allreduce(local_array(comm), np.empty(3))
    serving, values = state.find_state(comm), np.zeros(8)
    assert serving is not None and serving.flight is not None
    path, thread = serving.flight.recorder.path, get_native_id()
    before = [sample for sample in reader.read(path).samples if sample.thread == thread]
    comm.Barrier()
    if comm.rank == 0:
        time.sleep(0.3)
    for peer in range(1, comm.size) if comm.rank == 0 else ():
        comm.Send(values, peer)
    if comm.rank:
        receive(comm, values)
    dump = reader.read(path)
    assert dump.message == 0 and dump.longest > 0
    samples = [sample for sample in dump.samples if sample.thread == thread]
    length = samples[-1].messages - before[-1].messages
    assert (length > 100_000_000) == (comm.rank > 0)
    places = {sample.location for sample in samples if sample.at > before[-1].at} - {0}
    files = {dump.locations[place].file for place in places}
    assert comm.rank == 0 or files == {__file__}
