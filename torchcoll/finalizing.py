"""Threads that may still be inside torch while the interpreter ends.

A wait of gloo's cannot be ended from outside. When it returns while the interpreter ends, Python
ends the thread in the middle of C++, and C++ then aborts the process, whose status is lost. Such a
thread sleeps instead. MPI's calls are C, and need none of this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mpicoll.c_extension import _compiled

T = TypeVar("T")


def outliving(call: Callable[[], T]) -> Callable[[], T]:
    """Return a call for a thread that may not have left torch when the interpreter ends."""

    def outlives() -> T:
        _compiled.sleep_when_finalizing()
        return call()

    return outlives
