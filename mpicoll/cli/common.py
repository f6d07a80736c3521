"""The options that every command takes."""

from __future__ import annotations

import os
from typing import Any

import click

from mpicoll.cli.verbosity import Verbosity, set_verbosity
from mpicoll.errors import BadFile

LOAD = "MPICOLL_LOAD"
"""The variable with the files of a user's algorithms: `mpicoll.algorithms.user_files`."""


def _state_files(_context: click.Context, _option: click.Parameter, value: Any) -> None:
    paths = [os.path.abspath(path) for path in value]
    for path in paths:
        if not os.path.isfile(path):
            raise BadFile(f"--load: there is no file {path!r}")
        if os.pathsep in path:
            raise BadFile(f"--load: {path!r} has a {os.pathsep}, which separates files in {LOAD}")
    if paths:
        os.environ[LOAD] = os.pathsep.join(paths)


def _state_verbosity(_context: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        set_verbosity(Verbosity.QUIET if option.name == "quiet" else Verbosity.VERBOSE)


def common_options() -> list[click.Parameter]:
    """Return the options of all commands."""
    hidden: dict[str, Any] = {"expose_value": False}
    return [
        click.Option(
            ["--load"], type=click.Path(), multiple=True, metavar="FILE", callback=_state_files,
            is_eager=True, **hidden,
            help=f"Also use the algorithms of a Python file ({LOAD}).",
        ),
        click.Option(
            ["-q", "--quiet"], is_flag=True, callback=_state_verbosity, **hidden,
            help="Show no progress.",
        ),
        click.Option(
            ["-v", "--verbose"], is_flag=True, callback=_state_verbosity, **hidden,
            help="Also print on standard error the version, the variables and each step.",
        ),
    ]  # fmt: skip
