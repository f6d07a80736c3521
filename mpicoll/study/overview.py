"""The overviews of a study: this project against the libraries, or library against library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mpicoll.report.overview import LIBRARY, Case, Overview, Row, certainty
from mpicoll.study.cells import Cell, Contestant, Panel, Ratio, compare_contestants
from mpicoll.study.reading import Study
from mpicoll.text.numbers import count_text, number


class _Match(NamedTuple):
    """The two fastest contestants of a cell from different sides, and the ratio of the first."""

    contestant: Contestant
    reference: Contestant
    ratio: Ratio


Select = Callable[[Cell], tuple[Contestant | None, Contestant | None]]


def overviews(study: Study) -> list[Overview]:
    """Return an overview for each setting, the one with the most cases first."""
    by_setting: dict[str, list[Panel]] = {}
    for panel in study.panels():
        by_setting.setdefault(panel.setting, []).append(panel)
    results = (_overview(study, setting, panels) for setting, panels in by_setting.items())
    with_cases = [overview for overview in results if overview is not None]
    return sorted(with_cases, key=lambda overview: -len(overview.cases))


def _overview(study: Study, setting: str, panels: Sequence[Panel]) -> Overview | None:
    cells = [cell for panel in panels for cell in study.of(panel)]
    schedules = [contestant for cell in cells for contestant in cell.schedules()]
    select = Cell.rivals if schedules else two_environments
    matches = {id(cell): match for cell in cells if (match := _match(cell, select))}
    if not matches:
        return None
    sides: tuple[str, ...]
    if schedules:
        projects = dict.fromkeys(contestant.name.project for contestant in schedules)
        sides = (" or ".join(projects), LIBRARY)
    else:
        sides = tuple(study.environments())
    rows = [
        Row(
            panel.label, panel.anchor,
            {
                cell.size: _case(matches[id(cell)], sides, is_native=not schedules)
                for cell in study.of(panel) if id(cell) in matches
            },
        )
        for panel in panels
    ]  # fmt: skip
    rows = [row for row in rows if row.cases]
    return Overview(setting, sides, rows, _caption(list(matches.values()), sides, len(matches)))


def two_environments(cell: Cell) -> tuple[Contestant | None, Contestant | None]:
    """Return the strongest native calls of the two fastest environments."""
    environments = dict.fromkeys(name.environment for name in cell.contestants)
    natives = [
        contestant
        for environment in environments
        if (contestant := cell.strongest_native(environment)) is not None
    ]
    first, second, *_ = (*sorted(natives, key=lambda native: native.least_us), None, None)
    return first, second


def _match(cell: Cell, select: Select) -> _Match | None:
    contestant, reference = select(cell)
    if contestant is None or reference is None:
        return None
    return _Match(contestant, reference, compare_contestants(contestant, reference))


def _case(match: _Match, sides: tuple[str, ...], is_native: bool) -> Case:
    contestant, reference, ratio = match
    first, second = (
        (contestant.name.environment, reference.name.environment) if is_native else sides
    )
    text = (
        f"{contestant.label}: {number(contestant.us)} us; {reference.label}: "
        f"{number(reference.us)} us; ratio {number(ratio.ratio)} ({number(ratio.low)} to "
        f"{number(ratio.high)}), {count_text(ratio.launches, 'launch')}"
    )
    is_first = ratio.ratio >= 1
    factor = ratio.ratio if is_first else 1 / ratio.ratio
    verdict = certainty(ratio.decision, is_single=ratio.is_single)
    return Case(first if is_first else second, factor, verdict, text)


def _caption(matches: Sequence[_Match], sides: tuple[str, ...], count: int) -> str:
    launches = sorted({match.ratio.launches for match in matches})
    ends = dict.fromkeys((launches[0], launches[-1]))
    how_many = f"{' to '.join(map(str, ends))} {'launch' if launches[-1] == 1 else 'launches'}"
    number_text = (
        f"how many times as fast {sides[0]} is as {sides[1]}"
        if len(sides) == 2
        else "how many times as fast the fastest is as the next"
    )
    return (
        f"A number says {number_text}. {count_text(count, 'case')}: a case is one collective at "
        f"one size, from {how_many}."
    )
