"""Requests that a rank has given up: MPI may still write to what they name."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from time import sleep
from typing import Any

import numpy as np
import pytest
from launcher import python

from mpicoll import RankLost
from mpicoll.backend import Message, Messages, Poll, Stage
from mpicoll.peers.known import Peers
from mpicoll.peers.survivors import Decision

MPI = pytest.importorskip("mpi4py.MPI")


class _Written:
    """Stands for memory that mpi4py does not keep."""


def test_what_mpi_writes_to_outlives_a_wait_that_was_given_up() -> None:
    from mpicoll.mpi.requests import completed, unfinished

    peers = Peers(0, 1)
    peers.deadline = 0.05
    written, landing = _Written(), np.zeros(1, np.int64)
    kept = weakref.ref(written)
    request = MPI.COMM_SELF.Irecv(landing, 0, 77)
    with pytest.raises(RankLost, match="the other ranks, which did not come"):
        completed(request, peers, Stage("a call"), written)
    del written
    assert kept() is not None
    MPI.COMM_SELF.Send(np.ones(1, np.int64), 0, 77)
    unfinished.pop()
    request.Wait()
    assert landing.tolist() == [1]


class _Broken:
    """A request whose test fails in MPI."""

    def Test(self) -> bool:
        raise MPI.Exception(MPI.ERR_OTHER)


def test_an_error_of_mpi_names_the_missing_rank() -> None:
    from mpicoll.mpi.requests import completed, unfinished

    peers = _Others(0, 3)
    peers.absent = lambda *given: [2]  # type: ignore[method-assign]
    with pytest.raises(RankLost, match="waits for rank 2, of which MPI says") as error:
        completed(_Broken(), peers, Stage("a call"))  # type: ignore[arg-type]
    unfinished.pop()
    assert error.value.rank == 2


def test_one_thread_at_a_time_tests_a_dropped_request() -> None:
    """MPI frees a request for the thread whose test completes it."""
    from mpicoll.mpi.requests import _dropped, _release_dropped

    inside, go_on, tests = threading.Event(), threading.Event(), []

    def test() -> bool:
        tests.append(threading.current_thread())
        inside.set()
        return go_on.wait(30)

    _dropped.append((test, None))
    thread = threading.Thread(target=_release_dropped)
    thread.start()
    assert inside.wait(30)
    _release_dropped()
    go_on.set()
    thread.join()
    assert tests == [thread]
    assert not _dropped


class _Inside:
    """Takes the names of the calls that are made inside of MPI."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, call: Callable[..., Any], *args: Any) -> Any:
        self.names.append(getattr(getattr(call, "func", call), "__name__", ""))
        return call(*args)

    def comes(self, test: Callable[[], bool], yields: int) -> bool:
        return any(self(test) for _ in range(yields))


def ends(messages: Messages) -> list[Poll]:
    return [end for end in messages.ends if isinstance(end, Poll)]


def test_every_call_that_may_stay_inside_of_mpi_is_watched() -> None:
    from mpicoll.mpi.transport import MpiTransport

    transport = MpiTransport(MPI.COMM_SELF)
    inside = transport.peers.inside = _Inside()

    def names() -> list[str]:
        found = [each for each in inside.names if each]
        inside.names.clear()
        return found

    x, y = np.arange(4.0), np.zeros(4)
    for many in (1, 3):
        messages = [Message(0, each) for each in (x, y, x, y)[: 2 * many : 2]]
        received = [Message(0, np.zeros(4)) for _ in messages]
        round = transport.messages(messages, received, 5, Stage("a call"))
        for start in round.starts:
            start()
        for poll in ends(round):
            while not poll.test():
                pass
        round.free()
        assert {*names()} == ({"Start", "Test"} if many == 1 else {"Startall", "Testall"})
    requests = [transport.irecv(y, 0, 3), transport.isend(x, 0, 3)]
    for each in requests:
        each.wait()
    assert {*names()} == {"Irecv", "Isend", "Test"} and y.tolist() == x.tolist()
    transport.exchange(1, int)
    assert {*names()} == {"Iallreduce", "Iallgather", "Iallgatherv", "Test"}
    transport.close()


