"""The fastest algorithm of each size and number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpicoll.records.lines import CaseRecord
from mpicoll.report.curves import Panel, is_sound, median_of, times_of
from mpicoll.text.numbers import number


@dataclass(frozen=True)
class Winner:
    """The fastest correct algorithm of one cell.

    Attributes:
        runner_up: the fastest that ran something else, None without one.
        ties: whether the intervals of the two overlap, so that either may be the faster one.
        times_native: the fastest native call's median over the winner's; None without a native
            call that was correct.
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
        """The algorithm asked for, its time, and the runner-up."""
        first, second = self.record, self.runner_up
        own = (
            f"asked for as {first.algorithm}, over {first.transport}, {number(median_of(first))} us"
        )
        if second is None:
            return own
        return (
            f"{own}, {'ties with' if self.ties else 'before'} {second.backend} "
            f"{second.executed} ({number(median_of(second))} us)"
        )


@dataclass(frozen=True)
class WinnerMap:
    """Winners by number of ranks, with nodes, and size in bytes."""

    collective: str
    setup: str
    variant: str
    rows: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]
    cells: dict[tuple[tuple[int, int], int], Winner]


def winner(rows: Sequence[CaseRecord]) -> Winner | None:
    """Return the fastest correct one of the records of a size, None where there is none."""
    sound = sorted(filter(is_sound, rows), key=median_of)
    if not sound:
        return None
    first = sound[0]
    second = next((each for each in sound if _ran(each) != _ran(first)), None)
    ties = second is not None and times_of(second).low <= times_of(first).high
    natives = [each for each in sound if each.algorithm == "native"]
    times = median_of(natives[0]) / median_of(first) if natives else None
    return Winner(first, second, ties, times)


def _ran(record: CaseRecord) -> tuple[str, str, str]:
    """Return the way that ran: `auto` is no rival of the algorithm that it chose."""
    return record.backend, record.executed or record.algorithm, str(record.transport)


def winner_maps(panels: Sequence[Panel]) -> list[WinnerMap]:
    """Return a map for each collective, conditions and variant."""
    groups: dict[tuple[str, str, str], list[Panel]] = {}
    for each in panels:
        groups.setdefault((each.collective, each.scope.setup, each.scope.variant), []).append(each)
    made = (_map(*named, group) for named, group in groups.items())
    return [each for each in made if each.cells]


def _map(collective: str, setup: str, variant: str, group: Sequence[Panel]) -> WinnerMap:
    cells = {
        ((each.scope.ranks, each.scope.nodes), size): found
        for each in group for size in each.sizes() if (found := winner(each.at(size)))
    }  # fmt: skip
    rows = tuple(sorted({row for row, _ in cells}))
    sizes = tuple(sorted({size for _, size in cells}))
    return WinnerMap(collective, setup, variant, rows, sizes, cells)
