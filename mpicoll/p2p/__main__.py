"""Measure every pair of ranks, over mpi4py and torch.distributed, and name the slow ones.

``mpirun -n 4 python -m mpicoll.p2p`` prints matrices of latency and bandwidth. Exit status 0:
every message arrived intact; 1: some did not, or the run failed; 2: bad usage; 3: a pair hung;
143: ended by SIGTERM, with what was measured until then.
"""

from __future__ import annotations

from typing import NoReturn

import click

from mpicoll.bench import cli
from mpicoll.cli.worlds import BOTH
from mpicoll.p2p.options import HELP, PARAMETERS, parse
from mpicoll.p2p.run import run


def start(worlds: cli.Worlds) -> NoReturn:
    """Run the command over these backends and leave with its exit status."""
    command = click.Command("p2p", callback=lambda **given: parse(given, worlds), help=HELP)
    command.params += PARAMETERS
    cli.run_command(command, lambda options: run(options, worlds))


if __name__ == "__main__":
    start(BOTH)
