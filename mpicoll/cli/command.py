"""The classes of commands: how they parse, what they print on errors, how they leave.

Exit status: what the command returns, None being 0; 1: an unforeseen error; 2: bad usage;
130: interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
import time
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NoReturn

import click

from mpicoll.errors import ArgumentError
from mpicoll.machine.launchers import find_launch, is_first_process

_GRACE = 1.5
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Command(click.Command):
    """A command of one process."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        keywords["context_settings"] = _SETTINGS | keywords.get("context_settings", {})
        super().__init__(*arguments, **keywords)

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None,
        complete_var: str | None = None, standalone_mode: bool = True, **extra: Any,
    ) -> Any:  # fmt: skip
        """Parse the command line, run, and leave with the exit status."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        sys.exit(self._status(args, prog_name, complete_var, **extra))

    def _status(
        self, args: Sequence[str] | None, prog_name: str | None, complete_var: str | None,
        **extra: Any,
    ) -> int:  # fmt: skip
        try:
            return super().main(args, prog_name, complete_var, False, **extra) or 0
        except click.ClickException as error:
            return self.refuse(error)
        except ArgumentError as error:
            return self.refuse(click.ClickException(str(error)))
        except (KeyboardInterrupt, click.Abort):
            return self.interrupt()
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            # The reader of the output has closed it, as `head` does: leave nothing to flush.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1

    def refuse(self, error: click.ClickException) -> int:
        """Print why the command cannot do what it was asked; return the exit status."""
        error.show(file=sys.stderr)
        return 2

    def interrupt(self) -> int:
        """Return the exit status after ctrl-C."""
        return 130


class RanksCommand(Command):
    """A command of all ranks of a launch: the first prints for all, and none waits for the dead."""

    def _status(
        self, args: Sequence[str] | None, prog_name: str | None, complete_var: str | None,
        **extra: Any,
    ) -> int:  # fmt: skip
        sys.excepthook = _fail
        return super()._status(args, prog_name, complete_var, **extra)

    def get_help(self, ctx: click.Context) -> str:
        """Return the help, nothing on ranks that do not print."""
        return super().get_help(ctx) if is_first_process() else ""

    def refuse(self, error: click.ClickException) -> int:
        """Print on the first rank why the command cannot do this; return the exit status."""
        if is_first_process():
            super().refuse(error)
            sys.stderr.flush()
        else:
            # The launcher ends all ranks when one leaves so: let the first one print.
            time.sleep(_GRACE)
        return 2

    def interrupt(self) -> int:
        """End at once."""
        leave(130)


def _fail(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Report an unforeseen error, and end the job."""
    launch = find_launch()
    print(f"rank {launch.rank if launch else 0} failed on {os.uname().nodename}:", file=sys.stderr)
    traceback.print_exception(kind, error, trace)
    leave(1)


def leave(status: int) -> NoReturn:
    """End this process at once: others may wait for it, and the launcher must end them."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
