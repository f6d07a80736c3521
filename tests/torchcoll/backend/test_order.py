"""The order of queued calls: that of issue, whoever runs them and whatever interrupts them."""

from __future__ import annotations

from threading import Event, Thread
from time import sleep

import pytest

from mpicoll.errors import Disagreement

pytest.importorskip("torch")

from torchcoll.backend.order import Order
from torchcoll.backend.works import IssuedWork, QueuedWork


def test_the_order_is_that_of_issue() -> None:
    """Whoever runs a call: the thread, a wait, or a call that blocks."""
    order, found = Order("test"), list[int]()
    works = []
    for index in range(200):
        work = QueuedWork((found.append, index), [], order, str)
        order.add(work)
        works.append(work)
        if index % 50 == 9:
            order.run(found.append, -index)
            assert found[-2:] == [index, -index]
    works[-1].wait()
    assert [each for each in found if each >= 0] == list(range(200))
    order.stop()


def test_two_threads_that_ask_at_once_start_those_that_serve_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others would stay for ever, and who ends the group would wait for them."""
    order = Order("test")
    start, started, second = order._start, list[None](), Event()

    def start_slowly() -> None:
        started.append(None)
        if len(started) > 1:
            second.set()
        second.wait(0.2)
        start()

    monkeypatch.setattr(order, "_start", start_slowly)
    works = [QueuedWork((Event().is_set,), [], order, str) for _ in range(2)]
    asking = [Thread(target=order.add, args=(work,)) for work in works]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    assert all(work.wait() for work in works) and len(started) == 1
    order.stop()


def test_calls_that_wait_for_python_go_before_those_of_a_queue_that_opens_meanwhile() -> None:
    """The first call of a group opens it, in the middle of which others are issued."""

    class Queue:
        completed, failed, issued, held = 0, 0, 0, False

    order, queue, opened, issued = Order("test"), Queue(), Event(), Event()

    def open_queue() -> None:
        order.begin(queue)  # type: ignore[arg-type]
        opened.set()
        assert issued.wait(60)

    works = [QueuedWork((call,), [], order, str) for call in (open_queue, print)]
    for work in works:
        order.add(work)
    assert opened.wait(60) and queue.held
    issued.set()
    works[1].wait()
    with order.turn:
        assert not queue.held
    order.stop()


def test_an_error_belongs_to_the_call_that_it_has_ended() -> None:
    """The progress thread may have completed the next one before Python sees the error."""

    class Queue:
        completed, failed, issued, held = 0, 0, 2, False

        def complete(self, number: int) -> bool:
            if not self.issued:
                raise KeyboardInterrupt
            self.failed, self.completed = 1, 2
            raise Disagreement("collective differs")

    order = Order("test")
    order.queue = queue = Queue()  # type: ignore[assignment]
    works = [IssuedWork(number, [], order, str) for number in (1, 2, 3)]
    with pytest.raises(Disagreement):
        works[0].wait()
    assert works[1].wait() and works[1].is_success()
    queue.issued = 0
    with pytest.raises(KeyboardInterrupt):  # which has ended none of them
        works[2].wait()
    assert works[2].error is None and not works[2].is_completed()


def test_a_group_ends_while_its_thread_asks_for_more() -> None:
    """What a future calls may issue the next call, when the thread has been told to end."""
    order, begun, ending = Order("test"), Event(), Event()
    later = QueuedWork((print,), [], order, str)

    class Last(QueuedWork):
        is_done = True

        def settle(self) -> None:
            begun.set()
            assert ending.wait(60)
            order.add(later)

    order.attend(Last((print,), [], order, str))
    assert begun.wait(60)
    stopping = Thread(target=order.stop)
    stopping.start()
    while order._threads:
        sleep(0.001)
    ending.set()
    stopping.join(60)
    assert not stopping.is_alive() and later.wait()
    order.stop()


@pytest.mark.parametrize("is_late", [False, True])
def test_an_interrupt_between_two_queued_calls_loses_none(is_late: bool) -> None:
    """Before the first one has begun, or once it is done."""

    class Interrupted(QueuedWork):
        interrupts = 1

        def interrupt(self) -> None:
            if self.interrupts:
                self.interrupts = 0
                raise KeyboardInterrupt

        def perform(self) -> None:
            if not is_late:
                self.interrupt()
            super().perform()
            self.interrupt()

    order, ran = Order("test"), list[int]()
    works = [kind((ran.append, number), [], order, str)
             for number, kind in enumerate((Interrupted, QueuedWork))]  # fmt: skip
    order._queued.extend(works)
    with pytest.raises(KeyboardInterrupt):
        works[1].wait()
    assert works[1].wait() and works[0].wait() and ran == [0, 1]


def test_a_call_that_a_handler_of_a_signal_makes_within_another_runs_after_the_issued_ones() -> (
    None
):

    order, ran = Order("test"), list[int]()

    def interrupted() -> None:
        order.run(ran.append, 2)
        ran.append(0)

    calls = (interrupted,), (ran.append, 1)
    works = [QueuedWork(call, [], order, str) for call in calls]
    order._queued.extend(works)
    assert works[0].wait() and works[1].wait() and ran == [1, 2, 0]
