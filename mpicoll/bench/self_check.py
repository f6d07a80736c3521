"""Count how often the benchmark is right where the truth is known.

``python -m mpicoll.bench.trust FILES`` reads the comparisons of `mpicoll.bench.twins`: how often a
call against itself was called a tie, and how often a known delay was found. Of two files of records
of the benchmark, of one machine and one command, it counts how many cases agree.

Several launches count as such: of six files of `mpicoll.bench.twins` and more the ratios of a call
are taken over launches. Of two whole studies of a machine, ``--studies DIR DIR``, it counts how
many verdicts agree, against native and against the strongest native, and prints those that do not.
Exit status: 0 all claims hold, 1 some do not, 2 bad files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import cast

import click
import scipy
from rich.table import Table

from mpicoll.cli.command import Command
from mpicoll.cli.options import FILE, Whole, option
from mpicoll.cli.tables import print_table
from mpicoll.compare.comparison import compare, load
from mpicoll.errors import ArgumentError
from mpicoll.measurement.launches import is_undecided
from mpicoll.measurement.statistics import is_enough, ratio_of
from mpicoll.records import reading
from mpicoll.records.identity import Key
from mpicoll.records.lines import AARecord, CaseRecord, Speedup
from mpicoll.records.reading import only
from mpicoll.text.numbers import number
from mpicoll.text.printable import printable
from mpicoll.text.sizes import size_text


@dataclass(frozen=True)
class Claim:
    """How often something was right, of how often it was tried, and the share that must be.

    >>> found = Claim("ties", 195, 200, 0.95)
    >>> found.holds, [round(each, 3) for each in found.interval()]
    (True, [0.943, 0.989])
    """

    name: str
    right: int
    tried: int
    target: float | None

    @property
    def holds(self) -> bool:
        """Whether the share that was right reaches the target."""
        return self.target is None or self.right >= self.target * self.tried

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the bounds of the true share (Wilson 1927)."""
        found = scipy.stats.binomtest(self.right, self.tried).proportion_ci(
            confidence, method="wilson"
        )
        return float(found.low), float(found.high)


def of_aa_test(records: Iterable[AARecord]) -> list[Claim]:
    """Return a claim for each delay: how often the comparisons of a call with itself are right."""
    verdicts: dict[float, list[str]] = {}
    for each in records:
        verdicts.setdefault(each.delay, []).append(each.verdict)
    return _of_delays(verdicts)


def _of_delays(verdicts: Mapping[float, Sequence[str]], how: str = "") -> list[Claim]:
    """Return a claim for each delay, of these verdicts on it."""
    return [
        Claim(
            how + (f"a delay of {delay:g} % is found" if delay else "a call ties with itself"),
            sum(each == ("slower" if delay else "tie") for each in found), len(found), 0.95,
        )
        for delay, found in sorted(verdicts.items())
    ]  # fmt: skip


def of_runs(first: Mapping[Key, CaseRecord], second: Mapping[Key, CaseRecord]) -> list[Claim]:
    """Return in how many cases two runs of one command agree.

    By `mpicoll.compare`, which takes the native calls for controls of the machine; and, without a
    target, by the intervals of the medians, which know of one run only.
    """
    times = [(a.time_us, second[case].time_us) for case, a in first.items() if case in second]
    both = [(a, b) for a, b in times if a and b]
    overlap = sum(a.low <= b.high and b.low <= a.high for a, b in both)
    verdicts = compare(first, second).counts()
    judged = verdicts.total() - verdicts["no verdict"]
    return [
        Claim("two runs agree: compared", verdicts["tie"], judged, 0.90),
        Claim("two runs agree: intervals of medians", overlap, len(both), None),
    ]


def over_launches(launches: Sequence[Sequence[AARecord]]) -> list[Claim]:
    """Return the same claims where a call's ratio is the median over launches.

    Args:
        launches: the comparisons of each; of a call that one compared several times, the median.
    """
    ratios: dict[tuple[float, str, str, int], list[float]] = {}
    for one in launches:
        own: dict[tuple[float, str, str, int], list[float]] = {}
        for each in one:
            if isinstance(each.ratio, float):
                place = each.delay, each.case, each.backend, each.ranks
                own.setdefault(place, []).append(each.ratio)
        for place, found in own.items():
            ratios.setdefault(place, []).append(median(found))
    verdicts: dict[float, list[str]] = {}
    for (delay, *_), found in sorted(ratios.items()):
        ratio = ratio_of(found)
        if ratio is not None and is_enough(len(found)):
            verdicts.setdefault(delay, []).append(ratio.verdict)
    return _of_delays(verdicts, "over launches, ")


def _added(found: Iterable[Claim]) -> list[Claim]:
    """Return one claim for each name."""
    added: dict[str, Claim] = {}
    for each in found:
        last = added.get(each.name, replace(each, right=0, tried=0))
        added[each.name] = replace(
            each, right=last.right + each.right, tried=last.tried + each.tried
        )
    return [*added.values()]


