"""Compare two runs of the benchmark, case by case.

A / B is how many times as fast B is as A: the median of all ratios of a sample of A to one of B,
with the interval of the Mann-Whitney test. B is faster or slower where the difference is surely
more than the margin, and significant among all cases (Holm): the probability that any of them is
called so by accident is 5 %. Where native calls of the same libraries on the same machine differ
by more than their intervals, margin and intervals are widened by as much.

Exit status: 0 nothing is slower in B, 1 something is, 2 bad usage or files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mpicoll.cli.command import Command
from mpicoll.cli.options import FILE, Real, option
from mpicoll.compare.comparison import compare, load
from mpicoll.compare.rendering import LAYOUTS, summary
from mpicoll.errors import ArgumentError
from mpicoll.text.printable import plain_markdown


@click.command(cls=Command, help=__doc__)
@click.argument("first", type=FILE, metavar="A")
@click.argument("second", type=FILE, metavar="B")
@option(
    "--margin", type=Real(0, 1000), default=3.0, shown=True,
    help="Per cent by which a case must surely differ to be called faster or slower.",
)  # fmt: skip
@option("--only-changes", is_flag=True, help="Show only what is faster or slower.")
@option("--format", "layout", type=click.Choice(list(LAYOUTS)), default="table", shown=True)
def main(first: Path, second: Path, margin: float, only_changes: bool, layout: str) -> int:
    """Print the comparison, and return the exit status."""
    comparison = compare(load(first), load(second), margin / 100)
    if not any(row.first and row.second for row in comparison.rows):
        raise ArgumentError(f"{first} and {second} have no case in common")
    changes = [row for row in comparison.rows if row.verdict in ("faster", "slower")]
    LAYOUTS[layout](changes if only_changes else comparison.rows, sys.stdout)
    # A program reads these: the lines for people must not follow them.
    stream = sys.stderr if layout in ("csv", "jsonl") else sys.stdout
    for line in summary(comparison, margin):
        print(plain_markdown(line) if layout == "markdown" else line, file=stream)
    return int(comparison.counts()["slower"] > 0)


if __name__ == "__main__":
    main()
