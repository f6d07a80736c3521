"""Count how often the benchmark is right in cases whose true result is known.

``python -m tests.selftest.trust FILES`` reads the comparisons of `tests.selftest.twins`. It counts
how often a call compared with itself is a tie, and how often a known delay is found. For two files
of records of the same machine and command, it counts how many cases agree.

With six or more files of `tests.selftest.twins` it also takes ratios over launches. For two studies
of a machine, ``--studies DIR DIR``, it counts how many verdicts agree, against native and against
the strongest native, and prints those that differ. Exit status: 0 all claims hold, 1 some do not, 2
bad files.
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

from mpicoll.cli.command import LauncherCommand
from mpicoll.cli.options import FILE, Whole, option
from mpicoll.cli.tables import print_table
from mpicoll.compare.comparison import compare, load
from mpicoll.errors import ArgumentError
from mpicoll.measurement.judgement import decision_of
from mpicoll.measurement.statistics import is_enough, ratio_of
from mpicoll.records import reading
from mpicoll.records.identity import Key
from mpicoll.records.lines import AARecord, CaseRecord, Speedup
from mpicoll.records.reading import only
from mpicoll.text.numbers import interval, number
from mpicoll.text.printable import printable
from mpicoll.text.sizes import size_text


@dataclass(frozen=True)
class Claim:
    """A count of right verdicts among trials, and the share that is required.

    >>> claim = Claim("ties", 195, 200, 0.95)
    >>> claim.holds, [round(bound, 3) for bound in claim.interval()]
    (True, [0.943, 0.989])
    """

    name: str
    right: int
    trials: int
    target: float | None

    @property
    def holds(self) -> bool:
        """Whether the share of right verdicts reaches the target."""
        return self.target is None or self.right >= self.target * self.trials

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the bounds of the true share (Wilson 1927)."""
        bounds = scipy.stats.binomtest(self.right, self.trials).proportion_ci(
            confidence, method="wilson"
        )
        return float(bounds.low), float(bounds.high)


def of_aa_test(records: Iterable[AARecord]) -> list[Claim]:
    """Return a claim for each delay: how often comparisons of a call with itself are right."""
    verdicts: dict[float, list[str]] = {}
    for record in records:
        verdicts.setdefault(record.delay, []).append(record.verdict)
    return _of_delays(verdicts)


def _of_delays(verdicts: Mapping[float, Sequence[str]], how: str = "") -> list[Claim]:
    """Return a claim for each delay from its verdicts."""
    return [
        Claim(
            how + (f"a delay of {delay:g} % is found" if delay else "a call ties with itself"),
            sum(verdict == ("slower" if delay else "tie") for verdict in names), len(names), 0.95,
        )
        for delay, names in sorted(verdicts.items())
    ]  # fmt: skip


def of_runs(first: Mapping[Key, CaseRecord], second: Mapping[Key, CaseRecord]) -> list[Claim]:
    """Return in how many cases two runs of one command agree.

    The first claim uses `mpicoll.compare`, whose controls are the native calls. The second one uses
    the intervals of the medians. It has no target, since they describe one run only.
    """
    times = [(a.time_us, second[case].time_us) for case, a in first.items() if case in second]
    pairs = [(a, b) for a, b in times if a and b]
    overlap = sum(a.low <= b.high and b.low <= a.high for a, b in pairs)
    judged = [row for row in compare(first, second).rows if row.shift]
    differing = sum(row.verdict in ("faster", "slower") for row in judged)
    return [
        Claim("two runs agree: compared", len(judged) - differing, len(judged), 0.90),
        Claim("two runs agree: intervals of medians", overlap, len(pairs), None),
    ]


def over_launches(launches: Sequence[Sequence[AARecord]]) -> list[Claim]:
    """Return the same claims for ratios that are medians over launches.

    Args:
        launches: the comparisons of each launch. If a launch compared a call several times, the
            median counts.
    """
    ratios: dict[tuple[float, str, str, int], list[float]] = {}
    for records in launches:
        launch_ratios: dict[tuple[float, str, str, int], list[float]] = {}
        for record in records:
            if isinstance(record.ratio, float):
                place = record.delay, record.case, record.backend, record.ranks
                launch_ratios.setdefault(place, []).append(record.ratio)
        for place, values in launch_ratios.items():
            ratios.setdefault(place, []).append(median(values))
    verdicts: dict[float, list[str]] = {}
    for (delay, *_), values in sorted(ratios.items()):
        ratio = ratio_of(values)
        if ratio is not None and is_enough(len(values)):
            verdicts.setdefault(delay, []).append(ratio.verdict)
    return _of_delays(verdicts, "over launches, ")


def _add_up(results: Iterable[Claim]) -> list[Claim]:
    """Return one claim for each name."""
    added: dict[str, Claim] = {}
    for claim in results:
        last = added.get(claim.name, replace(claim, right=0, trials=0))
        added[claim.name] = replace(
            claim, right=last.right + claim.right, trials=last.trials + claim.trials
        )
    return [*added.values()]


