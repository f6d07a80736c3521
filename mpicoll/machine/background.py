"""Calls that can only block, as some libraries' do: a thread makes one, and may be left in it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from mpicoll.machine.hidden_threads import HiddenThread
from mpicoll.machine.waited import Waited

T = TypeVar("T")
_LOOK = 0.5


def background(call: Callable[[], T], name: str) -> Future[T]:
    """Have a thread of this name make a call; it stays there for ever where the call does."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    HiddenThread(run, name)
    return future


def is_done(future: Future[Any], seconds: float) -> bool:
    """Whether a call has ended, at the latest after some seconds."""
    with suppress(TimeoutError):
        future.exception(seconds)
    return future.done()


def within(seconds: float, call: Callable[[], T], error: Exception) -> T:
    """Return the result of a call.

    Raises:
        Exception: `error`, if the call has not ended within `seconds`.
    """
    future, waited = background(call, str(error)), Waited()
    while not is_done(future, min(_LOOK, seconds)):
        if waited.look() > seconds:
            raise error
    return future.result()
