"""The command ``mpicoll.tune``: its flags, and how it runs on every rank."""

from __future__ import annotations

from typing import Any

import click

from mpicoll.cli import options
from mpicoll.cli.command import RanksCommand
from mpicoll.cli.options import (
    OUTPUT_FILE,
    SECONDS,
    SIZES,
    collective_names,
    list_option,
    option,
)
from mpicoll.errors import ArgumentError
from mpicoll.measurement.cases import CPU, CUDA, Wanted
from mpicoll.measurement.worlds import Worlds, backend_names
from mpicoll.selection import tables
from mpicoll.text.names import swept_names
from mpicoll.tune.run import Options, run

DEFAULT_SIZES = tuple(4 << (2 * step) for step in range(12))
_HELP = """Measure which algorithms algorithm="auto" should run here, and write a decision table.

Run it with as many ranks as the programs that will use the table. Entries for other numbers of
ranks are kept. COLLECTIVES are names, separated by spaces or commas. The default is all.

python -m mpicoll.tune export --to openmpi -o FILE measures a library's own algorithms and writes a
table for that library instead. See its --help (--ranks, --collectives, --sizes, --launches,
--environment, --library).
"""


@click.command("tune", cls=RanksCommand, help=_HELP)
@options.collectives
@options.backends
@list_option(
    "--algorithms", "--algorithm", metavar="A,B|all",
    help="Additional candidates: 'chain(segments=16:256:*2)', openmpi_default, ring@cma, ...",
)  # fmt: skip
@option(
    "--device", type=click.Choice([CPU, CUDA]), default=CPU, shown=True,
    help="Memory of the arrays. A table has separate ranges for host and GPU.",
)  # fmt: skip
@option("--sizes", type=SIZES, metavar="4,1K,1M", help="Total bytes (default 4 to 16M by 4).")
@option(
    "--time", "budget", type=SECONDS, default=240.0, shown=True, help="Seconds for the whole run."
)
@option(
    "-o", "--output", type=OUTPUT_FILE, metavar="FILE",
    help=f"The table (default: ${tables.VARIABLE}, else ~/.cache/mpicoll/table.json).",
)  # fmt: skip
@options.timeout
@options.interface
@options.threads
@option("--resume", is_flag=True, help="Skip the collectives that the table already has.")
@options.ranks_per_node
@click.pass_obj
def main(makers: Worlds, /, **flags: Any) -> int:
    """Measure over these backends and write the table; return the exit status."""
    return run(parse(flags, makers), makers)


def parse(flags: dict[str, Any], makers: Worlds) -> Options:
    """Check the command line; the result is the same on every rank.

    Raises:
        ArgumentError: a value is impossible.
    """
    names = collective_names(*flags["collectives"])
    sizes = flags["sizes"] or DEFAULT_SIZES
    more = swept_names(flags["algorithms"] or "")
    backends = backend_names(flags["backends"], makers, flags["threads"])
    if "auto" in more:
        raise ArgumentError(
            "auto is no candidate, as this command decides what it runs: name others"
        )
    return Options(
        Wanted(names, more, tuple(sorted(set(sizes))), device=flags["device"]), backends,
        flags["budget"], flags["output"] or tables.default_path(), flags["timeout"],
        flags["interface"], flags["resume"],
    )  # fmt: skip
