"""The command line of ``mpicoll.tune``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from mpicoll.bench import cli
from mpicoll.errors import ArgumentError
from mpicoll.measurement.cases import Wanted
from mpicoll.notation.contract import collective
from mpicoll.selection import tables
from mpicoll.text.names import split_names, swept_names
from mpicoll.text.sizes import parse_size

SIZES = tuple(4 << (2 * step) for step in range(12))
HELP = """Find what algorithm="auto" should run here, and write it into a decision table.

Run it with as many ranks as the programs that will use the table; entries for other numbers of
ranks are kept. COLLECTIVES are names, separated by spaces or commas; all by default.
"""
PARAMETERS: list[click.Parameter] = [
    click.Argument(["collectives"], nargs=-1, metavar="[COLLECTIVES]..."),
    cli.option("--backends", "--backend", callback=cli.named, metavar="A,B",
               help="mpi4py, torch, or both (default)."),
    cli.option(
        "--algorithms", "--algorithm", callback=cli.named, metavar="A,B|all",
        help="Try these too: 'chain(segments=16:256:*2)', openmpi_default, ring@cma, ...",
    ),
    cli.option("--sizes", callback=cli.named, metavar="4,1K,1M",
               help="Total bytes (default 4 to 16M by 4)."),
    cli.option(
        "--time", "budget", type=click.FloatRange(0, min_open=True), default=240.0, shown=True,
        help="Seconds for the whole run.",
    ),
    cli.option(
        "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
        help=f"The table (default: ${tables.VARIABLE}, else ~/.cache/mpicoll/table.json).",
    ),
    cli.option(
        "-T", "--timeout", type=click.FloatRange(0), default=60.0, shown=True,
        help="Seconds after which a case counts as hung; 0 waits for ever.",
    ),
    cli.option("--interface", metavar="NAME", help="Network interface of torch.distributed."),
    cli.option("--resume", is_flag=True, help="Leave out the collectives that the table has."),
    cli.ranks_per_node(),
]  # fmt: skip


@dataclass(frozen=True)
class Options:
    """The command line, checked."""

    wanted: Wanted
    backends: tuple[str, ...]
    budget: float
    output: Path
    timeout: float
    interface: str | None
    resume: bool


def parse(given: dict[str, Any], worlds: cli.Worlds) -> Options:
    """Check the command line; the result is the same on every rank.

    Raises:
        ArgumentError: a value is impossible.
    """
    asked = [name for each in given["collectives"] for name in split_names(each)]
    names = tuple(each if each == "all" else collective(each).name for each in asked)
    sizes = tuple(map(parse_size, split_names(given["sizes"]))) if given["sizes"] else SIZES
    more = swept_names(given["algorithms"] or "")
    if "auto" in more:
        raise ArgumentError("auto is what this command decides: name other algorithms")
    return Options(
        Wanted(names, more, tuple(sorted(set(sizes)))), cli.backends(given["backends"], worlds),
        given["budget"], given["output"] or tables.default_path(), given["timeout"],
        given["interface"], given["resume"],
    )  # fmt: skip
