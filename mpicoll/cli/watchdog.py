"""End a job that hangs, and name the step and its stacks on standard error."""

from __future__ import annotations

import faulthandler
import os
import threading
import time

from mpicoll.cli.ending import HUNG, say
from mpicoll.machine.hidden_threads import HiddenThread
from mpicoll.machine.launchers import find_launch
from mpicoll.machine.waited import Waited

_GRACE = 1.5
_ERRORS = 2
"""The descriptor: a library may have put another stream in the place of `sys.stderr`."""


class Watchdog:
    """Watches one step at a time; a step that lasts longer than `limit` ends the process."""

    def __init__(self, limit: float) -> None:
        launch = find_launch()
        self.limit, self.rank = limit, launch.rank if launch else 0
        self._step = "start", Waited()
        self._lock, self._is_starting = threading.Lock(), False
        if limit > 0:
            HiddenThread(self._watch, "mpicoll watchdog")

    def step(self, name: str) -> None:
        """Begin a step; an empty name is watched for nothing."""
        self._step = name, Waited()

    def starting(self, name: str) -> None:
        """Begin to start a library: one that hangs may hold the interpreter's lock."""
        self.step(f"starting {name}")
        with self._lock:
            self._is_starting = self.limit > 0
            self._put_off()

    def started(self) -> None:
        """End the step: all libraries have started."""
        with self._lock:
            self._is_starting = False
            faulthandler.cancel_dump_traceback_later()
        self.step("")

    def _put_off(self) -> None:
        """Let C end the process where Python does not run: stacks that change may make it crash."""
        if self._is_starting:
            faulthandler.dump_traceback_later(self.limit + _GRACE, exit=True, file=_ERRORS)

    def _watch(self) -> None:
        while True:
            time.sleep(min(0.5, self.limit / 4))
            with self._lock:
                self._put_off()
            name, waited = self._step
            if waited.look() > self.limit and name:
                self._report(name)

    def _report(self, name: str) -> None:
        faulthandler.cancel_dump_traceback_later()
        say(f"HUNG for {self.limit:g} s on rank {self.rank}: {name}; its stacks:")
        faulthandler.dump_traceback(_ERRORS, all_threads=True)
        # The launcher ends every rank when the first one leaves: let the others report first.
        time.sleep(_GRACE)
        os._exit(HUNG)
