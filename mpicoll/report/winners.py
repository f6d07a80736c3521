"""The fastest algorithm of each size and number of ranks, by the rule of `measurement.leaders`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpicoll.measurement.leaders import can_lead, compared, leaders, way
from mpicoll.records.lines import CaseRecord
from mpicoll.report.curves import Panel, is_sound, median_of
from mpicoll.text.numbers import number

MapPlace = tuple[tuple[int, int], int]
"""Ranks and nodes, and a size in bytes."""


@dataclass(frozen=True)
class Winner:
    """The fastest correct algorithm of one cell.

    Attributes:
        runner_up: the next record with another algorithm or transport, None without one.
        ties: whether the runner-up leads as well, so that the faster one is not known.
        times_native: how many times as fast it is as the fastest native call; None without a
            correct native call.
    """

    record: CaseRecord
    runner_up: CaseRecord | None
    ties: bool
    times_native: float | None

    @property
    def label(self) -> str:
        """The algorithm that ran."""
        return self.record.executed or self.record.algorithm

    @property
    def explanation(self) -> str:
        """The requested algorithm, its time, and the runner-up."""
        first, second = self.record, self.runner_up
        text = (
            f"asked for as {first.algorithm}, over {first.transport}, {number(median_of(first))} us"
        )
        if second is None:
            return text
        return (
            f"{text}, {'ties with' if self.ties else 'before'} {second.backend} "
            f"{second.executed} ({number(median_of(second))} us)"
        )


@dataclass(frozen=True)
class WinnerMap:
    """Winners by number of ranks, with nodes, and size in bytes.

    Attributes:
        undecided: the cells whose cases all have too few samples to win.
    """

    collective: str
    setup: str
    variant: str
    rows: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]
    cells: dict[MapPlace, Winner]
    undecided: frozenset[MapPlace] = frozenset()


def winner(rows: Sequence[CaseRecord]) -> Winner | None:
    """Return the winner among the records of a size, None if no record can win."""
    leading = leaders(rows)
    if not leading:
        return None
    first = leading[0]
    candidates = sorted(filter(can_lead, rows), key=median_of)
    rivals = [record for record in (*leading, *candidates) if way(record) != way(first)]
    ties = any(way(record) != way(first) for record in leading)
    natives = [record for record in candidates if record.algorithm == "native"]
    ratio = compared(natives[0], first) if natives else None
    return Winner(first, rivals[0] if rivals else None, ties, ratio.ratio if ratio else None)


def winner_maps(panels: Sequence[Panel]) -> list[WinnerMap]:
    """Return a map for each collective, conditions and variant."""
    groups: dict[tuple[str, str, str], list[Panel]] = {}
    for panel in panels:
        groups.setdefault((panel.collective, panel.scope.setup, panel.scope.variant), []).append(
            panel
        )
    maps = (_map(*named, group) for named, group in groups.items())
    return [winner_map for winner_map in maps if winner_map.cells or winner_map.undecided]


def _map(collective: str, setup: str, variant: str, group: Sequence[Panel]) -> WinnerMap:
    records = {
        ((panel.scope.ranks, panel.scope.nodes), size): [*filter(is_sound, panel.at(size))]
        for panel in group for size in panel.sizes()
    }  # fmt: skip
    cells = {place: cell for place, sound in records.items() if (cell := winner(sound))}
    undecided = frozenset(place for place, sound in records.items() if sound) - cells.keys()
    rows = tuple(sorted({row for row, _ in (*cells, *undecided)}))
    sizes = tuple(sorted({size for _, size in (*cells, *undecided)}))
    return WinnerMap(collective, setup, variant, rows, sizes, cells, undecided)
