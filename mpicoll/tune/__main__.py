"""Find what ``algorithm="auto"`` should run on this machine, over mpi4py and torch.distributed.

``mpirun -n 4 python -m mpicoll.tune`` measures and writes a decision table.
"""

from __future__ import annotations

from typing import NoReturn

import click

from mpicoll.bench import cli
from mpicoll.cli.worlds import BOTH
from mpicoll.tune.options import HELP, PARAMETERS, parse
from mpicoll.tune.run import run


def start(worlds: cli.Worlds) -> NoReturn:
    """Run the command over these backends and leave with its exit status."""
    command = click.Command("tune", callback=lambda **given: parse(given, worlds), help=HELP)
    command.params += PARAMETERS
    cli.run_command(command, lambda options: run(options, worlds))


if __name__ == "__main__":
    start(BOTH)
