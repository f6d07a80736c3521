"""The fastest algorithm of each size and number of ranks, by `measurement.judgement`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mpicoll.measurement.judgement import (
    SIGNS,
    Decision,
    can_lead,
    judge,
    lead,
    strongest_native,
    way,
)
from mpicoll.records.lines import CaseRecord
from mpicoll.report.curves import Panel, is_sound, median_of
from mpicoll.text.numbers import number

MapPlace = tuple[tuple[int, int], int]
"""Ranks and nodes, and a size in bytes."""


FEW, DISTURBED = "n < 6", "disturbed"


@dataclass(frozen=True)
class Winner:
    """The fastest correct algorithm of one cell.

    Attributes:
        runner_up: the next record with another algorithm or transport, None without one.
        decision: ``faster`` than the runner-up, or a ``tie`` or ``undecided`` if both lead.
        times_native: how many times as fast it is as the strongest native call, in any of its
            ways; None without a correct native call, or if that is not decided.
    """

    record: CaseRecord
    runner_up: CaseRecord | None
    decision: Decision
    times_native: float | None

    @property
    def label(self) -> str:
        """The algorithm that ran."""
        return self.record.executed or self.record.algorithm

    @property
    def sign(self) -> str:
        """The sign of a shared lead; "" for a winner."""
        return "" if self.decision == "faster" else f"{SIGNS[self.decision]} "

    @property
    def explanation(self) -> str:
        """The requested algorithm, its time, and the runner-up."""
        first, second = self.record, self.runner_up
        text = (
            f"asked for as {first.algorithm} by {first.call}, over {first.transport}, "
            f"{number(median_of(first))} us"
        )
        if second is None:
            return text
        verbs = {"tie": "ties with", "undecided": "shares the lead with"}
        return (
            f"{text}, {verbs.get(self.decision, 'before')} {second.backend} "
            f"{second.executed} ({number(median_of(second))} us)"
        )


@dataclass(frozen=True)
class WinnerMap:
    """Winners by number of ranks, with nodes, and size in bytes.

    Attributes:
        undecided: the cells without a winner, with the reason: `FEW` or `DISTURBED`.
    """

    collective: str
    setup: str
    variant: str
    rows: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]
    cells: dict[MapPlace, Winner]
    undecided: dict[MapPlace, str] = field(default_factory=dict)


def winner(rows: Sequence[CaseRecord]) -> Winner | str:
    """Return the winner among the records of a size, or the reason why there is none."""
    leading = lead(rows)
    if not leading.leaders:
        return DISTURBED if leading.decision == "disturbed" else FEW
    first = leading.leaders[0]
    candidates = sorted(filter(can_lead, rows), key=median_of)
    rivals = [record for record in (*leading.leaders, *candidates) if way(record) != way(first)]
    native = strongest_native(rows)
    ratio = judge(native, first) if native and can_lead(native) else None
    return Winner(
        first, rivals[0] if rivals else None, leading.decision,
        ratio.ratio if ratio and ratio.decision in ("faster", "slower", "tie") else None,
    )  # fmt: skip


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
    outcomes = {
        ((panel.scope.ranks, panel.scope.nodes), size): winner(panel.contest(size))
        for panel in group for size in panel.sizes() if any(map(is_sound, panel.at(size)))
    }  # fmt: skip
    cells = {place: cell for place, cell in outcomes.items() if isinstance(cell, Winner)}
    undecided = {place: why for place, why in outcomes.items() if isinstance(why, str)}
    rows = tuple(sorted({row for row, _ in (*cells, *undecided)}))
    sizes = tuple(sorted({size for _, size in (*cells, *undecided)}))
    return WinnerMap(collective, setup, variant, rows, sizes, cells, undecided)
