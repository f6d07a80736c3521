"""Tell where a program has spent its communication, and which algorithm would be faster.

``MPICOLL_TRACE=trace.jsonl mpirun -n 4 python -m mpicoll.run program.py`` writes the file. Where
the mean of a kind of calls is far above its shortest, ranks waited for each other. The program may
still run, or may have been killed.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

import click
from rich.table import Table

from mpicoll.cli.command import Command
from mpicoll.cli.options import FILE, SECONDS, Whole, option
from mpicoll.cli.tables import print_table
from mpicoll.text.printable import printable
from mpicoll.text.sizes import bytes_text
from mpicoll.trace.pricing import machine_of, of_call, prices
from mpicoll.trace.reading import load
from mpicoll.trace.replay import replay as measure


@click.command("trace", cls=Command, help=__doc__)
@click.argument("trace", type=FILE, metavar="FILE")
@option("--top", type=Whole(1, 1000), default=20, shown=True, help="Kinds of calls to show.")
@option(
    "--from", "source", type=FILE,
    help="Price by these records of mpicoll.p2p or mpicoll.bench; needed between nodes.",
)  # fmt: skip
@option(
    "--replay", type=Whole(0, 100), default=0, shown=True,
    help="Measure so many kinds again, under every algorithm, by mpicoll.bench.",
)  # fmt: skip
@option(
    "--time", "seconds", type=SECONDS, default=40.0, shown=True,
    help="Seconds for each kind that is measured again.",
)  # fmt: skip
def main(trace: Path, top: int, source: Path | None, replay: int, seconds: float) -> None:
    """Print a line per kind of call, the longest first."""
    whole, kinds, remarks = load(trace)
    machine = machine_of(kinds, source)
    table = Table(box=None, pad_edge=False)
    for name in ("call", "bytes", "ranks", "of", "algorithm"):
        table.add_column(name, no_wrap=True)
    for name in ("calls", "seconds", "share", "least us", "median", "99 %", "mean", "priced"):
        table.add_column(name, justify="right")
    table.add_column("cheapest", no_wrap=True)
    for kind, priced in zip_longest(kinds[:top], prices(kinds[:top], machine)):
        table.add_row(
            kind.call, bytes_text(kind.bytes_per_rank),
            str(kind.ranks) if kind.is_local else f"{kind.ranks} on {len(kind.nodes)} nodes",
            kind.communicator,
            f"{kind.algorithm}@{kind.transport}".rstrip("@"), str(kind.calls),
            f"{kind.seconds:.3f}", f"{kind.seconds / whole:.1%}", f"{kind.least_us:.1f}",
            f"{kind.quantile_us(0.5):.1f}", f"{kind.quantile_us(0.99):.1f}", f"{kind.mean_us:.1f}",
            f"{priced.ran:.1f}" if priced and priced.ran is not None else "",
            f"{priced.cheapest} {priced.cheapest_us:.1f}" if priced else "",
        )  # fmt: skip
    print_table(table, 180)
    spent = sum(kind.seconds for kind in kinds)
    print(f"{spent:.3f} s of {whole:.3f} s in collectives, {spent / whole:.1%}: means of all ranks")
    for remark in remarks:
        print(printable(remark))
    for line in machine.sources(kinds):
        print(printable(f"prices in us {line}"))
    replayable = [kind for kind in kinds if kind.ranks > 1 and of_call(kind) is not None]
    measured = [measure(kind, seconds) for kind in replayable[:replay]]
    for kind in measured:
        print(printable(str(kind)))


if __name__ == "__main__":
    main()
