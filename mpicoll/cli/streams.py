"""The standard streams of a command: open all three, and tell errors of the output from others.

A closed descriptor is opened on nothing: otherwise the next file of the run would be opened in its
place, and libraries would print into it. A library may have opened a file there before, as libffi
does when `ctypes` is imported: this file stays, and nothing is written to it. A closed standard
output fails as a pipe without a reader does. A closed standard error fails nothing.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

_INPUT, _OUTPUT, _ERRORS = range(3)


class OutputLost(Exception):
    """Standard output cannot be written; the cause is the `OSError`.

    It is no `OSError` itself: rich ends the process on those of pipes.
    """


class _Output(io.FileIO):
    is_postponing = False
    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if not _Output.is_postponing:
                raise _lost(error) from error
            _Output.error = _Output.error or error
            return memoryview(data).nbytes


def _lost(error: OSError) -> OutputLost:
    return OutputLost(f"cannot write standard output: {error.strerror}")


def postpone_loss() -> None:
    """Drop what standard output does not take, until `raise_loss`: this run also writes a file."""
    _Output.is_postponing = True


def raise_loss() -> None:
    """Write the printed text.

    Raises:
        OutputLost: some of it was dropped.
    """
    sys.stdout.flush()
    error, _Output.error, _Output.is_postponing = _Output.error, None, False
    if error is not None:
        raise _lost(error) from error


class _Errors(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def open_standard_streams() -> None:
    """Open the standard streams that are closed, and give `sys.stdout` and `sys.stderr` to them.

    Streams that a test or a notebook has put in their place stay.
    """
    for descriptor in (_INPUT, _OUTPUT, _ERRORS):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            os.set_inheritable(descriptor, True)
    if sys.stdout is sys.__stdout__:
        descriptor = _OUTPUT if sys.stdout else _pipe_without_reader()
        sys.stdout = _text(_Output(descriptor, "w", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__:
        descriptor = _ERRORS if sys.stderr else os.open(os.devnull, os.O_WRONLY)
        sys.stderr = _text(_Errors(descriptor, "w", closefd=False), sys.stderr)


def _pipe_without_reader() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def _text(raw: io.FileIO, old: TextIO | None) -> TextIO:
    is_prompt = isinstance(raw, _Errors) or raw.isatty() or getattr(old, "write_through", False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), old.encoding if old else "utf-8", "backslashreplace",
        line_buffering=is_prompt,
    )  # fmt: skip


def settle_output() -> None:
    """Write the printed text, or drop it: it would fail once more as Python ends."""
    try:
        sys.stdout.flush()
    except OutputLost:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
        os.close(sink)