def of_studies(first: Mapping[Key, CaseRecord], second: Mapping[Key, CaseRecord]) -> list[Claim]:
    """Return in how many verdicts two studies of a machine agree.

    What either could not decide is left out; how often both could is told, without a target.
    """
    found = []
    for rival in _RIVALS:
        both = list(_verdicts(first, second, rival))
        decided = [(a, b) for _, a, b in both if a is not None and b is not None]
        agree = sum(a.verdict == b.verdict for a, b in decided)
        found += [
            Claim(f"two studies agree: against {rival}", agree, len(decided), 0.90),
            Claim(f"two studies decide: against {rival}", len(decided), len(both), None),
        ]
    return found


def disagreements(first: Mapping[Key, CaseRecord], second: Mapping[Key, CaseRecord]) -> list[str]:
    """Return the verdicts in which two studies differ, in words."""
    return [
        f"{case.collective} {case.algorithm} of {case.environment or case.backend}, "
        f"{size_text(case.bytes_total)}, against {rival}: {_ratio_text(a)}, then {_ratio_text(b)}"
        for rival in _RIVALS
        for case, a, b in _verdicts(first, second, rival)
        if a is not None and b is not None and a.verdict != b.verdict
    ]


def _ratio_text(found: Speedup) -> str:
    return f"{found.verdict} ({number(found.ratio)}, {number(found.low)} to {number(found.high)})"


_RIVALS = "native", "the strongest"


def _verdicts(
    first: Mapping[Key, CaseRecord], second: Mapping[Key, CaseRecord], rival: str
) -> Iterator[tuple[CaseRecord, Speedup | None, Speedup | None]]:
    """Yield the cases of which both have a ratio over launches, None where it is undecided."""
    for case, one in first.items():
        other = second.get(case)
        if other is None or not (isinstance(one.launches, int) and isinstance(other.launches, int)):
            continue
        ratios = [
            each.speedup_vs_native if rival == "native" else each.speedup_vs_strongest
            for each in (one, other)
        ]
        if all(isinstance(each, Speedup) for each in ratios):
            a, b = (None if is_undecided(each) else each for each in cast(list[Speedup], ratios))
            yield one, a, b


def claims(paths: Sequence[Path], launches: int | None = None) -> list[Claim]:
    """Return the claims that these files can test.

    Args:
        launches: how many files of the A/A test make a comparison over launches, None for all.

    Raises:
        ArgumentError: a file cannot be read, or there are none.
    """
    records = {path: reading.load(path) for path in paths}
    twins = [same for some in records.values() if (same := only(AARecord, some))]
    found = of_aa_test(each for same in twins for each in same)
    step = launches or max(len(twins), 1)
    sets = [twins[start : start + step] for start in range(0, len(twins), step)]
    found += _added(each for one in sets if len(one) > 1 for each in over_launches(one))
    runs = [load(path) for path, each in records.items() if only(CaseRecord, each)]
    if len(runs) == 2:
        found += of_runs(*runs) + of_studies(*runs)
    found = [each for each in found if each.tried]
    if not found:
        raise ArgumentError("give the output of mpicoll.bench.twins, or two runs of the benchmark")
    return found


def table_of(found: Sequence[Claim]) -> Table:
    """Return each claim with the share that was right and its interval."""
    table = Table()
    for name in ("claim", "right", "of", "share", "95 % interval", "target", ""):
        table.add_column(name, justify="left" if name == "claim" else "right")
    for each in found:
        low, high = each.interval()
        table.add_row(
            each.name, str(each.right), str(each.tried), f"{each.right / each.tried:.1%}",
            f"{low:.1%} .. {high:.1%}",
            "-" if each.target is None else f"{each.target:.0%}",
            "" if each.target is None else "holds" if each.holds else "FAILS",
        )  # fmt: skip
    return table


@click.command(cls=Command, help=__doc__)
@click.argument("files", nargs=-1, type=FILE)
@option("--studies", nargs=2, type=click.Path(file_okay=False, path_type=Path), metavar="DIR DIR",
        help="The folders of two studies.")  # fmt: skip
@option("--launches", type=Whole(2), metavar="N",
        help="So many files of the A/A test at a time, in their order, are launches of one "
             "comparison (default: all).")  # fmt: skip
def main(
    files: Sequence[Path], studies: tuple[Path, Path] | None, launches: int | None
) -> int:  # fmt: skip
    """Read the files and print the claims; return the exit status."""
    cells = [each / "cells.jsonl" for each in studies or ()]
    if not files and not cells:
        raise click.UsageError("give FILES, or --studies DIR DIR")
    found = claims([*files, *cells], launches)
    print_table(table_of(found), 110)
    for each in disagreements(*map(load, cells)) if cells else ():
        print(printable(each))
    return int(not all(each.holds for each in found))


if __name__ == "__main__":
    main()
