"""Let MPI serve ranks that are still inside of it, after this one has left their operation.

MPICH 5.0.2 starts the first message to a rank of another node by connecting to it, and may not
return before that rank's MPI has answered, which it does in calls alone. A rank that has left by an
error perhaps makes none any more.
"""

from __future__ import annotations

import atexit
import os
import threading
import time

from mpi4py import MPI

from mpicoll.machine.hidden_threads import HiddenThread
from mpicoll.mpi.requests import calls_users, serves_threads
from mpicoll.peers.watch import GRACE

_PAUSE = 0.01
"""Seconds between two looks."""
_END = 1.0
"""Seconds in which the thread ends with the interpreter; it may be inside of MPI for ever."""


class _Server:
    """Calls MPI once in a while, from a thread that ends when its time is over."""

    def __init__(self) -> None:
        self.lock, self.until, self.ends = threading.Lock(), 0.0, threading.Event()
        self.thread: HiddenThread | None = None
        self.process = os.getpid()
        atexit.register(self.end)  # before MPI is finalized

    def serve(self, seconds: float) -> None:
        if os.getpid() != self.process:
            return  # a forked child, which must not call MPI
        with self.lock:
            self.until = max(self.until, time.monotonic() + seconds)
            if self.thread is None and not self.ends.is_set():
                self.thread = HiddenThread(self._run, "mpicoll serving")

    def _run(self) -> None:
        while not self.ends.wait(_PAUSE):
            with self.lock:
                if time.monotonic() > self.until or MPI.Is_finalized():
                    self.thread = None
                    return
            if not calls_users():  # which are called by no other thread
                MPI.COMM_WORLD.Iprobe()

    def end(self) -> None:
        self.ends.set()
        if (thread := self.thread) is not None:
            thread.join(_END)


_server = _Server()


def serve(deadline: float) -> None:
    """Let MPI go on, by a thread, for as long as other ranks may be inside of it.

    Args:
        deadline: in seconds, of the ranks; where MPI takes no calls from other threads, nothing is
            done.
    """
    if serves_threads():
        _server.serve(deadline + GRACE)
