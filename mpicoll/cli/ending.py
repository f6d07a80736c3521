"""How a run ends: why it failed, in words on descriptor 2, and the exit status.

The words go to the descriptor and not through `sys.stderr`: torch.distributed replaces
`sys.excepthook` by one that first collects the text, and a process that leaves meanwhile has
printed nothing.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import StringIO
from select import PIPE_BUF
from typing import Any, NoReturn, cast

import click

from mpicoll.cli.missing import advice
from mpicoll.cli.streams import OutputLost, settle_output
from mpicoll.errors import ArgumentError, CollectiveError
from mpicoll.machine.hidden_threads import HiddenThread
from mpicoll.machine.launchers import (
    TORCHRUN,
    find_launch,
    is_by_hand,
    is_first_process,
    place,
)
from mpicoll.text.files import remove_unfinished
from mpicoll.text.printable import printable

FAILED, REFUSED, HUNG, SICK, UNDECIDED = 1, 2, 3, 4, 5
_ERRORS = 2
INTERRUPTED, CLOSED = 130, 141
"""As a shell states the signals SIGINT and SIGPIPE."""

REFUSALS = (click.ClickException, ArgumentError)
"""Errors that every rank has."""
_MEANINGS = {
    r"can.?t allocate memory|cannot allocate memory|out of memory|bad_alloc": "out of memory",
    r"can't start new thread": "no more threads can be started",
    r"connection (was )?(closed|reset|refused|aborted)|broken pipe": "lost another rank",
}
"""The meaning of errors that libraries give no class of their own, by their words."""
_ending = threading.Lock()
_continuation = ""
_ENDING, _LOOK = "mpicoll/ending", 0.3
"""The ranks that end, in torch's store, and the seconds in which each has looked there."""


def reason(error: BaseException) -> str | None:
    """Return in one line why a run failed, None for an error whose traceback is needed."""
    if isinstance(error, CollectiveError | OutputLost):
        return str(error)
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return ": ".join(filter(None, ("interrupted", _continuation)))
    if isinstance(error, MemoryError):
        return ": ".join(filter(None, ("out of memory", str(error))))
    if isinstance(error, ImportError):
        return advice(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError | RuntimeError):
        # Libraries in C++ begin with the place in their source.
        text = re.sub(r"^\[[^]]+:\d+\] ", "", str(error).partition("\n")[0])
        meanings = (
            why for pattern, why in _MEANINGS.items() if re.search(pattern, text, re.IGNORECASE)
        )
        return next((f"{why}: {text}" for why in meanings), None)
    return None


def explain_interrupt(text: str) -> None:
    """Have an interrupt say where the results are, and which command goes on."""
    global _continuation
    _continuation = text


def report(error: BaseException) -> None:
    """Print why the run failed, with the traceback where it is an error of this program."""
    if isinstance(error, click.ClickException):
        text = StringIO()
        error.show(text)
        usage, _, why = text.getvalue().rpartition("Error: ")
    else:
        usage = ""
        why = reason(error) or "failed\n" + "".join(traceback.format_exception(error))
    say(f"{usage}Error: {place(is_for_all=isinstance(error, REFUSALS))}{why}")


def say(text: str) -> None:
    """Print lines on descriptor 2, those of one rank not within those of another."""
    begin = "\r\x1b[K" if os.isatty(_ERRORS) else ""  # over a line of progress
    lines = f"{begin}{printable(text.rstrip())}\n".splitlines(keepends=True)
    try:
        sys.stderr.fileno()
    except OSError:
        sys.stderr.writelines(lines)  # a test or a notebook reads it
        return
    with suppress(OSError):
        for block in _blocks([line.encode(errors="backslashreplace") for line in lines]):
            os.write(_ERRORS, block)


