"""The command ``mpicoll.p2p``: its flags, and how it runs on every rank."""

from __future__ import annotations

from typing import Any

import click

from mpicoll.cli import options
from mpicoll.cli.command import RanksCommand
from mpicoll.cli.options import OUTPUT_FILE, SECONDS, SIZES, list_option, option
from mpicoll.measurement.worlds import Worlds
from mpicoll.p2p import preflight
from mpicoll.p2p.options import parse
from mpicoll.p2p.run import run

_HELP = """Measure latency and bandwidth of every pair of ranks, and name the outliers.

Pairs are measured one at a time. Sizes are the bytes of one message: the smallest is for latency,
the others for bandwidth, one way and both ways at once. The matrices show the largest size.

With --preflight the command checks the hosts of a job instead: links of disjoint pairs of hosts
at once, the rates of all ranks, and the results of collectives. It names sick hosts, ranks and
links, prints lists of the other hosts for Slurm, MPICH and Open MPI, and ends with status 4 if
something is sick.
"""


@click.command("p2p", cls=RanksCommand, help=_HELP)
@options.backends
@list_option(
    "--transports", "--transport", metavar="A,B|all",
    help="point-to-point, symmetric, cma, ipc, ... Default: all transports of the ranks.",
)  # fmt: skip
@option("--sizes", type=SIZES, metavar="8,64K,4M", help="Bytes of a message (default 8,64K,1M,4M).")
@option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", shown=True,
    help="Memory of the buffers: the host's, or that of each rank's GPU.",
)  # fmt: skip
@option(
    "--time", "--budget", "budget", type=SECONDS, default=30.0, shown=True,
    help="Seconds of measuring. Without --preflight every pair is visited at least three times.",
)  # fmt: skip
@option(
    "-J", "-o", "--output", type=OUTPUT_FILE, metavar="FILE",
    help="Write pairs and fits as JSON lines at the end.",
)  # fmt: skip
@option("--plot", type=OUTPUT_FILE, metavar="FILE.png", help="Draw heat maps there.")
@option(
    "--format", "layout", type=click.Choice(["table", "csv", "jsonl"]), default="table", shown=True
)
@option(
    "--dry-run",
    "dry",
    is_flag=True,
    help="Print the links between the ranks, and the planned measurements.",
)
@option(
    "--preflight", is_flag=True,
    help="Check hosts, ranks and links before a job; status 4 if something is sick.",
)  # fmt: skip
@option(
    "--hostfile",
    type=OUTPUT_FILE,
    metavar="FILE",
    help="With --preflight: write the healthy hosts there, each once for each of its ranks.",
)
@options.seed
@options.timeout
@options.interface
@options.threads
@options.ranks_per_node
@click.pass_obj
def main(makers: Worlds, /, **flags: Any) -> int:
    """Measure every pair over these backends; return the exit status."""
    parsed = parse(flags, makers)
    return (preflight.run if parsed.preflight else run)(parsed, makers)
