"""Have SIGUSR1 write the stacks of a rank's threads beside its flight file, and print the job.

The handler of stacks is `faulthandler`'s: it runs in C, so it writes, too, where a rank waits in a
library or keeps the interpreter; in a copy of the process (``flight/signals.c``), as threads that
end meanwhile can make it fail. On ``kill -USR1`` the handler also wakes a thread, which prints the
state of the job as `mpicoll.postmortem` does. A program's own handler is left alone.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from mpicoll.errors import CollectiveError
from mpicoll.machine.hidden_threads import HiddenThread, forget_current_thread

_WIDTH = 120
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


_open: list[tuple[Any, int]] = []
"""The extension module, whose handler is in force, and the file with stacks, -1 without one."""
_registrations: list[_Registration] = []


def watch(writers: Any, ending: memoryview, path: Path) -> None:
    """Have SIGUSR1 write stacks and print the state of the job, and other signals be recorded.

    A program that handles SIGUSR1 keeps its handler. A program that has turned `faulthandler` on
    keeps its file; otherwise the report of a fatal signal goes to this file, too. The extension
    calls the handler of a library that was there before, as MPICH's.

    Args:
        writers: the extension module, which has the handler.
        ending: where a signal that ends the process leaves its number.
        path: of the file with stacks.
    """
    if _open:
        return
    writers.save_handler()
    file = _register(path)
    descriptor = _event_descriptor() if file >= 0 else -1
    _open.append((writers, file))
    writers.watch_signals(ending, descriptor)
    if descriptor >= 0:
        HiddenThread(partial(_print, descriptor, path.parent), "mpicoll report")


def _register(path: Path) -> int:
    """Have SIGUSR1 write stacks to a file; return its descriptor, -1 where a program handles it."""
    if _is_programs():
        return -1
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o600)
    except OSError:
        return -1
    register = partial(faulthandler.register, signal.SIGUSR1, all_threads=True, chain=False)
    unregister = partial(faulthandler.unregister, signal.SIGUSR1)
    _registrations.append(_Registration(file, [signal.SIGUSR1], register, unregister))
    if not faulthandler.is_enabled():
        enable = partial(faulthandler.enable, all_threads=True)
        _registrations.append(_Registration(file, _FATAL, enable, faulthandler.disable))
    return file


def _is_programs() -> bool:
    """Whether the program handles SIGUSR1: it is ignored, or its handler is the interpreter's.

    `signal` and `faulthandler` install handlers of the interpreter.
    """
    action = _current_action(signal.SIGUSR1)
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


def _event_descriptor() -> int:
    """Return a descriptor for events; -1 where a sandbox denies it, or the process has too many."""
    try:
        return os.eventfd(0)
    except OSError:
        return -1


def unwatch() -> None:
    """Leave signals as they were, or as the program has set them; the thread waits on."""
    for writers, file in _open:
        writers.unwatch_signals()
        for registration in _registrations:
            registration.end()
        if file >= 0:
            os.close(file)
    _open.clear()
    _registrations.clear()


def _print(descriptor: int, directory: Path) -> None:
    while True:
        os.read(descriptor, 8)  # again after a signal, as `os.eventfd_read` is not
        # A program starts quickly without these.
        from mpicoll.cli.tables import console
        from mpicoll.flight.job import look
        from mpicoll.flight.summary import show

        with suppress(CollectiveError, OSError, ValueError):
            diagnosis, _, faults = look(directory)
            show(console(_WIDTH, file=sys.stderr), directory, diagnosis, faults)
        forget_current_thread()  # the stream, or a logger, may be the program's


def dump() -> None:
    """Write the stacks of this process now."""
    for _, file in _open[:1]:  # another thread may close it
        if file >= 0:
            faulthandler.dump_traceback(file, all_threads=True)
