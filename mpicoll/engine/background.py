"""Advance what is under way while its rank computes.

A thread of Python's does it, where the interpreter is free: while the rank is in NumPy, in a
library or asleep, and else once in `sys.getswitchinterval`. Compiled programs have a thread that
needs no interpreter (`progress.c`).
"""

from __future__ import annotations

import atexit
import os
import threading
from abc import ABC, abstractmethod
from time import sleep

from mpicoll.machine.hidden_threads import HiddenThread
from mpicoll.tuning import FIRST_NAP, LAST_NAP, YIELD_SECONDS

_END = 1.0
"""Seconds in which it ends with the interpreter; it may be inside of a library for ever."""


class Background(ABC):
    """Something that a thread advances until whoever waits for it takes it back.

    Attributes:
        lock: of the thread that advances it.
        is_given: the thread may advance it; changed under the lock.
    """

    def __init__(self) -> None:
        self.lock, self.is_given = threading.RLock(), False

    @abstractmethod
    def go_on(self) -> bool:
        """Advance as far as is possible without waiting; whether it is complete.

        What it raises is to be raised where it is waited for: the thread leaves it alone then.
        """

    @abstractmethod
    def mark(self) -> object:
        """Return something that differs once it has advanced."""

    def give(self) -> None:
        """Give it to the thread."""
        thread = _threads[0] if _threads else _started()
        self.is_given = True
        thread.tasks.append(self)
        if not thread.awake:
            thread.wake.set()

    def take_back(self) -> None:
        """Take it from the thread, which does not touch it after this.

        A turn of the thread that is under way may have it on its list.
        """
        with self.lock:
            self._drop()

    def look(self) -> bool:
        """Advance, unless another thread does; whether anything has changed."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            if not self.is_given:
                return False
            previous_mark = self.mark()
            if self.go_on():
                self._drop()
                return True
            return self.mark() != previous_mark
        except BaseException:
            self._drop()
            return True
        finally:
            self.lock.release()

    def _drop(self) -> None:
        """Have the thread look at it no more."""
        self.is_given = False
        for thread in _threads:
            try:
                thread.tasks.remove(self)
            except ValueError:  # the thread has left it just now
                continue


class _Thread:
    """Looks at what it is given, in turn."""

    def __init__(self) -> None:
        self.tasks: list[Background] = []
        self.wake, self.awake, self.ends = threading.Event(), True, False
        atexit.register(self.end)  # before MPI is finalized, inside of which it may be
        self._thread = HiddenThread(self._run, "mpicoll progress")

    def _run(self) -> None:
        while not self.ends:
            self._look()
            self.awake = False
            if not (self.tasks or self.ends):
                self.wake.wait()
            self.awake = True
            self.wake.clear()

    def _look(self) -> None:
        """Look until there has been nothing to advance for a while."""
        # Most runs are waited for at once, and looks take time of the interpreter's.
        nap, idle = LAST_NAP, 0.0
        while idle < YIELD_SECONDS and not self.ends:
            sleep(nap)
            idle = 0.0 if self.tasks else idle + nap
            changed = [task.look() for task in list(self.tasks)]
            nap = FIRST_NAP if any(changed) else min(1.5 * nap, LAST_NAP)

    def end(self) -> None:
        """End the thread."""
        self.ends = True
        self.wake.set()
        self._thread.join(_END)


_threads: list[_Thread] = []
"""The one of this process, once there is one."""
_starts = threading.Lock()
# A forked child lacks the thread, and may run no plan of its parent's.
os.register_at_fork(after_in_child=_threads.clear)


def _started() -> _Thread:
    """Return the thread of this process."""
    with _starts:
        if not _threads:
            _threads.append(_Thread())
    return _threads[0]
