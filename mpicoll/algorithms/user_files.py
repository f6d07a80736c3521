"""Algorithms from elsewhere: files of a user, and installed packages.

``MPICOLL_LOAD`` names files, with a colon between two of them; ``--load`` of a command sets it, and
all ranks and launches that the command starts inherit it. A package names its modules in the
entry point group ``mpicoll.algorithms``.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path

from mpicoll.errors import ArgumentError, BadFile, text_of
from mpicoll.text.files import content_of

VARIABLE = "MPICOLL_LOAD"
GROUP = "mpicoll.algorithms"
_MOST_BYTES = 1 << 24


def load_files(count: Callable[[], int]) -> None:
    """Run the files that the variable names.

    Args:
        count: returns the number of registered algorithms.

    Raises:
        BadFile: a file cannot be read, fails, or registers no algorithm.
    """
    for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        before = count()
        _run(Path(name))
        if count() == before:
            raise BadFile(
                f"{name} registers no algorithm: decorate a function by algorithm(COLLECTIVE) of "
                "mpicoll.algorithms"
            )


def _run(path: Path) -> None:
    name = f"mpicoll_load_{path.stem}"
    try:
        text = content_of(path, _MOST_BYTES)
    except ArgumentError as error:
        raise BadFile(str(error)) from None
    module = module_from_spec(ModuleSpec(name, SourceFileLoader(name, str(path)), origin=str(path)))
    module.__file__ = str(path)
    sys.modules[name] = module
    with _failing(str(path)):
        exec(compile(text, path, "exec", dont_inherit=True), vars(module))


def load_installed() -> None:
    """Import the modules of installed packages that register algorithms.

    Raises:
        BadFile: a module fails.
    """
    from importlib import metadata  # reads a file of each installed package

    for entry_point in metadata.entry_points(group=GROUP):
        with _failing(f"{entry_point.value} (entry point {entry_point.name} of {GROUP})"):
            entry_point.load()


@contextmanager
def _failing(source: str) -> Iterator[None]:
    """Raise any error of a source of algorithms as one sentence with the line."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        line = _line_of(error, source)
        kind = "" if isinstance(error, ArgumentError) else f"{type(error).__name__}: "
        text = error.msg if isinstance(error, SyntaxError) else text_of(error)
        raise BadFile(f"{source}{line}: {kind}{text}") from error


def _line_of(error: BaseException, file: str) -> str:
    """Return the line of a file at which an error began; '' if it is unknown."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f", line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f", line {lines[-1]}" if lines else ""