def _blocks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to blocks that the system writes in one piece, where they are not too long."""
    block = b""
    for line in lines:
        if len(block) + len(line) > PIPE_BUF:
            yield block
            block = b""
        block += line
    yield block


def leave(status: int) -> NoReturn:
    """End this process at once: others may wait for it, and the launcher must end them."""
    settle_output()
    remove_unfinished()
    os._exit(status)


def watch_threads() -> None:
    """End the run where a thread fails: without it, it would hang or go on unwatched."""

    def fail(event: threading.ExceptHookArgs) -> None:
        if event.exc_value is not None:
            report(event.exc_value)
        leave(FAILED)

    threading.excepthook = fail


def watch_exit() -> None:
    """Have a run fail where a function that Python calls at exit does."""
    hook_before = sys.unraisablehook

    def fail(event: Any) -> None:
        if "atexit" not in (event.err_msg or ""):
            hook_before(event)
        else:
            report(event.exc_value)
            leave(FAILED)

    sys.unraisablehook = fail


def watch_termination() -> None:
    """Have a process that SIGTERM ends say so first, wherever it waits.

    Python calls handlers in the main thread alone, which may be inside a library for ever. So the
    signal's number goes to a pipe, which C writes at once, and which another thread reads.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    numbers, end = os.pipe()
    os.set_blocking(end, False)
    signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, _terminated)
    os.register_at_fork(after_in_child=_unwatch_in_child)
    HiddenThread(partial(_await_termination, numbers), "mpicoll termination")


def _terminated(*_signal: object) -> None:
    """Say that SIGTERM ends this process, and end it; a handler, and of the thread's too."""
    with _ending:
        # `signal.signal` is for the main thread. From here on another SIGTERM ends the process.
        ctypes.pythonapi.PyOS_setsig(signal.SIGTERM, None)
        if is_first_process() or is_by_hand() or _has_joined():
            say_terminated()
        remove_unfinished()
        os.kill(os.getpid(), signal.SIGTERM)


def unwatch_termination() -> None:
    """Have SIGTERM end this process without a word from here on."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is _terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def unwind_at_termination() -> None:
    """Have SIGTERM end this process as an exception does: with what it has made for a while."""
    signal.signal(signal.SIGTERM, _unwound)


def _unwound(*_signal: object) -> NoReturn:
    say_terminated()
    sys.exit(128 + signal.SIGTERM)


def _unwatch_in_child() -> None:
    """Have a forked process end by SIGTERM, and not the one that it was forked from."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _await_termination(numbers: int) -> None:
    while received := os.read(numbers, 64):
        # A command may have a handler of its own by now.
        if signal.SIGTERM in received and signal.getsignal(signal.SIGTERM) is _terminated:
            _terminated(signal.SIGTERM, None)


def say_terminated() -> None:
    """Print that SIGTERM ends this process."""
    say(f"Error: {place()}ended by SIGTERM, as by kill, a launcher or a time limit")


@contextmanager
def holding_the_interpreter() -> Iterator[None]:
    """Have SIGTERM end the process at once meanwhile: no thread could say anything."""
    if signal.getsignal(signal.SIGTERM) is not _terminated:
        yield
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, _terminated)


def shares_command_line() -> bool:
    """Whether all ranks were given this rank's command line."""
    launch = find_launch()
    return launch is None or launch.launcher != TORCHRUN


def _has_joined() -> bool:
    """Whether this rank has met the others: until then a launcher ends it for another's failure."""
    mpi, torch = sys.modules.get("mpi4py.MPI"), sys.modules.get("torch.distributed")
    checks = getattr(mpi, "Is_initialized", bool), getattr(torch, "is_initialized", bool)
    return any(has_joined() for has_joined in checks)


def arrivals() -> Callable[[], bool] | None:
    """Tell the other ranks that this one ends; return whether all have told so.

    None where this rank has not joined them, or is alone.
    """
    mpi, torch = sys.modules.get("mpi4py.MPI"), sys.modules.get("torch.distributed")
    if mpi is not None and mpi.Is_initialized() and mpi.COMM_WORLD.size > 1:
        return cast("Callable[[], bool]", mpi.COMM_WORLD.Ibarrier().Test)
    if torch is None or not torch.is_available() or not torch.is_initialized():
        return None
    store, size = torch.distributed_c10d._get_default_store(), torch.get_world_size()
    store.add(_ENDING, 1)

    def have_come() -> bool:
        come: bool = store.add(_ENDING, 0) >= size
        # The store ends with the first rank: the others look, too.
        time.sleep(_LOOK if come and is_first_process() else 0)
        return come

    return have_come if size > 1 else None


def come_together(have_come: Callable[[], bool], limit: float) -> bool:
    """Return whether all ranks have come within so many seconds.

    One that failed alone must not wait for the others, as MPI does when a process ends.
    """
    until = time.monotonic() + limit
    with suppress(RuntimeError):  # the store's rank has left
        while not have_come():
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True
    return False
