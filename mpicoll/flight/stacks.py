"""Have SIGUSR1 write the stacks of a rank's threads beside its flight file.

The handler is `faulthandler`'s: it runs in C, so it writes, too, where a rank waits in a library or
keeps the interpreter; in a copy of the process (``flight/signals.c``), as threads that end
meanwhile can make it fail. A program's own handler is left alone.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

SIGNAL = signal.SIGUSR1
_FATAL = signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGSEGV
_prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_int)
_current_action = _prototype(("PyOS_getsig", ctypes.pythonapi))
"""Return the address of a signal's handler; `signal.getsignal` knows of Python's handlers alone."""


class _Symbol(ctypes.Structure):
    """What `dladdr` finds."""

    _fields_ = (
        ("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )  # fmt: skip


class _Target:
    """The file of a registration; only `faulthandler` keeps a reference to it.

    So it goes when the program registers a file of its own.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def fileno(self) -> int:
        return self.descriptor


class _Registration:
    """A registration with `faulthandler`, which is undone only while it is in force.

    Args:
        signals: the signals that it handles.
        register: begins it, with a target as its file.
        undo: ends it, and gives the signals the actions that they had before.
    """

    def __init__(
        self, file: int, signals: Sequence[int], register: Callable[..., object],
        undo: Callable[[], object],
    ) -> None:  # fmt: skip
        target = _Target(file)
        register(file=target)
        self.signals, self.undo, self.target = signals, undo, weakref.ref(target)
        self.actions = [*map(_current_action, signals)]

    def end(self) -> None:
        """End it, unless the program has taken its place meanwhile."""
        if self.target() is not None and self.actions == [*map(_current_action, self.signals)]:
            self.undo()


_open: list[int] = []
_registrations: list[_Registration] = []


def watch(path: Path) -> bool:
    """Have the stacks written to a file; whether SIGUSR1 does so from now on.

    A program that handles SIGUSR1 keeps its handler. A program that has turned `faulthandler` on
    keeps its file; otherwise the report of a fatal signal goes to this file, too. The extension
    calls the handler of a library that was there before, as MPICH's.
    """
    if _open or _is_programs():
        return False
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o600)
    except OSError:
        return False
    _open.append(file)
    register = partial(faulthandler.register, SIGNAL, all_threads=True, chain=False)
    unregister = partial(faulthandler.unregister, SIGNAL)
    _registrations.append(_Registration(file, [SIGNAL], register, unregister))
    if not faulthandler.is_enabled():
        enable = partial(faulthandler.enable, all_threads=True)
        _registrations.append(_Registration(file, _FATAL, enable, faulthandler.disable))
    return True


def _is_programs() -> bool:
    """Whether the program handles SIGUSR1: it is ignored, or its handler is the interpreter's.

    `signal` and `faulthandler` install handlers of the interpreter.
    """
    action = _current_action(SIGNAL)
    interpreter = ctypes.cast(ctypes.pythonapi.PyOS_getsig, ctypes.c_void_p).value
    return action is not None and (
        action == signal.SIG_IGN or _object_with(action) == _object_with(interpreter)
    )


def _object_with(address: int | None) -> int | None:
    """Return the address of the executable or shared library that an address belongs to."""
    symbol = _Symbol()
    ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(symbol))
    base: int | None = symbol.base
    return base


def unwatch() -> None:
    """Leave signals as they were before, or as the program has set them meanwhile."""
    if not _open:
        return
    for registration in _registrations:
        registration.end()
    _registrations.clear()
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
