"""Tell where a program has spent its communication, and which algorithm would be faster.

``mpirun -n 4 python -m mpicoll.run --trace DIR program.py`` leaves the flight files of all ranks in
a directory, as ``torchcoll.run --trace DIR`` does. The program may still run, or may have been
killed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

import click
from rich.table import Table

from mpicoll.cli.command import Command
from mpicoll.cli.options import FILE, FOLDER, SECONDS, Whole, option
from mpicoll.cli.tables import print_table
from mpicoll.text.printable import printable
from mpicoll.text.sizes import bytes_text
from mpicoll.trace.messages import Messages
from mpicoll.trace.pricing import library_times, machine_of, prices
from mpicoll.trace.reading import Kind, load
from mpicoll.trace.replay import replay as measure


@click.command("trace", cls=Command, help=__doc__)
@click.argument("directory", type=FOLDER, metavar="DIR")
@option("--top", type=Whole(1, 1000), default=20, shown=True, help="Kinds of calls to show.")
@option(
    "--from", "source", type=FILE,
    help="Price by these records of mpicoll.p2p or mpicoll.bench; needed between nodes. Those of "
    "mpicoll.bench also tell how long MPI's own call takes.",
)  # fmt: skip
@option(
    "--replay", type=Whole(0, 100), default=0, shown=True,
    help="Measure so many kinds again, under every algorithm, by mpicoll.bench.",
)  # fmt: skip
@option(
    "--time", "seconds", type=SECONDS, default=40.0, shown=True,
    help="Seconds for each kind that is measured again.",
)  # fmt: skip
def main(directory: Path, top: int, source: Path | None, replay: int, seconds: float) -> None:
    """Print a line per kind of call, the longest first."""
    whole, kinds, messages, remarks = load(directory)
    machine, by_library = machine_of(kinds, source), library_times(source)
    table = Table(box=None, pad_edge=False)
    for name in ("call", "bytes", "ranks", "of", "line", "algorithm"):
        table.add_column(name, no_wrap=True)
    for name in (
        "calls",
        "seconds",
        "share",
        "waiting",
        "least us",
        "median",
        "99 %",
        "mean",
        *(["by MPI"] if by_library else []),
        "priced",
    ):
        table.add_column(name, justify="right")
    table.add_column("cheapest", no_wrap=True)
    for kind, priced in zip_longest(kinds[:top], prices(kinds[:top], machine)):
        table.add_row(
            kind.call, bytes_text(kind.nbytes) if kind.nbytes else "",
            str(kind.ranks) if kind.is_local else f"{kind.ranks} on {len(kind.nodes)} nodes",
            kind.communicator, kind.line, kind.algorithm, str(kind.calls),
            f"{kind.seconds:.3f}", f"{kind.seconds / whole:.1%}",
            "" if kind.waiting is None else f"{kind.waiting:.0%}", f"{kind.least_us:.1f}",
            f"{kind.quantile_us(0.5):.1f}", f"{kind.quantile_us(0.99):.1f}", f"{kind.mean_us:.1f}",
            *([_time_of(kind, by_library)] if by_library else []),
            f"{priced.ran:.1f}" if priced and priced.ran is not None else "",
            f"{priced.cheapest} {priced.cheapest_us:.1f}" if priced else "",
        )  # fmt: skip
    print_table(table, 200)
    spent = sum(kind.seconds for kind in kinds)
    print(f"{spent:.3f} s of {whole:.3f} s in collectives, {spent / whole:.1%}: means of all ranks")
    if messages:
        _print_messages(messages[:top], whole)
    for remark in remarks:
        print(printable(remark))
    for line in machine.sources(kinds):
        print(printable(f"prices in us {line}"))
    replayable = [kind for kind in kinds if kind.ranks > 1 and kind.contract is not None]
    measured = [measure(kind, seconds) for kind in replayable[:replay]]
    for kind in measured:
        print(printable(str(kind)))


def _time_of(kind: Kind, by_library: Mapping[tuple[str, int, int, int], float]) -> str:
    """Return the microseconds of MPI's own call, "" if the records lack it."""
    us = by_library.get((kind.call, kind.ranks, max(1, len(kind.nodes)), kind.nbytes))
    return "" if us is None else f"{us:.1f}"


def _print_messages(messages: Sequence[Messages], whole: float) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("message or wait", "line"):
        table.add_column(name, no_wrap=True)
    for name in ("calls", "seconds", "share", "mean us"):
        table.add_column(name, justify="right")
    for row in messages:
        table.add_row(
            row.call, row.line, str(row.calls), f"{row.seconds:.3f}", f"{row.seconds / whole:.1%}",
            f"{1e6 * row.seconds / row.calls:.1f}",
        )  # fmt: skip
    print_table(table, 200)


if __name__ == "__main__":
    main()
