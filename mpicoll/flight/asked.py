"""Print the state of the job, as `mpicoll.postmortem` does, on ``kill -USR1`` of a rank.

The handler (``flight/signals.c``) wakes a thread, so that a rank which waits in a library
prints, too.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from mpicoll.errors import CollectiveError
from mpicoll.flight import stacks
from mpicoll.machine.hidden_threads import HiddenThread, forget_current_thread

_WIDTH = 120
_open: list[tuple[Any, int]] = []


def watch(writers: Any, ending: memoryview, beat: memoryview, stacks_path: Path) -> None:
    """Have SIGUSR1 write stacks and print the state of the job, and other signals be recorded.

    A program that handles SIGUSR1 keeps its handler.

    Args:
        writers: the extension module, which has the handler.
        ending: where a signal that ends the process leaves its number.
        beat: where the time goes once a second, as long as the process lives.
    """
    if _open:
        return
    writers.save_handler()
    prints = stacks.watch(stacks_path)
    descriptor = _event_descriptor() if prints else -1
    _open.append((writers, descriptor))
    writers.watch_signals(ending, descriptor)
    beats = partial(_print, writers, descriptor, beat, stacks_path.parent)
    HiddenThread(beats, "mpicoll asked")


def _event_descriptor() -> int:
    """Return a descriptor for events; -1 where a sandbox denies it, or the process has too many."""
    try:
        return os.eventfd(0)
    except OSError:
        return -1


def unwatch() -> None:
    """Leave signals as they were; the thread waits on until the process ends."""
    for writers, _ in _open:
        writers.unwatch_signals()
    _open.clear()
    stacks.unwatch()


def _print(writers: Any, descriptor: int, beat: memoryview, directory: Path) -> None:
    while True:
        writers.await_request(descriptor, beat)
        # A program starts quickly without these.
        from mpicoll.cli.tables import console
        from mpicoll.flight.job import look
        from mpicoll.flight.summary import show

        with suppress(CollectiveError, OSError, ValueError):
            diagnosis, _, faults = look(directory)
            show(console(_WIDTH, file=sys.stderr), directory, diagnosis, faults)
        forget_current_thread()  # the stream, or a logger, may be the program's
