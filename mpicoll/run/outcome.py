"""Whether a program became faster: sentences and a table from runs of both kinds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import msgspec
from rich.table import Table

from mpicoll.cli.tables import print_table
from mpicoll.measurement.statistics import FLOOR, Interval, median_interval
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.text.numbers import count_text, number
from mpicoll.text.printable import printable

_SHARE = 0.01
"""The share of the body from which on a call site is named as slower."""
_PLACES = 5
_ENOUGH = 3
"""Rounds from which on a difference of the same sign in all of them is stated as one."""


class Kind(Enum):
    """With which collectives a program runs."""

    PLAIN = "as it is"
    MPICOLL = "with mpicoll"

    def __str__(self) -> str:
        return self.value


class RankTimes(msgspec.Struct):
    """What a rank has recorded.

    Attributes:
        boot: the id of its system.
        first, first_end, last: seconds at the begin and the end of its first communication, and at
            the end of its last one; 0 without any.
        first_place: file, line and method of the first one, None if unknown.
        collectives: its calls of collectives.
        by_library: those that MPI or torch ran.
        places: file, line, method, calls, seconds and calls by the library of each call site.
    """

    boot: str
    first: float
    first_end: float
    last: float
    first_place: tuple[str, int, str] | None
    collectives: int
    by_library: int
    places: list[tuple[str, int, str, int, float, int]]


class Run(NamedTuple):
    """A run of the program.

    Attributes:
        seconds: of the launcher's command.
        status: exit status; None where the run was ended after its time limit.
        ranks: what its ranks have recorded.
    """

    seconds: float
    status: int | None
    ranks: list[RankTimes]

    @property
    def begin(self) -> float:
        """When all ranks that communicate had begun to; 0 if there are none."""
        return max((rank.first for rank in self.ranks), default=0.0)

    @property
    def body(self) -> float | None:
        """Seconds from there to the last communication; None without communication."""
        return max(rank.last for rank in self.ranks) - self.begin if self.begin else None

    def places(self) -> dict[Place, Sums]:
        """Return the calls of each call site, means of all ranks."""
        totals: dict[Place, Sums] = {}
        for rank in self.ranks:
            for file, line, call, calls, seconds, by_library in rank.places:
                if (file, line, call) == rank.first_place:
                    # The first call waits for ranks that start later.
                    seconds -= min(self.begin, rank.first_end) - rank.first
                place, share = Place(file, line, call), 1 / len(self.ranks)
                replaced_calls = 0 if place.collective is None else calls - by_library
                sums = totals.get(place, NOTHING)
                totals[place] = sums.plus(calls * share, seconds * share, replaced_calls * share)
        for wait in [place for place in totals if place.call == "wait"]:
            # torch waits for a blocking call in a method of its own, on the same line.
            neighbours = [place for place in totals if place[:2] == wait[:2] and place != wait]
            if len(neighbours) == 1:
                totals[neighbours[0]] = totals[neighbours[0]].plus(0, totals.pop(wait).seconds, 0)
        return totals


class Sums(NamedTuple):
    """The calls of a call site: their number, their seconds, and those that mpicoll ran."""

    calls: float
    seconds: float
    replaced_calls: float

    def plus(self, calls: float, seconds: float, replaced_calls: float) -> Sums:
        """Return the sums with more calls."""
        return Sums(
            self.calls + calls, self.seconds + seconds, self.replaced_calls + replaced_calls
        )


NOTHING = Sums(0.0, 0.0, 0.0)


class Place(NamedTuple):
    """A call site."""

    file: str
    line: int
    call: str

    def __str__(self) -> str:
        path = Path(self.file)
        folder = Path(os.getcwd())
        short = path.relative_to(folder) if path.is_relative_to(folder) else Path(*path.parts[-2:])
        return f"{self.call} at {short}:{self.line}"

    @property
    def collective(self) -> str | None:
        """The name of its collective in `MPICOLL_ALGORITHM`, None for others.

        >>> Place("solver.py", 41, "Reduce_scatter_block").collective
        'reduce_scatter'
        >>> Place("solver.py", 41, "bcast").collective, Place("solver.py", 41, "Recv").collective
        ('broadcast', None)
        """
        call = self.call.lower().replace("_", "").replace("bcast", "broadcast")
        names = sorted(COLLECTIVES, key=len, reverse=True)
        return next((name for name in names if call.startswith(name.replace("_", ""))), None)


class Ratio(NamedTuple):
    """How many times as fast the program is: the median of rounds, and its interval."""

    value: float
    low: float
    high: float
    rounds: int

    @property
    def is_faster(self) -> bool:
        """Whether all rounds say so."""
        return self.low > 1 + FLOOR

    @property
    def is_slower(self) -> bool:
        """Whether all rounds say so."""
        return self.high < 1 / (1 + FLOOR)

    def __str__(self) -> str:
        times = _range(self.value, self.low, self.high)
        if self.is_faster:
            return f"ran {times} times as fast"
        if self.is_slower:
            return f"took {_range(1 / self.value, 1 / self.high, 1 / self.low)} times as long"
        return f"showed no sure difference, at {times} times the speed"


def _range(value: float, low: float, high: float) -> str:
    """Return a value with its range.

    >>> _range(1.81, 1.42, 2.3)
    '1.81 (1.42 to 2.30)'
    """
    return number(value) if low == high else f"{number(value)} ({number(low)} to {number(high)})"


class Outcome:
    """The runs of a comparison.

    Args:
        module: the drop-in.
        ranks: number of ranks of a run.
    """

    def __init__(self, module: str, ranks: int) -> None:
        self.module, self.ranks = module, ranks
        self.runs: dict[Kind, dict[int, Run]] = {kind: {} for kind in Kind}

    def add(self, number: int, kind: Kind, run: Run) -> None:
        """Add a run of a round."""
        self.runs[kind][number] = run

    def _all(self) -> Iterator[Run]:
        for runs in self.runs.values():
            yield from runs.values()

    @property
    def longest(self) -> float | None:
        """Seconds of the longest run, None before the first one."""
        return max((run.seconds for run in self._all()), default=None)

    def failure(self, kind: Kind, run: Run, total: int) -> str:
        """Return why there is no comparison, after a run that failed."""
        runs = list(self._all())
        how = (
            f"had not ended after {run.seconds:.0f} s, and was ended"
            if run.status is None
            else f"ended with exit status {run.status}"
        )
        good = [
            count_text(len(ends), "run") + f" {which} ended well"
            for which in Kind
            if (ends := [end for end in self.runs[which].values() if end.status == 0])
        ]
        earlier_runs = f" ({', '.join(good)})" if good else ""
        return (
            f"run {len(runs)} of {total}, {kind}, {how}{earlier_runs}: nothing is compared, as "
            "each run must end with status 0"
        )

    def ratio(self, seconds: Mapping[Kind, Sequence[float]]) -> Ratio:
        """Return how many times as fast the program is with mpicoll, from each round's times."""
        pairs = zip(seconds[Kind.PLAIN], seconds[Kind.MPICOLL], strict=True)
        ratios = [plain / with_mpicoll for plain, with_mpicoll in pairs]
        return Ratio(*median_interval(ratios), len(ratios))

    def _wholes(self) -> dict[Kind, list[float]]:
        return {kind: [run.seconds for run in runs.values()] for kind, runs in self._in_order()}

    def _bodies(self) -> dict[Kind, list[float]] | None:
        """Return the seconds of the bodies; None if a run has none."""
        bodies = {kind: [run.body for run in runs.values()] for kind, runs in self._in_order()}
        seconds = {
            kind: [body for body in some if body is not None] for kind, some in bodies.items()
        }
        return seconds if seconds == bodies and all(map(all, seconds.values())) else None

    def _in_order(self) -> Iterator[tuple[Kind, dict[int, Run]]]:
        for kind, runs in self.runs.items():
            yield kind, dict(sorted(runs.items()))

    def _sites(self) -> list[Site]:
        """Return the call sites, those first that gained or lost most."""
        runs = {kind: [run.places() for run in some.values()] for kind, some in self._in_order()}
        names = dict.fromkeys(place for some in runs.values() for run in some for place in run)
        sites = [
            Site(place, {kind: [run.get(place, NOTHING) for run in some]
                         for kind, some in runs.items()})
            for place in names
        ]  # fmt: skip
        return sorted(sites, key=lambda site: -abs(gain(site.seconds).value))

    def print(self) -> None:
        """Print the sentences, the table, and advice where something became slower."""
        wholes, bodies = self._wholes(), self._bodies()
        whole = self.ratio(wholes)
        body = self.ratio(bodies) if bodies else None
        sites = self._sites()
        floor = _SHARE * median(bodies[Kind.PLAIN]) if bodies else 0.0
        slower = [site for site in sites if gain(site.seconds).high < -floor][:_PLACES]
        slower = slower if whole.rounds >= _ENOUGH else []
        for line in self._sentences(whole, body, [site.place for site in slower]):
            print(printable(line))
        print()
        self._print_table(wholes, bodies, sites[:_PLACES])
        for line in self._advice(whole, body, slower):
            print(printable(line))

    def _sentences(
        self, whole: Ratio, body: Ratio | None, slower: Sequence[Place]
    ) -> Iterator[str]:
        remark = (
            "" if whole.rounds >= _ENOUGH else f", too few to decide (--compare {_ENOUGH} does)"
        )
        begin = f"In {count_text(whole.rounds, 'round')}{remark}, the program with mpicoll"
        if body is None:
            yield f"{begin} {whole} as a whole."
            yield self._silence()
            return
        yield f"{begin} {body} from its first to its last communication."
        yield f"As a whole it {whole}."
        calls, by_library = self._counts()
        if calls:
            yield f"mpicoll ran {calls - by_library:,.0f} of {calls:,.0f} collective calls."
        if slower:
            yield f"Slower: {', '.join(map(str, slower))}."

    def _silence(self) -> str:
        """Return why no communication was recorded."""
        library = "torch.distributed" if self.module.startswith("torch") else "mpi4py"
        records = min(len(run.ranks) for run in self._all())
        if records < self.ranks:
            return (
                f"Only {records} of {self.ranks} ranks left a record of their calls. Others ended "
                "by os._exit or a signal, or ran on another host."
            )
        return f"It does not communicate by {library}, so mpicoll runs no calls."

    def _counts(self) -> tuple[float, float]:
        """Return the collective calls of a rank, and how many of them MPI or torch ran."""
        ranks = [rank for run in self.runs[Kind.MPICOLL].values() for rank in run.ranks]
        if not ranks:
            return 0.0, 0.0
        calls = fmean(rank.collectives for rank in ranks)
        return calls, min(calls, fmean(rank.by_library for rank in ranks))

    def _print_table(
        self, wholes: Mapping[Kind, Sequence[float]], bodies: Mapping[Kind, Sequence[float]] | None,
        sites: Sequence[Site],
    ) -> None:  # fmt: skip
        table = Table(box=None, pad_edge=False)
        table.add_column("ms: median (least to most)", no_wrap=True)
        for name in ("calls", "by mpicoll", str(Kind.PLAIN), str(Kind.MPICOLL), "gained"):
            table.add_column(name, justify="right", no_wrap=True)
        calls, by_library = self._counts()
        counts = (f"{calls:,.0f}", f"{calls - by_library:,.0f}") if calls else ("", "")
        table.add_row("whole", "", "", *_row(wholes))
        if bodies:
            table.add_row("first to last communication", *counts, *_row(bodies))
        for site in sites:
            calls = max(sums.calls for some in site.sums.values() for sums in some)
            table.add_row(
                str(site.place), f"{calls:,.0f}", f"{site.replaced_calls:,.0f}", *_row(site.seconds)
            )
        print_table(table, 160)

    def _advice(self, whole: Ratio, body: Ratio | None, slower: Sequence[Site]) -> Iterator[str]:
        """Yield what to do where something became slower."""
        variable = "TORCHCOLL_ALGORITHM" if self.module.startswith("torch") else "MPICOLL_ALGORITHM"
        library = "gloo" if self.module.startswith("torch") else "MPI"
        names = dict.fromkeys(site.place.collective for site in slower if site.replaced_calls >= 1)
        if names:
            value = ",".join(f"{name}=native" for name in names)
            yield f"{variable}={value} leaves the slower calls to {library}."
        if body is not None and body.is_slower:
            yield f"Without {self.module} the program is faster: leave it out, or try the variable."
        elif whole.is_slower:
            yield (
                "The start of mpicoll in each process costs more than its calls gain: a longer run "
                f"hides it, and a short one is faster without {self.module}."
            )
        records = min(len(run.ranks) for run in self._all())
        if body is not None and records < self.ranks:
            yield f"These are the calls of {records} of {self.ranks} ranks: others left no record."


