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

from mpicoll.backend import Messages, Poll, Stage
from mpicoll.engine import background
from mpicoll.engine.background import Background
from mpicoll.engine.compiled import Table
from mpicoll.engine.plan import compiled
from mpicoll.errors import RankLost
from mpicoll.lowering.instructions import Complete, Post, SharedProgram
from mpicoll.memory.numpy_arrays import NumpyArrays
from mpicoll.memory.slots import SharedResources
from mpicoll.notation.elements import reduce_op

LONG = 30


def eventually(there: Callable[[], bool]) -> bool:
    end = time.monotonic() + LONG
    while not there() and time.monotonic() < end:
        time.sleep(1e-3)
    return there()


class Peer:
    """A peer whose messages come when they are let in."""

    arrays, shared = NumpyArrays(), None

    def __init__(self, rounds: int, error: Exception | None = None) -> None:
        self.come, self.bound = [threading.Event() for _ in range(rounds)], 0
        self.posted: list[tuple[int, str]] = []
        self.error = error
        program = SharedProgram([Post((), ()), Complete()] * rounds, [1, 1] * rounds)
        self.resources = SharedResources(deadline=lambda: LONG)
        table = Table(self, program, {}, self.resources, "float32", reduce_op("sum"), "a call")  # type: ignore[arg-type]
        table.fill()
        self.plan = compiled("a", "b", None, table, by_itself=True)

    def has_posted(self, count: int) -> bool:
        return len(self.posted) == count

    def messages(self, sends: object, receives: object, tag: int, stage: Stage) -> Messages:
        number, self.bound = self.bound, self.bound + 1
        come, posted, error = self.come[number], self.posted, self.error

        def test() -> bool:
            if error is not None:
                raise error
            return come.is_set()

        def post() -> None:
            posted.append((number, threading.current_thread().name))

        return Messages((post,), (Poll(test, come.wait),), lambda: None)


@pytest.mark.parametrize("pause", [0.0, 3 * background.YIELD_SECONDS])
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
    assert eventually(lambda: not background._threads[0].tasks)
    with pytest.raises(RankLost, match="rank 1 has ended"):
        request.wait()


def test_a_run_that_is_complete_keeps_nothing_of_its_plan() -> None:
    """Other plans take its tag and memory once it is dropped, without the garbage collector."""
    peer = Peer(1)
    peer.come[0].set()
    peer.plan.start().wait()
    resources = ref(peer.resources)
    gc.disable()
    try:
        del peer
        assert resources() is None
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


def test_a_turn_under_way_skips_what_was_taken_back() -> None:
    """The thread is in another task of the same turn meanwhile, and two would test one request."""
    all_given, inside, go_on, ended = (threading.Event() for _ in range(4))
    turns, looks = [], []

    def hold() -> bool:
        turns.extend([None] * all_given.is_set())
        if len(turns) == 2:  # this turn has begun after all were given
            inside.set()
            go_on.wait(LONG)
        return len(turns) == 2

    taken = Something(lambda: bool(looks.append(None)))
    last = Something(lambda: go_on.is_set() and bool(ended.set() or True))
    for task in (Something(hold), taken, last):
        task.give()
    all_given.set()
    assert inside.wait(LONG)
    taken.take_back()
    count = len(looks)
    go_on.set()
    assert ended.wait(LONG)
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
