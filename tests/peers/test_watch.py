"""Waits for a library that only it can end, or that ask other ranks: how long they last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import call
from pathlib import Path
from threading import Barrier, Event
from time import monotonic, sleep
from typing import Any, cast
from weakref import WeakSet

import pytest
from launcher import LIMIT, mpirun, ranks

from mpicoll import RankLost
from mpicoll.backend import Stage
from mpicoll.engine._compiled import Counted
from mpicoll.machine import waited
from mpicoll.machine.background import background
from mpicoll.peers import watch
from mpicoll.peers.known import Peers
from mpicoll.peers.polling import in_thread, wait_polling

PROGRAM = """
import time
import numpy as np
import mpicoll

def elsewhere():
    time.sleep(100)

with mpicoll.world() as c:
    x = np.ones(8)
    plan = c.plan("allreduce", x, algorithm="native")
    for step in range(50):
        plan.run()
        time.sleep(0.05)
    c.exchange(None)
    c.deadline = 5
    elsewhere() if c.rank == 1 else plan.run()
"""


@pytest.mark.launches
def test_a_process_that_waits_in_mpi_ends(tmp_path: Path) -> None:
    if mpirun() is None:
        pytest.skip("no mpirun")
    done = ranks(2, "-c", PROGRAM, environment={"MPICOLL_FLIGHT_DIR": str(tmp_path)})
    assert done.returncode not in (0, -9), done.stdout
    assert "MPI's own allreduce cannot be left, so this process ends" in done.stdout
    assert "rank 0 waits for" in done.stdout
    assert "Rank 1 keeps the others waiting." in done.stdout
    assert "in elsewhere" in done.stdout


def test_a_call_that_never_returns_ends_the_process(capfd: pytest.CaptureFixture[str]) -> None:
    """As MPICH's send to a process that has ended, which it tries again for ever."""
    peers, has_left, may_return = Peers(0, 2), Event(), Event()
    peers.deadline = 0.05
    peers.inside = watch.guarded(call, peers, "a call inside of MPI", has_left.set)
    try:
        background(partial(peers.inside, may_return.wait), "stays")
        assert has_left.wait(LIMIT)
    finally:
        may_return.set()
    assert "a call inside of MPI cannot be left, so this process ends" in capfd.readouterr().err


def test_a_busy_thread_hides_none_that_stays_in_a_call() -> None:
    peers, has_left, may_return, is_inside = Peers(0, 2), Event(), Event(), Event()
    peers.deadline = 0.05

    def stay() -> None:
        is_inside.set()
        assert may_return.wait(LIMIT)

    inside = watch.guarded(call, peers, "a call inside of MPI", has_left.set)
    try:
        stays = background(partial(inside, stay), "stays")
        assert is_inside.wait(LIMIT)
        until = monotonic() + LIMIT
        while not has_left.is_set() and monotonic() < until:
            inside(sleep, 0.001)
    finally:
        may_return.set()
    assert has_left.is_set()
    stays.result(LIMIT)
    assert cast(Any, inside).oldest == 0


def test_a_test_is_made_twice_between_yields() -> None:
    """And counted, and none is made once it holds."""
    made = list[int]()
    counted = Counted(call)

    def test(least: int) -> bool:
        made.append(counted.oldest)
        return len(made) >= least

    assert counted.comes(partial(test, 4), 2) and made == [1, 2, 3, 4]
    assert not counted.comes(partial(test, 9), 2) and made[4:] == [5, 6, 7, 8]
    with pytest.raises(ValueError, match="no number"):
        counted.comes(partial(int, "no number"), 1)
    assert counted.oldest == 0


def test_more_threads_than_are_watched_make_calls() -> None:
    counted, barrier = Counted(call), Barrier(13)
    numbers = [background(partial(counted, barrier.wait, LIMIT), "waits") for _ in range(12)]
    counted(barrier.wait, LIMIT)
    for each in numbers:
        each.result(LIMIT)
    assert counted.oldest == 0


def test_calls_that_are_gone_are_watched_no_more() -> None:
    peers, calls = Peers(0, 2), WeakSet[Callable[..., object]]()
    for number in range(100):
        made = watch.guarded(lambda number=number: number, peers, "a call", sleep)
        calls.add(made)
        assert made() == number
    peers.inside = watch.guarded(call, peers, "a call", sleep)
    calls.add(peers.inside)
    del peers, made
    until = monotonic() + LIMIT
    while len(calls) and monotonic() < until:  # the thread may be looking at one
        sleep(0.01)
    assert not calls


def test_asking_the_other_ranks_counts_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank of a host that has vanished answers after a second, as often as it is asked."""
    now, asked = [0.0], [0.0]

    def ask() -> None:
        now[0] += 0.9
        asked[0] += 0.9

    class Slow(Peers):
        def have_gone(self, ranks: Sequence[int], operation: int) -> bool:
            ask()
            return False

    def missing() -> list[int]:
        ask()
        return [1]

    def test() -> bool:
        now[0] += 0.05
        return False

    monkeypatch.setattr(waited, "monotonic", lambda: now[0])
    peers = Slow(0, 2)
    peers.deadline = 20
    with pytest.raises(RankLost, match=r"rank 1, which did not come in 2[01]"):
        wait_polling(test, missing, Stage("a call"), peers)
    assert asked[0] > 5 and now[0] < 26


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (Event().wait, RankLost, "making a group: rank 0 waits for rank 1, which did not come in"),
        (lambda: int("x"), ValueError, "invalid literal"),
    ],
)
def test_a_call_that_can_only_block_is_left(
    call: Callable[[], object], error: type[Exception], said: str
) -> None:
    peers, stage = Peers(0, 2), Stage("making a group")
    peers.deadline = 0.1
    with pytest.raises(error, match=said):
        in_thread(call, lambda: [1], stage, peers)
    assert in_thread(lambda: 7, lambda: [1], stage, peers) == 7


def test_what_comes_too_late_is_undone() -> None:
    """A group that its ranks have given up, and that one of them gets in the end."""
    peers, undone, may_end = Peers(0, 2), list[object](), Event()
    peers.deadline = 0.05
    with pytest.raises(RankLost):
        in_thread(may_end.wait, lambda: [1], Stage("making a group"), peers, undone.append)
    assert not undone
    may_end.set()
    until = monotonic() + LIMIT
    while not undone and monotonic() < until:
        sleep(0.01)
    assert undone == [True]