def of_studies(first: Mapping[Key, CaseRecord], second: Mapping[Key, CaseRecord]) -> list[Claim]:
    """Return in how many verdicts two studies of a machine agree.

    The first claim counts cases that both studies decide. The second one, which has no target, says
    how many cases these are.
    """
    results = []
    for rival in _RIVALS:
        cases = list(_verdicts(first, second, rival))
        decided = [(a, b) for _, a, b in cases if a is not None and b is not None]
        agree = sum(a.verdict == b.verdict for a, b in decided)
        results += [
            Claim(f"two studies agree: against {rival}", agree, len(decided), 0.90),
            Claim(f"two studies decide: against {rival}", len(decided), len(cases), None),
        ]
    return results


def disagreements(first: Mapping[Key, CaseRecord], second: Mapping[Key, CaseRecord]) -> list[str]:
    """Return the verdicts in which two studies differ, in words."""
    return [
        f"{case.collective} {case.algorithm} of {case.environment or case.backend}, "
        f"{size_text(case.bytes_total)}, against {rival}: {_ratio_text(a)}, then {_ratio_text(b)}"
        for rival in _RIVALS
        for case, a, b in _verdicts(first, second, rival)
        if a is not None and b is not None and a.verdict != b.verdict
    ]


def _ratio_text(speedup: Speedup) -> str:
    bounds = interval(speedup.low, speedup.high)
    return f"{speedup.verdict} ({number(speedup.ratio)}, {bounds})"


_RIVALS = "native", "the strongest"


def _verdicts(
    first: Mapping[Key, CaseRecord], second: Mapping[Key, CaseRecord], rival: str
) -> Iterator[tuple[CaseRecord, Speedup | None, Speedup | None]]:
    """Yield the cases with a ratio over launches in both studies; an undecided ratio is None."""
    for case, earlier in first.items():
        later = second.get(case)
        if later is None or not (
            isinstance(earlier.launches, int) and isinstance(later.launches, int)
        ):
            continue
        ratios = [
            record.speedup_vs_native if rival == "native" else record.speedup_vs_strongest
            for record in (earlier, later)
        ]
        if all(isinstance(ratio, Speedup) for ratio in ratios):
            a, b = (
                None if decision_of(ratio) == "undecided" else ratio
                for ratio in cast(list[Speedup], ratios)
            )
            yield earlier, a, b


def claims(paths: Sequence[Path], launches: int | None = None) -> list[Claim]:
    """Return the claims that these files can test.

    Args:
        launches: files of the A/A test that make one comparison over launches; None: all.

    Raises:
        ArgumentError: a file cannot be read, or no claim can be tested.
    """
    records = {path: reading.load(path) for path in paths}
    twins = [comparisons for lines in records.values() if (comparisons := only(AARecord, lines))]
    results = of_aa_test(comparison for launch in twins for comparison in launch)
    step = launches or max(len(twins), 1)
    sets = [twins[start : start + step] for start in range(0, len(twins), step)]
    results += _add_up(
        claim for launch in sets if len(launch) > 1 for claim in over_launches(launch)
    )
    runs = [load(path) for path, file_records in records.items() if only(CaseRecord, file_records)]
    if len(runs) == 2:
        results += of_runs(*runs) + of_studies(*runs)
    results = [claim for claim in results if claim.trials]
    if not results:
        raise ArgumentError("give the output of tests.selftest.twins, or two runs of the benchmark")
    return results


def table_of(results: Sequence[Claim]) -> Table:
    """Return each claim with the share that was right and its interval."""
    table = Table()
    for name in ("claim", "right", "of", "share", "95 % interval", "target", ""):
        table.add_column(name, justify="left" if name == "claim" else "right")
    for claim in results:
        low, high = claim.interval()
        table.add_row(
            claim.name, str(claim.right), str(claim.trials), f"{claim.right / claim.trials:.1%}",
            f"{low:.1%} .. {high:.1%}",
            "-" if claim.target is None else f"{claim.target:.0%}",
            "" if claim.target is None else "holds" if claim.holds else "FAILS",
        )  # fmt: skip
    return table


@click.command(cls=LauncherCommand, help=__doc__)
@click.argument("files", nargs=-1, type=FILE)
@option("--studies", nargs=2, type=click.Path(file_okay=False, path_type=Path), metavar="DIR DIR",
        help="The folders of two studies.")  # fmt: skip
@option("--launches", type=Whole(2), metavar="N",
        help="Number of files of the A/A test, in their order, that make one comparison over "
             "launches (default: all).")  # fmt: skip
def main(
    files: Sequence[Path], studies: tuple[Path, Path] | None, launches: int | None
) -> int:  # fmt: skip
    """Read the files and print the claims; return the exit status."""
    cells = [folder / "cells.jsonl" for folder in studies or ()]
    if not files and not cells:
        raise click.UsageError("give FILES, or --studies DIR DIR")
    results = claims([*files, *cells], launches)
    print_table(table_of(results), 110)
    for line in disagreements(*map(load, cells)) if cells else ():
        print(printable(line))
    return int(not all(claim.holds for claim in results))


if __name__ == "__main__":
    main()