class _Others(Peers):
    """Two ranks, of which the other has gone or not."""

    gone = False

    def have_gone(self, ranks: Sequence[int], operation: int) -> bool:
        return self.gone and list(ranks) == [1]


@pytest.mark.parametrize(("gone", "why"), [(False, "did not come in 0.[2-9]"), (True, "will not")])
def test_a_loop_of_tests_ends(gone: bool, why: str) -> None:
    """At the deadline, or before it where the rank has gone; the buffer may still be written to."""
    from mpicoll.mpi.requests import of_message, unfinished

    peers, landing = _Others(0, 2), np.zeros(1, np.int64)
    peers.gone, peers.deadline = gone, 100.0 if gone else 0.2
    request = of_message(
        MPI.COMM_SELF.Irecv(landing, 0, 78), landing, peers, "receiving a message", 1
    )
    with pytest.raises(RankLost, match=f"rank 0 waits for rank 1, which {why}"):  # noqa: PT012
        while not request.test():
            sleep(0.01)
    assert unfinished.pop() is request
    MPI.COMM_SELF.Send(np.ones(1, np.int64), 0, 78)
    while not request.test():
        sleep(0.01)
    assert (landing.tolist(), peers.awaited_rank) == ([1], None)


def test_a_round_of_messages_sees_a_rank_that_has_gone() -> None:
    from mpicoll.mpi.transport import MpiTransport

    transport = MpiTransport(MPI.COMM_SELF)
    peers = _Others(0, 2)
    transport.peers = peers
    landing = np.zeros(1, np.int64)
    messages = transport.messages([], [Message(0, landing)], 3, Stage("ring", 1, 2))
    try:
        for start in messages.starts:
            start()
        peers.gone = True
        messages.look()  # it waits for rank 0, which is there
        transport.peers.have_gone = lambda ranks, operation: True  # type: ignore[method-assign]
        with pytest.raises(RankLost, match="ring, round 1 of 2: rank 0 waits for rank 0"):
            messages.look()
        transport.plans_comm.Send(np.ones(1, np.int64), 0, 3)
        [poll] = ends(messages)
        assert poll.test()
        messages.look()  # what has come before the rank went counts
    finally:
        messages.free()
        transport.close()


def test_each_attempt_to_make_a_group_of_survivors_has_a_communicator_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that Open MPI is still asked to make a group from makes no other."""
    from mpicoll.mpi import transport

    found = []

    def within(peers: Peers, what: str, create: Any, left: object = None) -> Any:
        found.append(create.func.__self__)
        return create()

    def go_on(others: object, place: object, meet: Any, first: int) -> Any:
        for attempt in range(3):
            meet(Decision((0,), ""), attempt)
        return None, 3

    group = transport.MpiTransport(MPI.COMM_SELF)
    monkeypatch.setattr("mpicoll.peers.survivors.go_on", go_on)
    with monkeypatch.context() as patched:
        patched.setattr(transport, "within", within)
        patched.setattr(transport, "MpiTransport", lambda part, parent: None)
        group.survive(lambda made: None)
    assert len({each.handle for each in found}) == 3
    group.close()


def test_a_group_is_freed_after_mpi_has_been_finalized() -> None:
    """MPI ends a process that calls it then, and its exit status would be lost."""
    code = """if True:
        import sys
        import mpicoll
        import numpy as np
        from mpi4py import MPI
        with mpicoll.world() as c:
            plan = c.plan("allreduce", np.ones(9))
            plan.run()
            MPI.Finalize()
            plan.free()
        sys.exit(3)
    """
    done = python("-c", code)
    assert done.returncode == 3, done.stdout


CALLING = """
from mpi4py import MPI
from mpicoll.mpi.requests import Resources, calls_users

kept, dropped = Resources(), Resources()
found = [calls_users()]
for each in (kept, dropped):
    each.add_op(MPI.Op.Create(lambda source, target, datatype: None))
found.append(calls_users())
kept.free()
found.append(calls_users())
del each, dropped
found.append(calls_users())
assert found == [False, True, True, False], found
"""


def test_it_is_known_while_mpi_may_call_functions_of_users() -> None:
    """No thread that lets MPI go on may be what calls them."""
    done = python("-c", CALLING)
    assert done.returncode == 0, done.stdout
