"""Run a user's program in this process, as ``python program.py`` or ``python -m module`` would."""

from __future__ import annotations

import builtins
import errno
import os
import runpy
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from importlib.util import find_spec
from pathlib import Path
from pkgutil import get_importer
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from mpicoll.cli import missing
from mpicoll.errors import ArgumentError, brief
from mpicoll.machine import exits  # noqa: F401  it is to come before functions of the program
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
        trace: the directory in which all ranks leave their flight files; empty for none.
    """

    is_verbose: bool
    is_quiet: bool
    rounds: int
    trace: str


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
        if options.trace:
            _keep_flight(options.trace)
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
    rounds, place, trace = 0, 0, ""
    while place < len(arguments):
        name, equals, value = arguments[place].partition("=")
        if name in ("--compare", "--trace"):
            text = value if equals else next(iter(arguments[place + 1 : place + 2]), "")
            place += 1 if equals else 2
            if name == "--trace":
                trace = text
                if not text:
                    raise ArgumentError("--trace: name a directory for the files of the ranks")
                continue
            rounds = whole(text, _MOST_ROUNDS) or 0
            if not rounds:
                raise ArgumentError(
                    f"--compare {brief(text)}: give the runs of each kind, 1 to {_MOST_ROUNDS}"
                )
            continue
        if arguments[place] in ("-v", "--verbose"):
            is_verbose, is_quiet = True, False
        elif arguments[place] in ("-q", "--quiet"):
            is_verbose, is_quiet = False, True
        else:
            break
        place += 1
    return Options(is_verbose, is_quiet, rounds, trace), arguments[place:]


def _keep_flight(text: str) -> None:
    """Have all ranks leave their flight files in a directory.

    Raises:
        ArgumentError: no file can be made there.
    """
    path = Path(text).absolute()  # the program may change its folder
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"--trace {brief(text)}: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise ArgumentError(f"--trace {brief(text)}: {os.strerror(errno.EACCES)}")
    os.environ |= {"MPICOLL_FLIGHT": "keep", "MPICOLL_FLIGHT_DIR": str(path)}


def check(arguments: Sequence[str]) -> None:
    """Raise ArgumentError where a command line names no program.

    For a module, the current folder is searched first from here on.

    Args:
        arguments: ``program.py ARGS``, ``-m module ARGS`` or ``-c code ARGS``.
    """
    if not arguments or (arguments[0] in ("-m", "-c") and len(arguments) == 1):
        raise ArgumentError("name a program: program.py ARGS, -m module ARGS, or -c code ARGS")
    if arguments[0] == "-c":
        return
    if arguments[0].startswith("-") and arguments[0] != "-m":
        raise ArgumentError(
            f"{arguments[0]!r} is neither a program nor -m, -c, -q, -v, --compare or --trace"
        )
    if arguments[0] == "-m":
        _search_current_folder()
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

    Args:
        arguments: as `check` takes them.
    """
    missing.uninstall()
    try:
        _run(arguments)
    except BaseException as error:
        # Python calls the hook next: at the end of a program, and before ``python -i`` asks.
        if not isinstance(error, SystemExit) or sys.flags.inspect:
            sys.excepthook = partial(_print_error, sys.excepthook)
        raise


def _run(arguments: Sequence[str]) -> None:
    name = arguments[0]
    if name == "-m":
        run_module(arguments[1], arguments[2:])
        return
    module = _new_main()
    if name == "-c":
        _replace_entry(None if sys.flags.safe_path else "")
        sys.argv = ["-c", *arguments[2:]]
        module.__loader__ = BuiltinImporter
        exec(_command_code(arguments[1]), vars(module))
        return
    sys.argv = list(arguments)
    path = name if os.path.isabs(name) else os.path.join(os.getcwd(), name)
    if get_importer(path) is not None:  # a folder or an archive
        _replace_entry(path)
        as_python_does: Any = runpy
        as_python_does._run_module_as_main("__main__", alter_argv=False)
        return
    _replace_entry(None if sys.flags.safe_path else os.path.dirname(os.path.realpath(path)))
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
    _new_main()
    sys.argv = ["-m", *arguments]  # runpy puts the path of the module there
    as_python_does: Any = runpy
    as_python_does._run_module_as_main(name)


def _new_main() -> ModuleType:
    """Put a new module in the place of ``__main__``, as it is when Python starts."""
    has_annotations = "__annotations__" in vars(sys.modules["__main__"])  # before Python 3.14
    module = sys.modules["__main__"] = ModuleType("__main__")
    if has_annotations:
        vars(module)["__annotations__"] = {}
    vars(module)["__builtins__"] = builtins
    return module


def _command_code(text: str) -> CodeType:
    """Compile the text of ``-c``."""
    if sys.version_info >= (3, 14):
        from textwrap import dedent

        text = dedent(text)
    if sys.version_info >= (3, 13):  # tracebacks show its lines
        import linecache

        linecache.cache["<string>"] = (len(text), None, text.splitlines(True), "<string>")
    code: CodeType = compile(text, "<string>", "exec", dont_inherit=True)
    return code


def _search_current_folder() -> None:
    """Search modules in the current folder first, as ``python -m`` does."""
    if not sys.flags.safe_path and (folder := _current_folder()):
        sys.path[0] = folder


def _current_folder() -> str | None:
    """Return the current folder; None if it has been removed, and Python does not search it."""
    with suppress(FileNotFoundError):
        return os.getcwd()
    return None


def _replace_entry(entry: str | None) -> None:
    """Replace the folder of our command in the search path by the program's, None for none."""
    if not sys.flags.safe_path and _current_folder():
        del sys.path[0]
    if entry is not None:
        sys.path.insert(0, entry)


def _print_error(
    hook: Callable[..., object], kind: type[BaseException], error: BaseException, trace: Any
) -> None:
    """Pass an error of the program to its hook, without the frames that ran the program."""
    sys.excepthook = hook
    frames = trace
    while frames is not None:
        is_local = frames.tb_frame.f_code in _FRAMES
        frames = frames.tb_next
        trace = frames if is_local else trace
    error.__traceback__ = sys.last_traceback = trace
    try:
        hook(kind, error, trace)
    except SystemExit:
        raise
    except BaseException as failure:
        show = sys.__excepthook__
        print("Error in sys.excepthook:", file=sys.stderr)
        here = failure.__traceback__
        show(type(failure), failure.with_traceback(here and here.tb_next), here and here.tb_next)
        print("\nOriginal exception was:", file=sys.stderr)
        show(kind, error, trace)


_FRAMES = {function.__code__ for function in (run, _run, run_module, _command_code)}
