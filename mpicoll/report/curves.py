"""Curves: the times of one algorithm over sizes, beside others of the same case.

What may stand in one panel differs in nothing but backend, algorithm and size: everything else
that identifies a case, and the conditions of its run, are the panel's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import geometric_mean
from typing import Any, NamedTuple

from mpicoll.notation.contract import COLLECTIVES
from mpicoll.records.identity import key
from mpicoll.records.journal import Line
from mpicoll.report.loading import Records, run_id
from mpicoll.report.setups import Setup, by_run

BEST = 4
"""How many algorithms are shown at first beside `ALWAYS`."""

ALWAYS = ("native", "auto")


class Where(NamedTuple):
    """What a panel is about, beside its collective.

    Attributes:
        setup: the letter of its conditions.
        variant: in words.
    """

    setup: str
    ranks: int
    nodes: int
    variant: str

    def __str__(self) -> str:
        nodes = f" on {self.nodes} nodes" if self.nodes > 1 else ""
        ranks = f"{self.ranks} rank{'s' if self.ranks > 1 else ''}{nodes}"
        return " · ".join(filter(None, (ranks, self.variant)))


@dataclass
class Curve:
    """What one backend measured for one algorithm.

    Attributes:
        algorithm: as it was asked for, without a transport.
        wanted: the transport that was asked for, often none.
        points: records that have a time, by ascending size.
    """

    backend: str
    algorithm: str
    wanted: str
    points: list[Line] = field(default_factory=list)

    @property
    def name(self) -> str:
        """As it was asked for."""
        return f"{self.algorithm}@{self.wanted}" if self.wanted else self.algorithm


@dataclass
class Panel:
    """Everything that was measured of one case over sizes.

    Attributes:
        refused: records without a time.
    """

    collective: str
    where: Where
    curves: list[Curve]
    refused: list[Line] = field(default_factory=list)

    def sizes(self) -> list[int]:
        """Return every size that was measured, ascending."""
        return sorted({each["bytes_total"] for curve in self.curves for each in curve.points})

    def records(self) -> list[Line]:
        """Return every record that has a time."""
        return [each for curve in self.curves for each in curve.points]

    def at(self, size: int) -> list[Line]:
        """Return the records of one size that have a time."""
        return [each for each in self.records() if each["bytes_total"] == size]

    def shown(self) -> list[str]:
        """Return the names of curves to show at first: native, auto, and the fastest others.

        Of an algorithm that was measured over several transports the fastest counts.
        """
        scores = _distances(self)
        best: dict[str, str] = {}
        for curve in sorted(self.curves, key=lambda each: scores.get(each.name, inf)):
            best.setdefault(curve.algorithm, curve.name)
        others = [name for algorithm, name in best.items() if algorithm not in ALWAYS]
        names = dict.fromkeys(curve.name for curve in self.curves)
        return [name for name in names if name in (*ALWAYS, *others[:BEST])]


def median_of(record: Mapping[str, Any]) -> float:
    """Return the median time of a record, microseconds."""
    return float(record["time_us"]["median"])


def is_sound(record: Mapping[str, Any]) -> bool:
    """Whether a record has a time, and no wrong result."""
    return bool(record["time_us"]) and record["correct"] is not False and median_of(record) > 0


def panels(records: Records, found: Sequence[Setup]) -> list[Panel]:
    """Return a panel for each collective and whatever else must not be mixed."""
    groups: dict[tuple[str, Where], list[Line]] = {}
    setup_of = by_run(found)
    for each in _latest(records, setup_of):
        where = Where(
            setup_of[run_id(each)].name, each["ranks"], each["nodes"], variant(each)
        )  # fmt: skip
        groups.setdefault((each["collective"], where), []).append(each)
    made = [_panel(collective, where, rows) for (collective, where), rows in groups.items()]
    order = {name: index for index, name in enumerate(COLLECTIVES)}
    return sorted(made, key=lambda each: (order.get(each.collective, len(order)), each.collective))


def repeated(records: Records, found: Sequence[Setup]) -> list[Line]:
    """Return the records that later ones of the same case and conditions stand for."""
    kept = {id(each) for each in _latest(records, by_run(found))}
    return [each for each in records.cases if id(each) not in kept]


def _latest(records: Records, setup_of: Mapping[str, Setup]) -> list[Line]:
    ordered = sorted(records.cases, key=lambda each: str(records.run_of(each).get("started", "")))
    return list({(setup_of[run_id(each)].name, key(each)): each for each in ordered}.values())


def variant(record: Mapping[str, Any]) -> str:
    """Return what a case is beside its collective, backend, algorithm, size and ranks.

    >>> variant({"device": "cpu", "dtype": "float32", "op": "sum", "root": None,
    ...          "in_place": True, "allocated": False})
    'float32 sum, in place'
    """
    data = " ".join(filter(None, (record["dtype"], record["op"])))
    root = record["root"]
    parts = (
        data,
        f"root {root}" if root is not None else "",
        "in place" if record["in_place"] else "",
        "allocated" if record["allocated"] else "",
        "" if record["device"] == "cpu" else f"on {record['device']}",
    )
    return ", ".join(filter(None, parts))


def _panel(collective: str, where: Where, rows: Iterable[Line]) -> Panel:
    curves: dict[tuple[str, str], Curve] = {}
    refused = []
    for each in sorted(rows, key=lambda row: row["bytes_total"]):
        if not each["time_us"]:
            refused.append(each)
            continue
        algorithm, _, wanted = each["algorithm"].partition("@")
        named = each["backend"], each["algorithm"]
        curves.setdefault(named, Curve(each["backend"], algorithm, wanted)).points.append(each)
    return Panel(collective, where, list(curves.values()), refused)


def _distances(panel: Panel) -> dict[str, float]:
    """Return how far each name, on its best backend, is from the fastest: a mean ratio."""
    best: dict[tuple[str, int], float] = {}
    for curve in panel.curves:
        for each in filter(is_sound, curve.points):
            place = curve.name, each["bytes_total"]
            best[place] = min(best.get(place, inf), median_of(each))
    fastest: dict[int, float] = {}
    for (_, size), us in best.items():
        fastest[size] = min(fastest.get(size, inf), us)
    ratios: dict[str, list[float]] = {}
    for (name, size), us in best.items():
        ratios.setdefault(name, []).append(us / fastest[size])
    return {name: geometric_mean(each) for name, each in ratios.items()}
