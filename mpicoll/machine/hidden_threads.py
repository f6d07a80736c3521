"""Threads of ours that the program does not see: `threading` does not list them.

A program may join all threads, count them, or trace them. These threads run as long as the process
does, so the program would wait for ever.
"""

from __future__ import annotations

import os
import sys
import threading
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from typing import Any


class HiddenThread:
    """A thread that runs a call, and ends with the process at the latest, as a daemon does.

    It starts at once. An error of the call goes to `threading.excepthook`. Inside a C++ library,
    which would abort the process, it sleeps from the end of the interpreter on.

    Args:
        name: as errors state it.
    """

    def __init__(self, call: Callable[[], object], name: str) -> None:
        from mpicoll.c_extension import _compiled  # commands start without

        self.name = name
        self._process, self._ident = os.getpid(), 0
        self._running = allocate_lock()
        self._running.acquire()
        start_new_thread(self._run, (call, _compiled.sleep_when_finalizing))

    @property
    def is_current(self) -> bool:
        """Whether this thread is the calling one."""
        return self._ident == threading.get_ident()

    def is_alive(self) -> bool:
        """Whether it runs; a forked child has none of its parent's threads."""
        return self._process == os.getpid() and self._running.locked()

    def join(self, seconds: float = -1) -> None:
        """Wait for its end, or for so many seconds; negative for no limit."""
        if self.is_alive() and self._running.acquire(timeout=seconds):
            self._running.release()

    def _run(self, call: Callable[[], object], prepare: Callable[[], object]) -> None:
        self._ident = threading.get_ident()
        prepare()
        try:
            call()
        except SystemExit:
            pass
        except BaseException:
            # The hook reads the name alone of the thread.
            event: Any = threading.ExceptHookArgs((*sys.exc_info(), self))
            threading.excepthook(event)
        finally:
            forget_current_thread()
            self._running.release()


def forget_current_thread() -> None:
    """Remove the calling thread from the list of `threading`.

    `threading.current_thread` puts it there, which `logging` and code of users call.
    """
    listed: Any = threading
    with listed._active_limbo_lock:
        listed._active.pop(threading.get_ident(), None)
