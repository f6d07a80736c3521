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

from mpicoll.compare.comparison import compare, load
from mpicoll.errors import ArgumentError
from mpicoll.records import journal
from mpicoll.records.identity import Key

Record = dict[str, Any]
TWINS = "twins"
"""The kind of the lines that `mpicoll.bench.twins` writes."""


@dataclass(frozen=True)
class Claim:
    """How often something was right, of how often it was tried, and the share that must be.

    >>> found = Claim("ties", 195, 200, 0.95)
    >>> found.holds, [round(each, 3) for each in found.interval()]
    (True, [0.943, 0.989])
    """

    what: str
    right: int
    tried: int
    target: float | None

    @property
    def holds(self) -> bool:
        """Whether the share that was right reaches the target."""
        return self.target is None or self.right >= self.target * self.tried

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


def of_runs(first: Mapping[Key, Record], second: Mapping[Key, Record]) -> list[Claim]:
    """Return in how many cases two runs of one command agree.

    By `mpicoll.compare`, which takes the native calls for controls of the machine; and, of which
    nothing is claimed, by the intervals of the medians, which know of one run only.
    """
    times = [(a["time_us"], second[case]["time_us"]) for case, a in first.items() if case in second]
    both = [(a, b) for a, b in times if a and b]
    overlap = sum(a["low"] <= b["high"] and b["low"] <= a["high"] for a, b in both)
    verdicts = compare(first, second).counts()
    judged = verdicts.total() - verdicts["no verdict"]
    return [
        Claim("two runs agree: compared", verdicts["tie"], judged, 0.90),
        Claim("two runs agree: intervals of medians", overlap, len(both), None),
    ]


def claims(paths: Sequence[Path]) -> list[Claim]:
    """Return what these files say.

    Raises:
        ArgumentError: one cannot be read, or they say nothing.
    """
    lines = {path: journal.read(path) for path in paths}
    found = of_twins(line for each in lines.values() for line in each)
    runs = [load(path) for path, each in lines.items() if journal.cases(each)]
    if len(runs) == 2:
        found += of_runs(*runs)
    found = [each for each in found if each.tried]
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
            f"{low:.1%} .. {high:.1%}", *_judged(each),
        )  # fmt: skip
    console.print(table)


def _judged(claim: Claim) -> tuple[str, str]:
    if claim.target is None:
        return "-", ""
    return f"{claim.target:.0%}", "holds" if claim.holds else "FAILS"


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, help=__doc__)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def main(files: Sequence[Path]) -> None:
    """Read the files, print what holds, and leave with the exit status."""
    try:
        found = claims(files)
    except (ArgumentError, KeyError) as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    show(found, Console(width=None if sys.stdout.isatty() else 110))
    sys.exit(int(not all(each.holds for each in found)))


if __name__ == "__main__":
    main()
