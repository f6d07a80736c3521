"""Print the state of the job, as `mpicoll.postmortem` does, on ``kill -USR1`` of a rank.

The handler (``execution/signals.c``) wakes a thread, so that a rank which waits in a library
prints, too. Where the extension was not built, SIGUSR1 writes stacks only.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpicoll.cli.tables import console
from mpicoll.errors import CollectiveError
from mpicoll.flight.job import look
from mpicoll.flight.summary import show

_WIDTH = 120
_open: list[tuple[Any, int]] = []


def can_watch(writers: Any) -> bool:
    """Whether the extension module is there, which has the handler."""
    return hasattr(writers, "watch_signals")


def watch(writers: Any, ending: memoryview, directory: Path) -> None:
    """Have signals record themselves, and SIGUSR1 print the state of the job.

    Args:
        writers: the extension module; without its functions nothing is done.
        ending: where a signal that ends the process leaves its number.
    """
    if _open or not can_watch(writers):
        return
    descriptor = os.eventfd(0)
    _open.append((writers, descriptor))
    writers.watch_signals(ending, descriptor)
    threading.Thread(
        target=_print, args=(descriptor, directory), name="mpicoll asked", daemon=True
    ).start()


def unwatch() -> None:
    """Leave signals as they were; the thread waits on until the process ends."""
    for writers, _ in _open:
        writers.unwatch_signals()
    _open.clear()


def _print(descriptor: int, directory: Path) -> None:
    while True:
        os.read(descriptor, 8)  # again after a signal, as `os.eventfd_read` is not
        with suppress(CollectiveError, OSError, ValueError):
            found, _, faults = look(directory)
            show(console(_WIDTH, file=sys.stderr), directory, found, faults)
