"""Calls that were issued, which the progress thread runs: the queue of the compiled executor."""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

import mpicoll
from mpicoll import ArgumentError, Collectives, Disagreement, RankLost
from mpicoll.engine import extension
from mpicoll.memory.mailbox import _DIGEST

SMALL, LARGE = 5, 600_000
"""Elements: the last ones move so much that the progress thread copies all of it."""
FLAT, INPUT_ROWS, OUTPUT_ROWS, ROWS = range(4)
LONG = 30
"""Seconds that a computation takes where it is in vain."""


def known(name: str, x: Any, out: Any, rows: int = FLAT, root: int = 0) -> tuple[Any, ...]:
    return name, x, out, "sum", root, None, "auto", rows


def opened(c: Collectives, *calls: tuple[Any, ...]) -> Any:
    """Return a queue that knows some calls, as they have run once."""
    for call in calls:
        c._call(*call[:-1])
    return extension.queue(c.plans.table, c.size)


@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("size", [2, 3])
def test_issued_calls_go_on_while_their_rank_computes(size: int, count: int) -> None:
    def run(c: Collectives) -> None:
        x = np.ones(count)
        call = known("allreduce", x, x)
        queue = opened(c, call)
        assert queue.issue(*call) == 1
        end = time.monotonic() + LONG
        while queue.completed < 1 and time.monotonic() < end:
            sum(range(1000))
        assert (x == size * size).all()

    mpicoll.threads(size)(run)


def test_calls_complete_in_the_order_of_issue() -> None:
    def run(c: Collectives) -> None:
        x, y, z = np.zeros(SMALL), np.zeros(LARGE), np.zeros((1000, SMALL))
        calls = [known("allreduce", x, x), known("broadcast", y, y)]
        queue = opened(c, *calls)
        x[:], z[:] = 1, 1
        y[:] = 1 + c.rank
        issued = [queue.issue(*known("allreduce", each, each)) for each in z]
        issued += [queue.issue(*calls[index % 2]) for index in range(20)]
        assert issued == list(range(1, 1021)) and queue.issued == 1020
        assert queue.complete(500)
        assert queue.completed >= 500 and (z[:500] == 2).all()
        assert not queue.run(*calls[0]) or queue.completed == 1020
        assert queue.complete(1020)
        assert (z == 2).all() and (x[0] in (2**10, 2**11)) and (y == 1).all()
        assert queue.run(*calls[0])

    mpicoll.threads(2)(run)


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("allgather", OUTPUT_ROWS),
        ("gather", OUTPUT_ROWS),
        ("scatter", INPUT_ROWS),
        ("reduce_scatter", INPUT_ROWS),
        ("alltoall", ROWS),
    ],
)
def test_rows_may_lie_apart(name: str, rows: int, blocks: bool) -> None:
    def run(c: Collectives) -> None:
        size = c.size
        x = np.arange(float(size * SMALL)) + 100 * c.rank
        x = x.reshape(size, SMALL) if rows & INPUT_ROWS else x[:SMALL]
        out = np.empty((size, SMALL) if rows & OUTPUT_ROWS else SMALL)
        given = None if name == "scatter" and c.rank else x
        wanted = None if name == "gather" and c.rank else out
        queue = opened(c, known(name, given, wanted, rows))
        expected = out.copy()
        apart = [np.empty(SMALL) for _ in range(size)] if rows & OUTPUT_ROWS else np.empty(SMALL)
        given = given if given is None or x.ndim == 1 else tuple(each.copy() for each in given)
        call = known(name, given, wanted if wanted is None else apart, rows)
        assert queue.run(*call) if blocks else queue.complete(queue.issue(*call))
        if wanted is not None:
            np.testing.assert_array_equal(apart, expected)

    mpicoll.threads(3)(run)


