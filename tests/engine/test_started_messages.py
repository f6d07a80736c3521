"""Started plans with messages: they advance as they are tested or waited for."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from weakref import ref

import pytest

from mpicoll.backend import Messages, Poll, Stage
from mpicoll.engine.compiled import Table
from mpicoll.engine.plan import compiled
from mpicoll.errors import RankLost
from mpicoll.lowering.instructions import Complete, Post, SharedProgram
from mpicoll.memory.numpy_arrays import NumpyArrays
from mpicoll.memory.slots import SharedResources
from mpicoll.notation.elements import reduce_op

LONG = 30


class Peer:
    """A peer whose messages come when they are let in."""

    arrays, shared = NumpyArrays(), None

    def __init__(
        self, rounds: int, error: Exception | None = None, until: Callable[[], bool] | None = None
    ) -> None:
        self.come, self.bound = [threading.Event() for _ in range(rounds)], 0
        self.posted: list[int] = []
        self.error, self.until = error, until
        program = SharedProgram([Post((), ()), Complete()] * rounds, [1, 1] * rounds)
        self.resources = SharedResources(deadline=lambda: LONG)
        table = Table(self, program, {}, self.resources, "float32", reduce_op("sum"), "a call")  # type: ignore[arg-type]
        table.fill()
        self.plan = compiled("a", "b", None, table)

    def messages(self, sends: object, receives: object, tag: int, stage: Stage) -> Messages:
        number, self.bound = self.bound, self.bound + 1
        come, posted, error, until = self.come[number], self.posted, self.error, self.until

        def test() -> bool:
            if error is not None:
                raise error
            return come.is_set() if until is None else until()

        def post() -> None:
            posted.append(number)

        return Messages((post,), (Poll(test, come.wait),), lambda: None)


def test_a_test_posts_the_next_round() -> None:
    peer = Peer(3)
    request = peer.plan.start()
    for number, each in enumerate(peer.come):
        assert not request.test()
        assert peer.posted == list(range(number + 1))
        each.set()
    assert request.test()


def test_a_run_that_is_dropped_goes_on_while_its_rank_waits_for_another() -> None:
    dropped = Peer(2)
    other = Peer(1, until=lambda: dropped.posted == [0, 1])
    dropped.plan.start()
    for each in dropped.come:
        each.set()
    other.plan.start().wait()


def test_an_error_is_raised_where_it_is_waited_for() -> None:
    peer = Peer(2, RankLost("rank 1 has ended"))
    request = peer.plan.start()
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