class Site(NamedTuple):
    """A call site, with its sums in each run."""

    place: Place
    sums: dict[Kind, list[Sums]]

    @property
    def seconds(self) -> dict[Kind, list[float]]:
        """Its seconds in each run."""
        return {kind: [sums.seconds for sums in some] for kind, some in self.sums.items()}

    @property
    def replaced_calls(self) -> float:
        """The calls of a run that mpicoll ran."""
        return fmean(sums.replaced_calls for sums in self.sums[Kind.MPICOLL])


def gain(seconds: Mapping[Kind, Sequence[float]]) -> Interval:
    """Return the seconds that a rank gains in a run, with their interval over rounds."""
    pairs = zip(seconds[Kind.PLAIN], seconds[Kind.MPICOLL], strict=True)
    return median_interval([plain - with_mpicoll for plain, with_mpicoll in pairs])


def _row(seconds: Mapping[Kind, Sequence[float]]) -> Iterator[str]:
    """Yield cells: both kinds' milliseconds, and the gain, with ``?`` if its sign is not sure."""
    for kind in Kind:
        times = [1e3 * value for value in seconds[kind]]
        yield _range(median(times), min(times), max(times))
    value, low, high = gain(seconds)
    sign = "+" if value > 0 else "-" if value < 0 else ""
    is_sure = len(seconds[Kind.PLAIN]) >= _ENOUGH and not low <= 0 <= high
    yield f"{sign}{number(1e3 * abs(value))}{'' if is_sure else ' ?'}"
