"""The calls of one group, run in the order in which they were issued.

A call that blocks runs where it is issued. One that does not is run by a thread of the group's
channel, where that reads its tensors. Any other one is queued, and is run by whoever comes first:
a thread of Python of the group's, a wait for it, or a later call that blocks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from mpicoll.machine.hidden_threads import HiddenThread, forget_current_thread
from mpicoll.machine.waited import comes

if TYPE_CHECKING:
    from mpicoll.engine._compiled import Channel

Call = tuple[Any, ...]
"""A function, and its arguments."""
Pending = Any
"""A call that does not block its caller: a `torchcoll.backend.works.PendingWork`."""
_THREADS = 2
"""Of a group, as gloo has: one may wait for a later call in a callback, and the other serves it."""
_STUCK = 0.02
"""Seconds of one callback after which those of later calls begin."""


class Order:
    """The order of the calls of one group on this rank.

    Attributes:
        queue: the channel that runs calls without Python; None where nothing does.
        turn: held by the thread that runs calls, or waits for them.
        errors: of the calls of the channel that have failed, by their numbers.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.queue: Channel | None = None
        self.turn = threading.RLock()
        self._queued: deque[Any] = deque()
        self.errors: dict[int, BaseException] = {}
        self._lock, self._serving = threading.Lock(), threading.Lock()
        self._holds = 0
        self._signals: SimpleQueue[Pending | None] = SimpleQueue()
        self._threads: list[HiddenThread] = []
        self._settled = threading.Event()
        self._settled.set()

    def begin(self, queue: Channel | None) -> None:
        """Have a queue run its calls from now on, as soon as Python runs nothing."""
        with self._lock:
            if queue is not None:
                queue.held = bool(self._holds or self._queued)
            self.queue = queue

    def run(self, call: Callable[..., object], *arguments: Any) -> None:
        """Run a call after all that were issued before it."""
        with self._held():
            self._perform_until(None)
            call(*arguments)

    def run_known(self, key: Sequence[Any]) -> bool:
        """Run a call by its compiled program after all that were issued; whether there is one."""
        queue: Any = self.queue
        with self.turn:
            if queue.run(*key):
                return True
            if queue.completed == queue.issued:
                return False
            self._complete_issued()
            has_run: bool = queue.run(*key)
            return has_run

    def issue(self, key: Sequence[Any]) -> int:
        """Give a call to the channel, and return its number; 0 where that is not possible."""
        with self._lock:  # the group may be shut down meanwhile
            return 0 if self.queue is None else self.queue.issue(*key)

    def add(self, call: Any) -> None:
        """Queue a call that Python runs, and return: a `torchcoll.backend.works.QueuedWork`."""
        with self._lock:
            self._queued.append(call)
            if self.queue is not None:
                self.queue.held = True
        self.attend(call)

    def attend(self, call: Pending) -> None:
        """Have a thread of the group complete a call, and settle its future."""
        with self._serving:
            if not self._threads:
                self._start()
            self._signals.put(call)

    def complete(self, call: Pending, seconds: float) -> bool:
        """Return once a pending call has run; whether it has within `seconds`, 0 for no limit."""
        if not seconds:
            while not call.is_done:
                self._perform_until(call)
            return True
        if call.number:  # a thread of the group attends queued calls in any case
            self.attend(call)
        return comes(lambda: call.is_done, seconds)

    def stop(self) -> None:
        """End the threads, once they have run the queued calls."""
        with self.turn:
            self._complete_issued()
        with self._serving:
            threads, self._threads = self._threads, []
            if threads:
                self._signals.put(None)
        for thread in threads:
            if not thread.is_current:
                thread.join()

    def _start(self) -> None:
        # Of their own: threads that have been told to end may still have calls to serve.
        self._signals = SimpleQueue()
        serve = partial(self._serve, self._signals, threading.Lock())
        self._threads = [HiddenThread(serve, self.name) for _ in range(_THREADS)]

    def _serve(self, signals: SimpleQueue[Pending | None], leading: threading.Lock) -> None:
        while True:
            with leading:
                call = signals.get()
                if call is None:
                    signals.put(None)
                    return
                self.complete(call, 0)
                previous_event, self._settled = self._settled, threading.Event()
                settled = self._settled
            previous_event.wait(_STUCK)
            call.settle()
            forget_current_thread()  # which a callback of the program may have asked for
            settled.set()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Take the turn, and give the channel nothing more, as Python runs calls."""
        with self.turn:
            self._count_hold(1)
            try:
                yield
            finally:
                self._count_hold(-1)

    def _count_hold(self, change: int) -> None:
        with self._lock:
            self._holds += change
            if self.queue is not None:
                self.queue.held = bool(self._holds or self._queued)

    def _perform_until(self, call: Pending | None) -> None:
        """Run calls until a pending one is done; all of them where there is none."""
        with self.turn:
            if call is not None and call.number:
                self._complete_issued(call.number)
                return
            with self._held():
                self._complete_issued()
                while self._queued and not (call is not None and call.is_done):
                    self._perform_first()

    def _perform_first(self) -> None:
        """Run the first call that is queued, where it stays until it has begun: a Ctrl-C may come.

        A handler of a signal may make a call meanwhile, before which all others run.
        """
        call = self._queued[0]
        if not call.has_begun:
            call.perform()
        if self._queued and self._queued[0] is call:
            self._queued.popleft()

    def _complete_issued(self, number: int | None = None) -> None:
        """Complete the calls of the channel, up to one of them."""
        queue = self.queue
        if queue is None:
            return
        number = queue.issued if number is None else number
        while queue.completed < number:
            previous_failure = queue.failed
            try:
                queue.complete(number)
            except BaseException as error:
                if queue.failed == previous_failure:  # it has ended none of them
                    raise
                # The channel may have completed later calls meanwhile.
                self.errors[queue.failed] = error
