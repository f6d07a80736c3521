"""Panels of curves: the times of each algorithm over sizes.

The records of one panel differ only in backend, algorithm and size. Everything else that identifies
a case, and the conditions of its run, are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import geometric_mean
from typing import NamedTuple

from mpicoll.measurement.judgement import Decision, can_lead, decide_speedup
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.records.identity import is_native, key, place, variant
from mpicoll.records.lines import CaseRecord, Times
from mpicoll.report.loading import Records
from mpicoll.report.setups import Setup, by_run
from mpicoll.text.numbers import count_text

BEST = 4
"""Number of algorithms that are shown at first beside `ALWAYS`."""

ALWAYS = ("native", "auto")


class Scope(NamedTuple):
    """The part of a case, beside the collective, that all records of a panel share.

    Attributes:
        setup: the name of its conditions.
        variant: dtype, operator, root and the like, in words.
    """

    setup: str
    ranks: int
    nodes: int
    variant: str

    def __str__(self) -> str:
        nodes = f" on {self.nodes} nodes" if self.nodes > 1 else ""
        return " · ".join(filter(None, (f"{count_text(self.ranks, 'rank')}{nodes}", self.variant)))


@dataclass
class Curve:
    """The records of one algorithm on one backend.

    Attributes:
        algorithm: as requested, without a transport.
        wanted: the requested transport, often none.
        points: records with a time, by ascending size.
    """

    backend: str
    algorithm: str
    wanted: str
    points: list[CaseRecord] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The requested algorithm with its transport."""
        return f"{self.algorithm}@{self.wanted}" if self.wanted else self.algorithm


@dataclass
class Panel:
    """All records of one case over sizes.

    Attributes:
        refused: records without a time.
        other_ways: the native calls of the same cases by the other kinds of call.
    """

    collective: str
    scope: Scope
    curves: list[Curve]
    refused: list[CaseRecord] = field(default_factory=list)
    other_ways: list[CaseRecord] = field(default_factory=list)

    def sizes(self) -> list[int]:
        """Return every measured size, ascending."""
        return sorted({record.bytes_total for curve in self.curves for record in curve.points})

    def records(self) -> list[CaseRecord]:
        """Return every record that has a time."""
        return [record for curve in self.curves for record in curve.points]

    def at(self, size: int) -> list[CaseRecord]:
        """Return the records of one size that have a time."""
        return [record for record in self.records() if record.bytes_total == size]

    def contest(self, size: int) -> list[CaseRecord]:
        """Return the right records of a size, with native in all its ways."""
        ways = [record for record in self.other_ways if record.bytes_total == size]
        return [*filter(is_sound, (*self.at(size), *ways))]

    def against_native(self, record: CaseRecord) -> Decision | None:
        """Return the decision of a record's ratio to its backend's native call, None without."""
        speedup, reference = record.speedup_vs_native, f"{record.backend} native"
        if speedup is None:
            return None
        return decide_speedup(record, speedup, reference, self.contest(record.bytes_total))

    def shown(self) -> list[str]:
        """Return the names of curves to show at first: native, auto, and the fastest others.

        Records with too few samples do not count. If an algorithm was measured over several
        transports, the fastest counts.
        """
        scores = _distances(self)
        best: dict[str, str] = {}
        for curve in sorted(self.curves, key=lambda candidate: scores.get(candidate.name, inf)):
            best.setdefault(curve.algorithm, curve.name)
        rivals = [name for algorithm, name in best.items() if algorithm not in ALWAYS]
        names = dict.fromkeys(curve.name for curve in self.curves)
        return [name for name in names if name in (*ALWAYS, *rivals[:BEST])]


def times_of(record: CaseRecord) -> Times:
    """Return the times of a record that was not refused."""
    assert record.time_us is not None
    return record.time_us


def median_of(record: CaseRecord) -> float:
    """Return the median time of a record, microseconds."""
    return times_of(record).median


def is_sound(record: CaseRecord) -> bool:
    """Whether a record has a time, and no wrong result."""
    return record.time_us is not None and record.correct is not False


def panels(records: Records, setups: Sequence[Setup]) -> list[Panel]:
    """Return a panel for each collective and scope."""
    groups: dict[tuple[str, Scope], list[CaseRecord]] = {}
    setup_of = by_run(setups)
    latest = _latest(records, setup_of)
    for record in latest:
        scope = Scope(
            setup_of[record.run.id].name, record.ranks, record.nodes, ", ".join(variant(record))
        )
        groups.setdefault((record.collective, scope), []).append(record)
    unsorted = [_panel(collective, scope, rows) for (collective, scope), rows in groups.items()]
    for panel in unsorted:
        natives = [
            record for record in latest
            if is_native(record.algorithm) and setup_of[record.run.id].name == panel.scope.setup
        ]  # fmt: skip
        panel.other_ways += _other_ways(panel.records(), natives)
    order = {name: index for index, name in enumerate(COLLECTIVES)}
    return sorted(
        unsorted, key=lambda panel: (order.get(panel.collective, len(order)), panel.collective)
    )


def _other_ways(
    records: Sequence[CaseRecord], natives: Iterable[CaseRecord]
) -> Iterator[CaseRecord]:
    """Yield the native calls of the same cases by the other kinds of call."""
    places, calls = set(map(place, records)), {record.call for record in records}
    for native in natives:
        if native.time_us and native.call not in calls and place(native) in places:
            yield native


def find_repeated(records: Records, setups: Sequence[Setup]) -> list[CaseRecord]:
    """Return the records that a later record of the same case and conditions replaces."""
    latest = {id(record) for record in _latest(records, by_run(setups))}
    return [record for record in records.cases if id(record) not in latest]


def _latest(records: Records, setup_of: Mapping[str, Setup]) -> list[CaseRecord]:
    ordered = sorted(records.cases, key=lambda record: records.run_of(record).started)
    return list(
        {(setup_of[record.run.id].name, key(record)): record for record in ordered}.values()
    )


def _panel(collective: str, scope: Scope, rows: Iterable[CaseRecord]) -> Panel:
    curves: dict[tuple[str, str], Curve] = {}
    panel = Panel(collective, scope, [])
    for record in sorted(rows, key=lambda row: row.bytes_total):
        if record.time_us is None:
            panel.refused.append(record)
            continue
        algorithm, _, wanted = record.algorithm.partition("@")
        curve = curves.setdefault(
            (record.backend, record.algorithm), Curve(record.backend, algorithm, wanted)
        )
        curve.points.append(record)
    panel.curves += curves.values()
    return panel


def _distances(panel: Panel) -> dict[str, float]:
    """Return the mean ratio of each name, on its best backend, to the fastest one."""
    best: dict[tuple[str, int], float] = {}
    for curve in panel.curves:
        for record in filter(can_lead, curve.points):
            place = curve.name, record.bytes_total
            best[place] = min(best.get(place, inf), median_of(record))
    fastest: dict[int, float] = {}
    for (_, size), us in best.items():
        fastest[size] = min(fastest.get(size, inf), us)
    ratios: dict[str, list[float]] = {}
    for (name, size), us in best.items():
        ratios.setdefault(name, []).append(us / fastest[size])
    return {name: geometric_mean(values) for name, values in ratios.items()}
