"""Who is fastest at which size and number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpicoll.records.journal import Line
from mpicoll.report.curves import Panel, is_sound, median_of
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

    record: Line
    runner_up: Line | None
    ties: bool
    times_native: float | None

    @property
    def label(self) -> str:
        """What ran."""
        return str(self.record["executed"] or self.record["algorithm"])

    @property
    def explanation(self) -> str:
        """What was asked for, its time, and the runner-up."""
        first, second = self.record, self.runner_up
        own = (
            f"asked for as {first['algorithm']}, over {first['transport']}, "
            f"{number(median_of(first))} us"
        )
        if second is None:
            return own
        return (
            f"{own}, {'ties with' if self.ties else 'before'} {second['backend']} "
            f"{second['executed']} ({number(median_of(second))} us)"
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


def winner(rows: Sequence[Line]) -> Winner | None:
    """Return the fastest correct one of the records of a size, None where there is none."""
    sound = sorted(filter(is_sound, rows), key=median_of)
    if not sound:
        return None
    first = sound[0]
    second = next((each for each in sound if _ran(each) != _ran(first)), None)
    ties = second is not None and second["time_us"]["low"] <= first["time_us"]["high"]
    natives = [each for each in sound if each["algorithm"] == "native"]
    times = median_of(natives[0]) / median_of(first) if natives else None
    return Winner(first, second, ties, times)


def _ran(record: Line) -> tuple[str, str, str]:
    """What `auto` runs is no rival of the same algorithm asked for by name."""
    return record["backend"], record["executed"] or record["algorithm"], str(record["transport"])


def winner_maps(panels: Sequence[Panel]) -> list[WinnerMap]:
    """Return a map for each collective, conditions and variant."""
    groups: dict[tuple[str, str, str], list[Panel]] = {}
    for each in panels:
        groups.setdefault((each.collective, each.where.setup, each.where.variant), []).append(each)
    made = (_map(*named, group) for named, group in groups.items())
    return [each for each in made if each.cells]


def _map(collective: str, setup: str, variant: str, group: Sequence[Panel]) -> WinnerMap:
    cells = {
        ((each.where.ranks, each.where.nodes), size): found
        for each in group for size in each.sizes() if (found := winner(each.at(size)))
    }  # fmt: skip
    rows = tuple(sorted({row for row, _ in cells}))
    sizes = tuple(sorted({size for _, size in cells}))
    return WinnerMap(collective, setup, variant, rows, sizes, cells)
