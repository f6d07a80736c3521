"""Have SIGUSR1 write the stacks of a rank's threads beside its flight file.

The handler is `faulthandler`'s: it runs in C, so it writes, too, where a rank waits in a library or
keeps the interpreter; in a copy of the process (``execution/signals.c``), as threads that end
meanwhile can make it fail. Where that was not built, the main thread writes its own stack alone. A
program's own handler is left alone.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
from pathlib import Path

SIGNAL = signal.SIGUSR1
_open: list[int] = []


def watch(path: Path, *, every: bool) -> bool:
    """Have the stacks written to a file; whether SIGUSR1 does so from now on.

    Where the program has not turned `faulthandler` on, what a fatal signal says goes there, too.

    Args:
        every: those of all threads, which takes a copy of the process; else that of the thread
            which gets the signal, the main one by the system's choice.
    """
    if _open or signal.getsignal(SIGNAL) is not signal.SIG_DFL:
        return False
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o600)
    except OSError:
        return False
    faulthandler.register(SIGNAL, file=file, all_threads=every, chain=False)
    _open.append(file)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=file, all_threads=True)
        _open.append(file)
    return True


def unwatch() -> None:
    """Leave SIGUSR1 and fatal signals as they were."""
    if not _open:
        return
    faulthandler.unregister(SIGNAL)
    if len(_open) > 1:
        faulthandler.disable()
    os.close(_open[0])
    _open.clear()


def dump() -> None:
    """Write the stacks of this process now."""
    for file in _open[:1]:  # another thread may close it
        faulthandler.dump_traceback(file, all_threads=True)


def ask(process: int) -> None:
    """Have another process write its stacks, where it would not end by the signal.

    By `sigqueue`: a signal that `kill` has sent has it print what is known of the job, too.
    """
    if process != os.getpid() and is_caught(process):
        ctypes.CDLL(None).sigqueue(process, SIGNAL, ctypes.c_void_p())


def is_caught(process: int) -> bool:
    """Whether a process has a handler for the signal."""
    try:
        with open(f"/proc/{process}/status", errors="replace") as file:
            caught = next(line for line in file if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (SIGNAL - 1) & 1)
    except (OSError, StopIteration, ValueError, IndexError):
        return False
