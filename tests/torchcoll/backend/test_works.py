"""Works: their errors, their futures, and the callbacks that wait for other works."""

from __future__ import annotations

import pickle
from threading import Event, Thread, Timer
from time import monotonic, sleep
from typing import Any

import pytest

from mpicoll.errors import Disagreement, RankLost

pytest.importorskip("torch")

from torchcoll.backend import works
from torchcoll.backend.order import Order
from torchcoll.backend.works import IssuedWork, QueuedWork, as_torch


def test_an_error_is_raised_where_a_work_is_waited_for() -> None:
    def fail() -> None:
        raise RankLost("rank 3 has ended")

    order = Order("test")
    work = QueuedWork((fail,), [], order, str)
    future = work.get_future()
    order.add(work)
    with pytest.raises(RuntimeError, match="rank 3 has ended"):
        work.wait()
    with pytest.raises(RuntimeError, match="rank 3 has ended"):
        future.wait()
    assert work.is_completed() and not work.is_success()
    order.stop()


def test_who_asks_whether_a_work_is_complete_learns_that_a_rank_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Queue:
        """Has one call under way, which only a wait ends."""

        completed, failed, issued, held = 0, 0, 1, False

        def complete(self, number: int) -> bool:
            self.completed = self.failed = number
            raise RankLost("rank 3 did not come")

    order = Order("test")
    order.queue = Queue()  # type: ignore[assignment]
    work = works.IssuedWork(1, [], order, str)
    assert not work.is_completed()
    monkeypatch.setattr(works, "_PATIENCE", 0.05)
    while not work.is_completed():
        sleep(0.01)
    assert "rank 3 did not come" in str(work.exception()) and not work.is_success()
    order.stop()


def test_a_future_is_there_however_soon_the_call_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reducer of DDP ends the process where it gets None, as it asks in C++."""

    class Queue:
        """Has one call under way."""

        completed, failed, issued, held = 0, 0, 1, False

    order = Order("test")
    order.queue = queue = Queue()  # type: ignore[assignment]
    settled = Event()
    work = IssuedWork(1, [], order, str)

    def settle() -> None:
        queue.completed = 1
        work.settle()
        settled.set()

    def attend(call: object) -> None:
        """Give the thread that settles futures time to do so before the caller goes on."""
        Thread(target=settle, daemon=True).start()
        settled.wait(0.2)

    monkeypatch.setattr(order, "attend", attend)
    future = work.get_future()
    assert settled.wait(60) and future.wait() == []
    assert work.get_future().wait() == []


def value_of(future: Any) -> Any:
    """Return the value of a future, once it has one."""
    end = monotonic() + 60
    while not future.done() and monotonic() < end:
        sleep(0.01)
    assert future.done()
    return future.value()


def test_a_callback_waits_for_the_future_of_a_call_that_it_makes() -> None:
    """As PowerSGD's do, in the thread that would settle that future."""
    order, may_run = Order("test"), Event()

    def call_again(_: object) -> list[int]:
        inner = QueuedWork((lambda: None,), [2], order, str)
        order.add(inner)
        found: list[int] = inner.get_future().wait()
        return found

    outer = QueuedWork((may_run.wait,), [1], order, str)
    order.add(outer)
    future = outer.get_future().then(call_again)
    may_run.set()
    assert value_of(future) == [2]
    order.stop()


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_a_callback_waits_for_the_future_of_a_call_that_was_issued_before(
    is_waited_for: bool,
) -> None:
    """Whoever runs the callback, which keeps his thread."""
    order, may_run = Order("test"), Event()
    first = QueuedWork((may_run.wait,), [1], order, str)
    second = QueuedWork((may_run.wait,), [2], order, str)
    later = second.get_future()
    future = first.get_future().then(lambda _: later.wait())
    waiting = Thread(target=first.wait, daemon=True)
    if is_waited_for:
        waiting.start()
    order.add(first)
    order.add(second)
    may_run.set()
    assert value_of(future) == [2]
    order.stop()


def test_who_has_waited_for_a_call_has_its_future() -> None:
    """Though another thread is late to settle it."""

    class Queue:
        """Has one call, which a wait runs."""

        completed, failed, issued, held = 0, 0, 1, False

        def complete(self, number: int) -> bool:
            self.completed = number
            return True

    order = Order("test")
    order.queue = Queue()  # type: ignore[assignment]
    order.attend = lambda call: Timer(0.2, call.settle).start()  # type: ignore[method-assign]
    work = IssuedWork(1, [3], order, str)
    future = work.get_future()
    assert not future.done() and work.wait() and future.done() and future.value() == [3]


def test_a_call_that_has_failed_is_not_done_before_its_error_is_known() -> None:
    class Queue:
        completed, failed, issued = 2, 2, 2

    order = Order("test")
    order.queue = Queue()  # type: ignore[assignment]
    first, second = (IssuedWork(number, [], order, str) for number in (1, 2))
    assert first.is_done and not second.is_done
    order.errors[2] = Disagreement("collective differs")
    assert second.is_done and not second.is_success()


def test_a_future_tells_of_an_interrupt() -> None:
    """What torch's futures take as an error is an `Exception` only."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    order = Order("test")
    work = QueuedWork((interrupted,), [], order, str)
    future = work.get_future()
    order.add(work)
    for told in (future, work.get_future()):
        with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
            told.wait()
    with pytest.raises(KeyboardInterrupt):
        work.wait()
    order.stop()


def test_errors_of_ours_are_pickled() -> None:
    """A hook of DDP ends in a future, and torch pickles the error of one."""
    told = as_torch(Disagreement("collective differs"))
    again = pickle.loads(pickle.dumps(told))
    assert isinstance(told, RuntimeError) and type(again) is type(told) is not Disagreement
    assert again.args == told.args == ("collective differs",)
