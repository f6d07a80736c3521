"""The command line of ``mpicoll.p2p``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from mpicoll.bench import cli
from mpicoll.errors import ArgumentError, UnknownName
from mpicoll.interfaces import TRANSPORTS
from mpicoll.text.names import split_names, with_all
from mpicoll.text.sizes import parse_size

SIZES = (8, 65536, 1 << 20, 4 << 20)
HELP = """Measure latency and bandwidth of every pair of ranks, and name those that stand out.

Pairs are measured one at a time. Sizes are the bytes of one message: the smallest is for latency,
the others for bandwidth, one way and both ways at once. The matrices show the largest.
"""
_FILE = click.Path(dir_okay=False, path_type=Path)
PARAMETERS: list[click.Parameter] = [
    cli.option("--backends", "--backend", callback=cli.named, metavar="A,B",
               help="mpi4py, torch, or both (default)."),
    cli.option(
        "--transports", "--transport", callback=cli.named, metavar="A,B|all",
        help="point-to-point, symmetric, cma, ipc, ...; by default all that the ranks have.",
    ),
    cli.option("--sizes", callback=cli.named, metavar="8,64K,4M",
               help="Bytes of a message (default 8,64K,1M,4M)."),
    cli.option(
        "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", shown=True,
        help="Where the buffers are: in the host's memory, or each on its rank's GPU.",
    ),
    cli.option(
        "--time", "--budget", "budget", type=click.FloatRange(0, min_open=True), default=30.0,
        shown=True, help="Seconds of measuring; every pair is visited three times at least.",
    ),
    cli.option(
        "-J", "-o", "--output", type=_FILE, metavar="FILE",
        help="Write pairs and fits there as JSON lines, when all is measured.",
    ),
    cli.option("--plot", type=_FILE, metavar="FILE.png", help="Draw heat maps there."),
    cli.option("--format", "layout", type=click.Choice(["table", "csv", "jsonl"]),
               default="table", shown=True),
    cli.option("--dry-run", "dry", is_flag=True,
               help="Print what joins the ranks and what would be measured."),
    cli.option("--seed", type=int, default=0, shown=True, help="Of the order of the visits."),
    cli.option(
        "-T", "--timeout", type=click.FloatRange(0), default=60.0, shown=True,
        help="Seconds after which a pair counts as hung; 0 waits for ever.",
    ),
    cli.option("--interface", metavar="NAME",
               help="Network interface of torch.distributed (loopback on one host)."),
    cli.ranks_per_node(),
]  # fmt: skip


@dataclass(frozen=True)
class Options:
    """The command line, checked; without `transports` all that there are are measured."""

    backends: tuple[str, ...]
    transports: tuple[str, ...]
    sizes: tuple[int, ...]
    device: str
    budget: float
    output: Path | None
    plot: Path | None
    layout: str
    dry: bool
    seed: int
    timeout: float
    interface: str | None


def parse(given: dict[str, Any], worlds: cli.Worlds) -> Options:
    """Check the command line; the result is the same on every rank.

    Raises:
        ArgumentError: a value is impossible.
    """
    sizes = tuple(map(parse_size, split_names(given["sizes"]))) if given["sizes"] else SIZES
    if not sizes or min(sizes) < 1:
        raise ArgumentError("a message between two ranks has at least one byte: see --sizes")
    transports = with_all(split_names(given["transports"] or ""), TRANSPORTS)
    for name in transports:
        if name not in TRANSPORTS:
            raise UnknownName("transport", name, TRANSPORTS)
    checked = {
        "backends": cli.backends(given["backends"], worlds),
        "transports": transports,
        "sizes": tuple(sorted(set(sizes))),
    }
    return Options(**given | checked)
