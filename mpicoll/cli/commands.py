"""The commands of a package under one name: ``mpicoll bench`` is ``python -m mpicoll.bench``.

A command is imported when it is run, or when a shell completes its flags. So the list of commands
appears at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click
from click.shell_completion import CompletionItem

from mpicoll.cli.command import RanksCommand
from mpicoll.errors import brief, closest
from mpicoll.machine.launchers import is_first_process

Sections = Mapping[str, Mapping[str, str]]
"""The commands by purpose: the name of each and what it does, in one line."""


class Commands(RanksCommand, click.Group):
    """All commands of a package.

    Args:
        package: the package whose modules are the commands.
        sections: the commands in the order of the help.
        versions: returns the lines of ``--version``.
        former_names: names that still run, and that the help does not list.
    """

    takes_common_options = False

    def __init__(
        self, package: str, sections: Sections, versions: Callable[[], Sequence[str]], text: str,
        former_names: Sequence[str] = (),
    ) -> None:  # fmt: skip
        show_versions = click.Option(
            ["--version"], is_flag=True, expose_value=False, is_eager=True,
            callback=_version_callback(versions), help="Print the versions, and exit.",
        )  # fmt: skip
        super().__init__(package, help=text, params=[show_versions], subcommand_metavar="COMMAND")
        self.package, self.sections, self.former_names = package, sections, former_names

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None,
        complete_var: str | None = None, standalone_mode: bool = True, **extra: Any,
    ) -> Any:  # fmt: skip
        """Run the command that the first argument names; print the help without arguments."""
        arguments = (sys.argv[1:] if args is None else list(args)) or ["--help"]
        if arguments and (self._is_command(arguments[0]) or arguments[0] in self.former_names):
            from mpicoll.cli.programs import run_module

            return run_module(f"{self.package}.{arguments[0]}", arguments[1:])
        # The name also decides the variable that a shell's completion sets.
        return super().main(
            arguments, prog_name or self.package, complete_var, standalone_mode, **extra
        )

    def _is_command(self, name: str) -> bool:
        return any(name in commands for commands in self.sections.values())

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [name for commands in self.sections.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command for a shell that completes its flags; None for an unknown name."""
        if not self._is_command(cmd_name):
            return None
        module = f"{self.package}.{cmd_name}"
        spec = find_spec(module)
        is_package = spec is not None and spec.submodule_search_locations is not None
        command = import_module(f"{module}.__main__" if is_package else module).main
        if isinstance(command, click.Command):
            return command
        program = click.Argument(["program"], type=click.Path(), nargs=-1)
        return click.Command(cmd_name, params=[program], callback=command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names.

        Raises:
            UsageError: there is no such command.
        """
        if not self._is_command(args[0]):
            command = closest(args[0], self.list_commands(ctx))
            hint = f" Did you mean {command!r}?" if command else ""
            raise click.UsageError(f"No such command {brief(args[0])}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with some letters; nothing is imported."""
        names = [
            CompletionItem(name, help=line)
            for commands in self.sections.values()
            for name, line in commands.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by purpose."""
        for purpose, commands in self.sections.items():
            with formatter.section(purpose):
                formatter.write_dl(list(commands.items()), col_max=20)


def _version_callback(versions: Callable[[], Sequence[str]]) -> Callable[..., None]:
    def show(ctx: click.Context, _option: click.Parameter, is_wanted: bool) -> None:
        if not is_wanted:
            return
        if is_first_process():
            for line in versions():
                click.echo(line)
        ctx.exit()

    return show
