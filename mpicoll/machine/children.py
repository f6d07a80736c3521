"""Processes that must not go on without the one that started them."""

from __future__ import annotations

import ctypes
import signal

_libc = ctypes.CDLL(None)  # a forked process must not load it
_PARENT_DEATH_SIGNAL = 1


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Have the system end this process where its parent ends, however that does."""
    _libc.prctl(_PARENT_DEATH_SIGNAL, int(number))
