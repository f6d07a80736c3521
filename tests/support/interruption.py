"""Interrupt a rank, and assert that all ranks know soon."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

SOON = 40
"""The seconds within which all know: less than the deadline, on a busy machine."""


@contextmanager
def soon() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < SOON


@contextmanager
def interrupted(after: float) -> Iterator[None]:
    """Interrupt this thread, as a signal would, and assert that it notices."""
    thread, noticed = ctypes.c_ulong(threading.get_ident()), threading.Event()

    def interrupt() -> None:
        for _ in range(10):  # one long sleep may end while the whole process stands still
            time.sleep(after / 10)
        while not noticed.is_set():
            raised = ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, raised)
            noticed.wait(10)  # a callback of the garbage collector may have swallowed it

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    noticed.set()
    interrupter.join()
