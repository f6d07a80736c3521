"""The classes of commands: how they parse, and how they end.

Exit status: what the command returns, None being 0; 1: a run on ranks failed; 2: refused, as for
bad usage, or a command of one process failed, whose 1 may be a verdict; 3: a step hung;
130: interrupted; 141: standard output has no reader.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from mpicoll.cli import ending
from mpicoll.cli.common import common_options
from mpicoll.cli.streams import (
    OutputLost,
    open_standard_streams,
    postpone_loss,
    raise_loss,
    settle_output,
)
from mpicoll.errors import BadFile, closest
from mpicoll.machine.launchers import (
    command_words,
    end_other_ranks,
    find_launch,
    is_by_hand,
    is_first_of_host,
    is_first_process,
)

_GRACE, _PEER_WAIT = 1.5, 5.0
"""Seconds in which the first rank has printed, and in which others have failed alike or ended."""
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Command(click.Command):
    """A command of one process."""

    failed = ending.REFUSED
    takes_common_options = True

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        if self.takes_common_options:
            keywords["params"] = [*keywords.get("params", ()), *common_options()]
        keywords["context_settings"] = _SETTINGS | keywords.get("context_settings", {})
        super().__init__(*arguments, **keywords)

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None,
        complete_var: str | None = None, standalone_mode: bool = True, **extra: Any,
    ) -> Any:  # fmt: skip
        """Parse the command line, run, and leave with the exit status."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        open_standard_streams()
        ending.watch_threads()
        ending.watch_termination()
        prog_name = prog_name or _program_name()
        try:
            status = super().main(args, prog_name, complete_var, False, **extra) or 0
            raise_loss()
        except (Exception, KeyboardInterrupt) as error:
            settle_output()
            status = self.fail(error)
        if status == 0:
            ending.watch_exit()
        sys.exit(status)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; the error of an unknown option names one that is alike, if any."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            names = [name for parameter in self.get_params(ctx) for name in parameter.opts]
            option = closest(error.option_name, names)
            close = [option] if option else None
            raise click.NoSuchOption(error.option_name, error.message, close, error.ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; the files that it writes do not depend on who reads its output."""
        from mpicoll.cli.options import is_output  # the list of commands appears at once without

        if any(
            is_output(option.type) and ctx.params.get(option.name or "") for option in self.params
        ):
            postpone_loss()
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, EOFError) as error:
            # click takes these for the standard streams', and ends the process without a word.
            raise RuntimeError(repr(error)) from error

    def fail(self, error: BaseException) -> int:
        """Print why the run failed; return the exit status."""
        if isinstance(error, OutputLost) and isinstance(error.__cause__, BrokenPipeError):
            return ending.CLOSED
        ending.report(error)
        return ending.INTERRUPTED if isinstance(error, click.Abort) else self.failed


def _program_name() -> str | None:
    """Return ``mpicoll bench`` for a command that ``mpicoll`` runs, None for a module by itself."""
    words = command_words()
    return " ".join(words) if len(words) > 1 else None


class LauncherCommand(Command):
    """A command of one process that starts launches: the ranks of a launch may not run it."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.

        Raises:
            UsageError: this process is one of several ranks.
        """
        launch = find_launch()
        if launch is not None and launch.size > 1:
            raise click.UsageError(
                f"this command starts ranks itself, but {launch.launcher} has started it "
                f"{launch.size} times: start it once. On emulated hosts, use "
                "python -m mpicoll.hosts --once"
            )
        return super().invoke(ctx)

    def fail(self, error: BaseException) -> int:
        """Print why the run failed, on the first rank only; return the exit status."""
        return super().fail(error) if is_first_process() or is_by_hand() else self.failed


class RanksCommand(Command):
    """A command of all ranks of a launch: the first prints for all, and none waits for the dead."""

    failed = ending.FAILED

    def get_help(self, ctx: click.Context) -> str:
        """Return the help, nothing on ranks that do not print."""
        return super().get_help(ctx) if is_first_process() else ""

    def fail(self, error: BaseException) -> int:
        """Print why this rank failed, and end it at once; return 2 where all ranks are refused."""
        if not isinstance(error, ending.REFUSALS):
            ending.leave(super().fail(error))
        if is_first_process() or (isinstance(error, BadFile) and is_first_of_host()):
            super().fail(error)
        if not is_by_hand():
            ending.unwatch_termination()  # as the launcher does next, to all
        have_come = ending.arrivals()
        if have_come is None and ending.shares_command_line():
            # A launcher may end all ranks when one leaves so: let the first one print.
            time.sleep(0 if is_first_process() else _GRACE)
            end_other_ranks(ending.REFUSED)
            return ending.REFUSED
        if have_come is not None and ending.come_together(have_come, _PEER_WAIT):
            return ending.REFUSED
        if not is_first_process():
            # The launcher, if there is one, ends all ranks when the first one leaves so.
            time.sleep(_PEER_WAIT if have_come is None and not is_by_hand() else 0)
            super().fail(error)
        return ending.leave(ending.REFUSED)