@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("place", ["its own row", "another row", "across two rows"])
def test_the_input_may_be_one_of_the_rows(place: str, count: int) -> None:
    """What overlaps it is written when it has been read."""

    def run(c: Collectives) -> None:
        whole = np.empty((c.size, count))
        queue = opened(c, known("allgather", np.empty(count), whole, OUTPUT_ROWS))
        memory = np.empty((c.size + 1, count))
        apart = [memory[each + (each == c.size - 1)] for each in range(c.size)]
        if place == "across two rows":
            x = memory.reshape(-1)[count // 2 :][:count]
        else:
            x = apart[(c.rank + (place == "another row")) % c.size]
        for turn in range(3):
            x[:] = turn + 10 * c.rank
            assert queue.run(*known("allgather", x, apart, OUTPUT_ROWS))
            for rank, row in enumerate(apart):
                assert (row == turn + 10 * rank).all()

    mpicoll.threads(3)(run)


def test_what_is_not_known_is_left_to_python() -> None:
    def run(c: Collectives) -> None:
        x = np.ones(SMALL)
        queue = opened(c, known("allreduce", x, x))
        for other in (np.ones(SMALL + 1), np.ones(2 * SMALL)[::2], np.ones(SMALL, "f4"), [x, x]):
            assert not queue.run(*known("allreduce", other, other))
            assert not queue.issue(*known("allreduce", other, other))
        queue.held = True
        assert not queue.issue(*known("allreduce", x, x))
        queue.held = False
        assert queue.run(*known("allreduce", x.reshape(1, SMALL), x))

    mpicoll.threads(2)(run)


def test_different_calls_are_left_to_python_which_refuses_them() -> None:
    def run(c: Collectives) -> None:
        x, y = np.ones(SMALL), np.ones(SMALL + 1)
        calls = known("allreduce", x, x), known("allreduce", y, y)
        queue = opened(c, *calls)
        first = queue.issue(*calls[c.rank])
        second = queue.issue(*calls[0])
        assert not queue.complete(second) and queue.completed == first - 1
        with pytest.raises((Disagreement, ArgumentError)):
            c._call(*calls[c.rank][:-1])
        queue.skip()
        while not queue.complete(second):
            c._call(*calls[0][:-1])
            queue.skip()
        assert (x == 4).all()
        with pytest.raises(RuntimeError, match="left to Python"):
            queue.skip()
        with pytest.raises(RuntimeError, match="no such call"):
            queue.complete(second + 1)

    mpicoll.threads(2)(run)


def test_a_call_ends_with_the_error_that_names_who_is_missing() -> None:
    def run(c: Collectives) -> None:
        x = np.ones(SMALL)
        queue = opened(c, known("allreduce", x, x))
        c.deadline = 0.1
        if c.rank == 0:
            number = queue.issue(*known("allreduce", x, x))
            with pytest.raises(RankLost, match="rank 1"):
                queue.complete(number)
            assert queue.completed == number

    mpicoll.threads(2)(run)


def test_a_thread_that_waits_lets_another_finish_issuing() -> None:
    """Both would drive the queue: a call that moves much is advanced without Python's lock."""

    def run(c: Collectives) -> None:
        x = np.zeros(10_000)
        call = known("allreduce", x, x)
        queue = opened(c, call)
        issuing = Thread(target=lambda: [queue.issue(*call) for _ in range(300)])
        issuing.start()
        while issuing.is_alive() or queue.completed < queue.issued:
            assert queue.complete(queue.issued)
        assert queue.completed == 300

    mpicoll.threads(2)(run)


def test_nobody_else_advances_the_calls_while_python_looks_at_one() -> None:
    def run(c: Collectives) -> None:
        x = np.ones(SMALL)
        call = known("allreduce", x, x)
        queue = opened(c, call)
        assert queue.run(*call)
        shared: Any = c.transport.shared
        mailbox, words = shared.mailbox, shared.words[shared.rank][0]
        digest = words[mailbox._first(mailbox.number[0]) + _DIGEST]
        if c.rank == 1:  # states the call, and gives nothing
            mailbox._state(digest, b"")
            return
        said = list[str]()

        def test(*_: object) -> bool:
            with pytest.raises(RuntimeError) as raised:
                queue.complete(queue.issued)
            said.append(str(raised.value))
            return False

        shared.wait_policy.test = test
        queue.issue(*call)
        while not said:
            queue.look()
        assert said == ["this thread waits for these calls"]

    mpicoll.threads(2)(run)


def test_a_queue_that_is_dropped_is_not_run() -> None:
    def run(c: Collectives) -> None:
        x = np.ones(SMALL)
        queue = opened(c, known("allreduce", x, x))
        if c.rank == 0:
            queue.issue(*known("allreduce", x, x))
        del queue

    mpicoll.threads(2)(run)


def test_code_in_a_wait_completes_the_call_that_waits() -> None:
    """It makes its call by Python."""
    waits = Event()

    def run(c: Collectives) -> None:
        x, y = np.ones(SMALL), np.full(SMALL, 3.0)
        call, other = known("allreduce", x, x), known("allreduce", y, y)
        queue = opened(c, call)
        x[:], policy = 1, c.transport.shared.wait_policy  # type: ignore[union-attr]
        wait, results = policy.wait, list[bool]()

        def wait_and_call(*given: Any) -> None:
            policy.wait = wait  # type: ignore[method-assign]
            waits.set()
            results.extend((queue.run(*other), bool(queue.issue(*other))))
            c._call(*other[:-1])
            wait(*given)

        if c.rank == 0:
            policy.wait = wait_and_call  # type: ignore[method-assign]
            assert queue.run(*call) and results == [False, False]
        else:
            waits.wait()
            assert queue.run(*call) and queue.run(*other)
        assert (x == 2).all() and (y == 6).all()

    mpicoll.threads(2)(run)
