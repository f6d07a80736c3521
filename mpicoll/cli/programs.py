"""Run a user's program in this process, as ``python program.py`` or ``python -m module`` would."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from mpicoll.errors import ArgumentError
from mpicoll.interfaces import Thunk
from mpicoll.machine.launchers import is_first_process

_REFUSED = 2


def main(usage: str, arguments: Sequence[str], *, refuse: Thunk, prepare: Thunk) -> int:
    """Run the program that the arguments name; return the exit status where there is none.

    Args:
        usage: what ``--help`` prints.
        refuse: raises ArgumentError where the environment asks for what does not exist.
        prepare: puts collectives of ours in place of the program's.
    """
    if list(arguments[:1]) in (["-h"], ["--help"]):
        if is_first_process():
            print(usage.strip())
        return 0
    try:
        check(arguments)
        refuse()
    except ArgumentError as error:
        if is_first_process():
            print(f"Error: {error}", file=sys.stderr)
        return _REFUSED
    prepare()
    run(arguments)
    return 0


def check(arguments: Sequence[str]) -> None:
    """Raise ArgumentError where a command line names no program.

    Args:
        arguments: ``program.py ARGS`` or ``-m module ARGS``.
    """
    if not arguments or (arguments[0] == "-m" and len(arguments) == 1):
        raise ArgumentError("name a program: program.py ARGS, or -m module ARGS")
    if arguments[0].startswith("-") and arguments[0] != "-m":
        raise ArgumentError(f"{arguments[0]!r} is neither a program nor -m")
    if arguments[0] != "-m" and not Path(arguments[0]).exists():
        raise ArgumentError(f"there is no file {arguments[0]!r}")


def run(arguments: Sequence[str]) -> None:
    """Run a program as ``__main__``; what it raises, `SystemExit` too, is the caller's.

    Raises:
        ArgumentError: the command line names no program.
    """
    check(arguments)
    # Errors of the program are its own: they are printed as Python prints them.
    sys.excepthook = sys.__excepthook__
    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(arguments)
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")
