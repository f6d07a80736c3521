"""Run a user's program in this process, as ``python program.py`` or ``python -m module`` would."""

from __future__ import annotations

import errno
import os
import runpy
import stat
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from importlib.util import find_spec
from pathlib import Path
from pkgutil import get_importer
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from mpicoll.cli import missing
from mpicoll.errors import ArgumentError, brief
from mpicoll.machine.launchers import end_other_ranks, is_first_process, let_first_print
from mpicoll.text.numbers import whole

if TYPE_CHECKING:
    from mpicoll.backend import Thunk

_REFUSED, _MOST_ROUNDS = 2, 1000


Compare = Callable[[int, Sequence[str], Sequence[str]], int]
"""Compares a program with and without collectives of ours; takes rounds, arguments, the program."""


class Options(NamedTuple):
    """What stands before the program.

    Attributes:
        rounds: runs of each kind that are compared; 0 compares nothing.
    """

    is_verbose: bool
    is_quiet: bool
    rounds: int


def main(
    usage: str, arguments: Sequence[str], *, refuse: Thunk, prepare: Thunk, notice: str,
    compare: Compare,
) -> int:  # fmt: skip
    """Run the program that the arguments name; return the exit status where there is none.

    Args:
        usage: what ``--help`` prints.
        refuse: raises ArgumentError where the environment asks for what does not exist.
        prepare: puts collectives of ours in place of the program's.
        notice: the line that ``-v`` prints before the program starts.
        compare: runs the program several times, with and without collectives of ours.
    """
    try:
        options, program = _options(arguments)
        if list(program[:1]) in (["-h"], ["--help"]):
            if is_first_process():
                print(usage.strip())
            return 0
        check(program)
        refuse()
        if options.is_verbose or options.is_quiet:
            _set_verbosity(is_verbose=options.is_verbose)
        if options.rounds:
            return compare(options.rounds, arguments, program)
    except ArgumentError as error:
        from mpicoll.cli import ending  # a program starts without

        let_first_print()
        ending.report(error)
        end_other_ranks(_REFUSED)
        return _REFUSED
    prepare()
    if options.is_verbose and is_first_process():
        from mpicoll.cli import ending  # a program starts without

        ending.say(notice)
    run(program)
    return 0


def _set_verbosity(*, is_verbose: bool) -> None:
    """Have this program print no progress, or the variables in force."""
    from mpicoll.cli.verbosity import Verbosity, set_verbosity  # a program starts without

    set_verbosity(Verbosity.VERBOSE if is_verbose else Verbosity.QUIET)


def _options(arguments: Sequence[str]) -> tuple[Options, Sequence[str]]:
    """Return the options before the program, and the words from the program on."""
    is_verbose = is_quiet = False
    rounds = place = 0
    while place < len(arguments):
        name, equals, value = arguments[place].partition("=")
        if name == "--compare":
            text = value if equals else next(iter(arguments[place + 1 : place + 2]), "")
            rounds = whole(text, _MOST_ROUNDS) or 0
            if not rounds:
                raise ArgumentError(
                    f"--compare {brief(text)}: give the runs of each kind, 1 to {_MOST_ROUNDS}"
                )
            place += 1 if equals else 2
            continue
        if arguments[place] in ("-v", "--verbose"):
            is_verbose, is_quiet = True, False
        elif arguments[place] in ("-q", "--quiet"):
            is_verbose, is_quiet = False, True
        else:
            break
        place += 1
    return Options(is_verbose, is_quiet, rounds), arguments[place:]


def check(arguments: Sequence[str]) -> None:
    """Raise ArgumentError where a command line names no program.

    Args:
        arguments: ``program.py ARGS`` or ``-m module ARGS``.
    """
    if not arguments or (arguments[0] == "-m" and len(arguments) == 1):
        raise ArgumentError("name a program: program.py ARGS, or -m module ARGS")
    if arguments[0].startswith("-") and arguments[0] != "-m":
        raise ArgumentError(f"{arguments[0]!r} is neither a program nor -m, -q, -v or --compare")
    if arguments[0] == "-m":
        if not _has_module(arguments[1].partition(".")[0]):
            raise ArgumentError(f"there is no module {arguments[1]!r}")
        return
    try:
        mode = os.stat(arguments[0]).st_mode
    except FileNotFoundError:
        raise ArgumentError(f"there is no file {arguments[0]!r}") from None
    except OSError as error:
        raise ArgumentError(f"cannot read {arguments[0]!r}: {error.strerror}") from None
    if stat.S_ISDIR(mode) and not (Path(arguments[0]) / "__main__.py").exists():
        raise ArgumentError(f"{arguments[0]!r} is a folder without a __main__.py")
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise ArgumentError(f"{arguments[0]!r} is a device, and no program")
    if not os.access(arguments[0], os.R_OK):
        raise ArgumentError(f"cannot read {arguments[0]!r}: {os.strerror(errno.EACCES)}")


def _has_module(name: str) -> bool:
    """Whether Python finds a module or package; it is not imported."""
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def run(arguments: Sequence[str]) -> None:
    """Run a program as ``__main__``; what it raises, `SystemExit` too, is the caller's.

    Raises:
        ArgumentError: the command line names no program.
    """
    check(arguments)
    missing.uninstall()
    sys.excepthook = partial(_print_error, sys.excepthook)
    if arguments[0] == "-m":
        if not sys.flags.safe_path:
            sys.path[0] = os.getcwd()
        run_module(arguments[1], arguments[2:])
        return
    module = sys.modules["__main__"] = ModuleType("__main__")
    as_python_does: Any = runpy
    sys.argv = list(arguments)
    path = str(Path(arguments[0]).absolute())
    if get_importer(path) is not None:  # a folder or an archive
        sys.path[0] = path
        as_python_does._run_module_as_main("__main__", alter_argv=False)
        return
    sys.path[0] = str(Path(path).resolve().parent)
    vars(module)["__file__"] = path
    if sys.version_info < (3, 15):
        vars(module)["__cached__"] = None
    if path.endswith(".pyc"):
        module.__loader__ = compiled = SourcelessFileLoader("__main__", path)
        code = compiled.get_code("__main__")
        assert code is not None
    else:
        module.__loader__ = source = SourceFileLoader("__main__", path)
        code = compile(source.get_data(path), path, "exec", dont_inherit=True)
    exec(code, vars(module))


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run a module as ``python -m name`` would."""
    # runpy's public functions drop their module at the program's end, which its threads outlive.
    sys.modules["__main__"] = ModuleType("__main__")
    sys.argv = [name, *arguments]
    as_python_does: Any = runpy
    as_python_does._run_module_as_main(name)


def _print_error(
    hook: Callable[..., object], kind: type[BaseException], error: BaseException, trace: Any
) -> None:
    """Pass an error of the program to a hook, without the frames that ran the program."""
    frames = trace
    while frames is not None:
        is_local = frames.tb_frame.f_code in (run.__code__, run_module.__code__)
        frames = frames.tb_next
        trace = frames if is_local else trace
    hook(kind, error.with_traceback(trace), trace)
