"""Handlers of signals that run at the end of a call."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mpicoll.engine import _compiled

ALARM, USER = signal.SIGALRM, signal.SIGUSR2
uninterrupted, postpone_handlers = _compiled.uninterrupted, _compiled.postpone_handlers


class Late(Exception):
    pass


def _raise_late(*_: object) -> None:
    raise Late


@pytest.fixture
def handlers() -> Iterator[Callable[[Any], None]]:
    """Set the handler of both signals; those from before come back at the end."""
    previous = {number: signal.getsignal(number) for number in (ALARM, USER)}

    def set_handlers(handler: Any) -> None:
        for number in previous:
            signal.signal(number, handler)

    yield set_handlers
    for number, handler in previous.items():
        signal.signal(number, handler)


def send(number: int = ALARM) -> None:
    """Send this process a signal, whose handler Python would run at once."""
    os.kill(os.getpid(), number)


def test_a_handler_raises_at_the_end_of_the_call(handlers: Callable[[Any], None]) -> None:
    handlers(_raise_late)
    events = []

    def call() -> None:
        postpone_handlers()
        send()
        events.append("the call goes on")

    with pytest.raises(Late):
        uninterrupted(call)
    assert events == ["the call goes on"]
    assert signal.getsignal(ALARM) is _raise_late


def test_the_handlers_of_all_signals_run(handlers: Callable[[Any], None]) -> None:
    numbers: list[int] = []
    handlers(lambda number, frame: numbers.append(number) if frame is not None else None)

    def call() -> int:
        postpone_handlers()
        for number in (USER, ALARM, USER):
            send(number)
        return len(numbers)

    assert uninterrupted(call) == 0
    assert sorted(numbers) == sorted([USER, ALARM])


def test_after_an_error_the_other_handlers_run_as_soon_as_they_can(
    handlers: Callable[[Any], None],
) -> None:
    numbers: list[int] = []

    def handle(number: int, _: object) -> None:
        numbers.append(number)
        if len(numbers) == 1:
            raise Late

    handlers(handle)
    with pytest.raises(Late):
        uninterrupted(lambda: (postpone_handlers(), send(USER), send(ALARM)))
    assert sorted(numbers) == sorted([USER, ALARM])


def test_within_another_call_a_handler_waits_for_the_end_of_the_outer_one(
    handlers: Callable[[Any], None],
) -> None:
    handlers(_raise_late)
    events = []

    def inner() -> None:
        postpone_handlers()
        send()

    def outer() -> None:
        uninterrupted(inner)
        events.append("the outer call goes on")

    with pytest.raises(Late):
        uninterrupted(outer)
    assert events


def test_an_error_of_the_call_is_the_context_of_a_handlers(handlers: Callable[[Any], None]) -> None:
    handlers(_raise_late)

    def call() -> None:
        postpone_handlers()
        send()
        raise ValueError("wrong")

    with pytest.raises(Late) as late:
        uninterrupted(call)
    assert str(late.value.__context__) == "wrong"
    with pytest.raises(ValueError, match="wrong"):
        uninterrupted(_raise_wrong)


def _raise_wrong() -> None:
    postpone_handlers()
    raise ValueError("wrong")


def test_nothing_is_postponed_in_a_call_that_does_not_wait(handlers: Callable[[Any], None]) -> None:
    handlers(_raise_late)
    events: list[str] = []

    def call() -> None:
        try:
            send()
        except Late:
            events.append("late")

    uninterrupted(call)
    postpone_handlers()  # no call is open
    call()
    assert events == ["late", "late"]


def test_ctrl_c_is_raised_at_the_end() -> None:
    events = []

    def call() -> None:
        postpone_handlers()
        send(signal.SIGINT)
        events.append("the call goes on")

    with pytest.raises(KeyboardInterrupt):
        uninterrupted(call)
    assert events


def test_a_handler_that_the_call_has_set_stays(handlers: Callable[[Any], None]) -> None:
    handlers(_raise_late)
    numbers: list[int] = []

    def handle(number: int, _: object) -> None:
        numbers.append(number)

    def call() -> None:
        postpone_handlers()
        send()
        signal.signal(ALARM, handle)

    uninterrupted(call)
    assert signal.getsignal(ALARM) is handle
    assert numbers == [ALARM]


def test_a_handler_makes_calls(handlers: Callable[[Any], None]) -> None:
    results: list[int] = []
    handlers(lambda *_: results.append(uninterrupted(lambda: postpone_handlers() or 7)))
    uninterrupted(lambda: (postpone_handlers(), send()))
    assert results == [7]


def test_ignored_and_default_signals_stay_as_they_are(handlers: Callable[[Any], None]) -> None:
    handlers(signal.SIG_IGN)
    seen: list[Any] = []

    def call() -> None:
        postpone_handlers()
        send()
        seen.extend(map(signal.getsignal, (ALARM, USER, signal.SIGTERM)))

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        uninterrupted(call)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIG_IGN, signal.SIG_IGN, signal.SIG_DFL]


def test_calls_of_other_threads_postpone_nothing(handlers: Callable[[Any], None]) -> None:
    handlers(_raise_late)
    is_open, is_over, seen = threading.Event(), threading.Event(), []

    def call() -> None:
        postpone_handlers()
        seen.append(signal.getsignal(ALARM))
        is_open.set()
        is_over.wait()

    thread = threading.Thread(target=uninterrupted, args=(call,))
    thread.start()
    is_open.wait()
    try:
        with pytest.raises(Late):
            send()
    finally:
        is_over.set()
        thread.join()
    assert seen == [_raise_late]


def test_a_child_that_is_forked_in_a_call_runs_its_handlers(
    handlers: Callable[[Any], None],
) -> None:
    handlers(lambda *_: os._exit(5))

    def call() -> int:
        postpone_handlers()
        child = os.fork()
        if child == 0:
            send()
            os._exit(6)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert uninterrupted(call) == 5
