"""The standard streams of a command: open all three, and tell errors of the output from others.

A closed descriptor is opened on nothing: otherwise the next file of the run would be opened in its
place, and libraries would print into it. A closed standard output fails as a pipe without a reader
does. A closed standard error fails nothing.
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
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputLost(f"cannot write standard output: {error.strerror}") from error


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
            _open(descriptor)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Output(_OUTPUT, "w", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Errors(_ERRORS, "w", closefd=False), sys.stderr)


def _open(descriptor: int) -> None:
    if descriptor != _OUTPUT:
        os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        os.set_inheritable(descriptor, True)
        return
    ends = os.pipe()
    os.dup2(ends[1], descriptor)
    for end in set(ends) - {descriptor}:
        os.close(end)


def _text(raw: io.FileIO, old: TextIO | None) -> TextIO:
    is_prompt = raw.fileno() == _ERRORS or raw.isatty() or getattr(old, "write_through", False)
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
        os.dup2(sink, _OUTPUT)
        os.close(sink)
