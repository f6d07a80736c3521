"""The calls of one group, run in the order in which they were issued.

A call that blocks runs where it is issued. One that does not is queued, and is run by whoever
comes first: the group's thread, a wait for it, or a later call that blocks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Any, Protocol

_NAPS = (50e-6, 1e-3)


class Queued(Protocol):
    """A call that was issued and does not block its caller.

    Attributes:
        is_done: whether it has run; its result or error is there then.
    """

    is_done: bool

    def perform(self) -> None:
        """Run the call, and keep its error."""


class Order:
    """The order of the calls of one group on this rank."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.queued: deque[Queued] = deque()
        self._turn = threading.RLock()
        self._signals: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, call: Callable[..., object], *arguments: Any) -> None:
        """Run a call after all that were issued before it."""
        with self._turn:
            while self.queued:
                self.queued.popleft().perform()
            call(*arguments)

    def add(self, call: Queued) -> None:
        """Queue a call, and return."""
        self.queued.append(call)
        if self._thread is None:
            self._start()
        self._signals.put(True)

    def complete(self, call: Queued, seconds: float) -> bool:
        """Return once a queued call has run; whether it has within `seconds`, 0 for no limit."""
        if not seconds:
            while not call.is_done:
                self._perform_next()
            return True
        end, nap = monotonic() + seconds, _NAPS[0]
        while not call.is_done and monotonic() < end:
            sleep(nap)
            nap = min(1.5 * nap, _NAPS[1])
        return call.is_done

    def stop(self) -> None:
        """End the thread, once it has run what is queued."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._signals.put(False)
            if thread is not threading.current_thread():
                thread.join()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._serve, name=self.name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while self._signals.get():
            while self.queued:
                self._perform_next()

    def _perform_next(self) -> None:
        with self._turn:
            if self.queued:
                self.queued.popleft().perform()
