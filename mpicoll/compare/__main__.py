"""Compare two runs of the benchmark, case by case.

A / B is how many times as fast B is as A: the median of all ratios of a sample of A to a sample of
B, with the interval of the Mann-Whitney test. B is faster or slower if the difference exceeds the
margin and is significant. A tie is surely within 5 %, or within a larger margin. The chance of one
false verdict among all cases is 5 % (Holm). If native calls of the same libraries on the same
machine differ by more than their intervals, the margin and all intervals are widened by that
factor.

Exit status: 0 nothing is slower in B, 1 something is, 2 bad usage or files, 5 no case has a
verdict.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mpicoll.cli import ending
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
    help="Smallest significant difference that counts as faster or slower, in per cent.",
)  # fmt: skip
@option("--allow-undecided", is_flag=True, help="End with 0 if no case has a verdict.")
@option("--only-changes", is_flag=True, help="Show only cases that are faster or slower.")
@option("--format", "layout", type=click.Choice(list(LAYOUTS)), default="table", shown=True)
def main(
    first: Path, second: Path, margin: float, allow_undecided: bool, only_changes: bool, layout: str
) -> int:  # fmt: skip
    """Print the comparison, and return the exit status."""
    comparison = compare(load(first), load(second), margin / 100)
    if not any(row.first and row.second for row in comparison.rows):
        raise ArgumentError(f"{first} and {second} have no case in common")
    changes = [row for row in comparison.rows if row.verdict in ("faster", "slower")]
    LAYOUTS[layout](changes if only_changes else comparison.rows, sys.stdout)
    # Programs read these layouts, so lines for people go elsewhere.
    stream = sys.stderr if layout in ("csv", "jsonl") else sys.stdout
    for line in summary(comparison, margin):
        print(plain_markdown(line) if layout == "markdown" else line, file=stream)
    if not comparison.is_decided and not allow_undecided:
        return ending.UNDECIDED
    return int(comparison.counts()["slower"] > 0)


if __name__ == "__main__":
    main()
