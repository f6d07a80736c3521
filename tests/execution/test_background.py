"""The thread that advances what is under way: in its turns, until it is taken back."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from weakref import ref

import pytest

from mpicoll.backend import Messages
from mpicoll.errors import RankLost
from mpicoll.execution import background
from mpicoll.execution.background import Background
from mpicoll.execution.plan import scheduled
from mpicoll.execution.runs import BoundRound

LONG = 30


def eventually(there: Callable[[], bool]) -> bool:
    end = time.monotonic() + LONG
    while not there() and time.monotonic() < end:
        time.sleep(1e-3)
    return there()


class Resources:
    under_way = failed = False

    def lost(self, position: int, what: str) -> RankLost | None: ...

    def fail(self, error: BaseException) -> None:
        self.failed = True

    def free(self) -> None: ...

    def deadline(self) -> float:
        return LONG


class Peer:
    """A peer whose messages come when they are let in."""

    def __init__(self, rounds: int, error: Exception | None = None) -> None:
        self.come = [threading.Event() for _ in range(rounds)]
        self.posted: list[tuple[int, str]] = []
        self.error = error
        rows = [self._round(number) for number in range(rounds)]
        self.plan = scheduled("a", "b", None, [lambda: rows], [], Resources(), by_itself=True)

    def has_posted(self, count: int) -> bool:
        return len(self.posted) == count

    def _round(self, number: int) -> BoundRound:
        def test() -> bool:
            if self.error is not None:
                raise self.error
            return self.come[number].is_set()

        def post() -> None:
            self.posted.append((number, threading.current_thread().name))

        def wait() -> None:
            self.come[number].wait()

        return BoundRound((), Messages((post,), (wait,), test, lambda: None))


@pytest.mark.parametrize("pause", [0.0, 3 * background._AWAKE])
def test_later_rounds_are_posted_while_the_rank_computes(pause: float) -> None:
    """Also by a thread that has gone to sleep since it was last needed."""
    for _ in range(3):
        peer = Peer(3)
        request = peer.plan.start()
        assert [number for number, _ in peer.posted] == [0]
        for number, each in enumerate(peer.come):
            each.set()
            assert eventually(partial(peer.has_posted, min(number + 2, 3)))
        request.wait()
        here = threading.current_thread().name
        assert [name == here for _, name in peer.posted] == [True, False, False]
        time.sleep(pause)


def test_a_run_that_is_dropped_goes_on() -> None:
    peer = Peer(2)
    peer.plan.start()
    for each in peer.come:
        each.set()
    assert eventually(partial(peer.has_posted, 2))


def test_an_error_is_raised_where_it_is_waited_for() -> None:
    peer = Peer(2, RankLost("rank 1 has ended"))
    request = peer.plan.start()
    assert eventually(lambda: not background._threads[0].given)
    with pytest.raises(RankLost, match="rank 1 has ended"):
        request.wait()


def test_a_run_that_is_through_keeps_nothing_of_its_plan() -> None:
    """A plan's tag and memory are others' once it is gone, without the garbage collector."""
    row = BoundRound((), Messages((), (), lambda: False, lambda: None))
    resources = Resources()
    plan = scheduled("a", "b", None, [lambda: [row]], [], resources, by_itself=True)
    plan.start().wait()
    gone = ref(resources)
    gc.disable()
    try:
        del plan, resources
        assert gone() is None
    finally:
        gc.enable()


class Something(Background):
    """Something that a function advances."""

    def __init__(self, step: Callable[[], bool]) -> None:
        super().__init__()
        self.step = step

    def go_on(self) -> bool:
        return self.step()

    def mark(self) -> object:
        return None


def test_nothing_is_touched_that_was_taken_back() -> None:
    inside, go_on, looks = threading.Event(), threading.Event(), []

    def advance() -> bool:
        looks.append(time.monotonic())
        inside.set()
        go_on.wait(LONG)
        return False

    taken = Something(advance)
    taken.give()
    assert inside.wait(LONG)
    threading.Timer(0.05, go_on.set).start()
    taken.take_back()
    assert go_on.is_set()
    count = len(looks)
    time.sleep(0.05)
    assert len(looks) == count


def test_one_that_is_held_does_not_keep_the_others_waiting() -> None:
    held, other = Something(lambda: False), threading.Event()
    after = Something(lambda: bool(other.set()) or True)
    with held.lock:
        held.give()
        after.give()
        assert other.wait(LONG)
    held.take_back()


def test_a_forked_child_has_nothing_to_advance() -> None:
    waiting = Something(lambda: False)
    waiting.give()
    child = os.fork()
    if child == 0:
        mine = threading.Event()
        Something(lambda: bool(mine.set()) or True).give()
        os._exit(0 if mine.wait(LONG) and len(background._threads) == 1 else 1)
    waiting.take_back()
    assert os.waitpid(child, 0)[1] == 0
