"""Count how often the measuring is right where what is right is known.

``python -m mpicoll.bench.trust FILES`` reads what `mpicoll.bench.twins` wrote: how often a call
against itself was called a tie, and how often a known delay was found. Two files of records of
the benchmark, of one machine and one command, tell how many of their cases agree.
Exit status: 0 all that is claimed holds, 1 something does not, 2 bad files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from mpicoll.bench import journal
from mpicoll.bench.identity import key
from mpicoll.errors import ArgumentError

Record = Mapping[str, Any]
TWINS = "twins"
"""The kind of the lines that `mpicoll.bench.twins` writes."""


@dataclass(frozen=True)
class Claim:
    """How often something was right, of how often it was tried, and how often it must be.

    >>> found = Claim("ties", 195, 200, 0.95)
    >>> found.holds, [round(each, 3) for each in found.interval()]
    (True, [0.943, 0.989])
    """

    what: str
    right: int
    tried: int
    target: float

    @property
    def holds(self) -> bool:
        """Whether the share that was right reaches the target."""
        return self.right >= self.target * self.tried

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return what the share may be in truth (Wilson 1927)."""
        z, n = NormalDist().inv_cdf((1 + confidence) / 2), self.tried
        share = self.right / n
        middle = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        return middle - half, middle + half


def of_twins(lines: Iterable[Record]) -> list[Claim]:
    """Return what comparisons of a call with itself say, one claim for each delay."""
    verdicts: dict[float, list[str]] = {}
    for line in lines:
        if line.get("kind") == TWINS:
            verdicts.setdefault(line["delay"], []).append(line["verdict"])
    return [
        Claim(
            f"a delay of {delay:g} % is found" if delay else "a call ties with itself",
            sum(each == ("slower" if delay else "tie") for each in found), len(found), 0.95,
        )
        for delay, found in sorted(verdicts.items())
    ]  # fmt: skip


def of_runs(first: Iterable[Record], second: Iterable[Record]) -> Claim | None:
    """Return in how many cases the intervals of two medians overlap, None without a case."""
    before = {key(each): each["time_us"] for each in journal.cases(first) if each["time_us"]}
    now = {key(each): each["time_us"] for each in journal.cases(second) if each["time_us"]}
    both = before.keys() & now.keys()
    agree = sum(
        before[case]["low"] <= now[case]["high"] and now[case]["low"] <= before[case]["high"]
        for case in both
    )
    return Claim("two runs agree", agree, len(both), 0.90) if both else None


def claims(files: Sequence[Sequence[Record]]) -> list[Claim]:
    """Return what the lines of these files say.

    Raises:
        ArgumentError: they say nothing.
    """
    found = of_twins(line for lines in files for line in lines)
    runs = [lines for lines in files if journal.cases(lines)]
    if len(runs) == 2 and (agreement := of_runs(*runs)):
        found.append(agreement)
    if not found:
        raise ArgumentError("give what mpicoll.bench.twins wrote, or two runs of the benchmark")
    return found


def show(found: Sequence[Claim], console: Console) -> None:
    """Print each claim with the share that was right and its interval."""
    table = Table()
    for name in ("what", "right", "of", "share", "95 % interval", "target", ""):
        table.add_column(name, justify="left" if name == "what" else "right")
    for each in found:
        low, high = each.interval()
        table.add_row(
            each.what, str(each.right), str(each.tried), f"{each.right / each.tried:.1%}",
            f"{low:.1%} .. {high:.1%}", f"{each.target:.0%}", "holds" if each.holds else "FAILS",
        )  # fmt: skip
    console.print(table)


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, help=__doc__)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def main(files: Sequence[Path]) -> None:
    """Read the files, print what holds, and leave with the exit status."""
    try:
        found = claims([journal.read(each) for each in files])
    except (ArgumentError, KeyError) as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    show(found, Console(width=None if sys.stdout.isatty() else 110))
    sys.exit(int(not all(each.holds for each in found)))


if __name__ == "__main__":
    main()
