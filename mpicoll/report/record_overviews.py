"""The overviews of a report: schedule against library, or algorithm against algorithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mpicoll.measurement.judgement import judge, match
from mpicoll.records.identity import PROJECTS, is_native, is_schedule
from mpicoll.records.lines import CaseRecord
from mpicoll.report.curves import Panel, is_sound, median_of
from mpicoll.report.loading import Records
from mpicoll.report.overview import LIBRARY, Case, Overview, Row, certainty
from mpicoll.report.winners import DISTURBED, winner
from mpicoll.text.numbers import count_text, number
from mpicoll.text.sizes import bytes_text

Compare = Callable[[Sequence[CaseRecord]], Case | None]


def overviews(panels: Sequence[Panel], records: Records) -> list[Overview]:
    """Return an overview for each setup, number of ranks, and kind of call and arrays.

    Settings whose ranks had cores of their own come first, then those with the most cases.
    """
    groups: dict[tuple[str, str], list[Panel]] = {}
    for panel in panels:
        if panel.curves:
            groups.setdefault((panel.scope.setup, _setting(panel, records)), []).append(panel)
    setups = {setup for setup, _ in groups}
    pairs = [
        (_is_oversubscribed(group, records), overview)
        for (_, setting), group in groups.items()
        if (overview := _overview(group, setting, has_setups=len(setups) > 1)) is not None
    ]
    return [
        overview for _, overview in sorted(pairs, key=lambda pair: (pair[0], -len(pair[1].cases)))
    ]


def _is_oversubscribed(panels: Sequence[Panel], records: Records) -> bool:
    rows = [record for panel in panels for record in panel.records()]
    return any(records.run_of(record).oversubscribed for record in rows)


def _overview(panels: Sequence[Panel], setting: str, has_setups: bool) -> Overview | None:
    rows = [record for panel in panels for record in panel.records() if is_sound(record)]
    schedules = [record for record in rows if is_schedule(record.algorithm)]
    is_contest = bool(schedules) and any(is_native(record.algorithm) for record in rows)
    projects = dict.fromkeys(PROJECTS.get(record.backend, "mpicoll") for record in schedules)
    project = " or ".join(projects)

    def against_library(records: Sequence[CaseRecord]) -> Case | None:
        return _against_library(records, project)

    lines = [_row(panel, panels, against_library if is_contest else _first_two) for panel in panels]
    lines = [line for line in lines if line.cases]
    if not lines:
        return None
    algorithms = dict.fromkeys(record.executed or record.algorithm for record in rows)
    sides = (project, LIBRARY) if is_contest else tuple(algorithms)
    setup = f" (setup {panels[0].scope.setup})" if has_setups else ""
    caption = _caption(rows, sides, sum(len(line.cases) for line in lines))
    return Overview(f"{setting}{setup}", sides, lines, caption)


def _setting(panel: Panel, records: Records) -> str:
    """Return the number of ranks, and the kind of call and arrays unless it is the usual one.

    Ranks without cores of their own are said to share them, as a ratio holds only there.
    """
    scope, record = panel.scope, panel.curves[0].points[0]
    parts = [
        f"on {count_text(scope.ranks, 'rank')}",
        f"of {scope.nodes} nodes" if scope.nodes > 1 else "",
        "that share cores" if _is_oversubscribed([panel], records) else "",
        "in place" if record.in_place and panel.collective != "broadcast" else "",
        "allocated" if record.allocated else "",
        "on GPUs" if record.device != "cpu" else "",
        f"by {record.call}" if record.call != "plan" else "",
    ]
    return " ".join(filter(None, parts))


def _row(panel: Panel, panels: Sequence[Panel], compare: Compare) -> Row:
    is_single = sum(candidate.collective == panel.collective for candidate in panels) == 1
    label = panel.collective if is_single else f"{panel.collective}, {panel.scope.variant}"
    cases = {
        size: compare(panel.contest(size))
        for size in panel.sizes() if any(map(is_sound, panel.at(size)))
    }  # fmt: skip
    return Row(
        label, f"curves-{panel.collective}",
        {size: case for size, case in cases.items() if case is not None},
    )  # fmt: skip


def _against_library(rows: Sequence[CaseRecord], project: str) -> Case | None:
    """Return the comparison of the fastest schedule with the strongest native call."""
    sides = match(rows)
    if sides is None:
        return None
    ratio = sides.judgement
    side, factor = (project, ratio.ratio) if ratio.ratio >= 1 else (LIBRARY, 1 / ratio.ratio)
    explanation = f"{_timed(sides.schedule)}; {_timed(sides.native)}"
    return Case(side, factor, certainty(ratio.decision), explanation)


def _timed(record: CaseRecord) -> str:
    return (
        f"{record.backend} {record.algorithm} by {record.call}: {number(median_of(record))} us, "
        f"{count_text(record.samples, 'sample')}"
    )


def _first_two(rows: Sequence[CaseRecord]) -> Case | None:
    """Return the comparison of the fastest algorithm with the next one."""
    first = winner(rows)
    names = {record.executed or record.algorithm for record in rows}
    if first == DISTURBED and len(names) > 1:
        return Case(min(names), 1.0, "disturbed", "; ".join(map(_timed, rows)))
    if isinstance(first, str) or first.runner_up is None:
        return None
    ratio = judge(first.runner_up, first.record)
    if ratio is None:
        return None
    verdict = certainty(ratio.decision)
    return Case(first.label, max(ratio.ratio, 1.0), verdict, first.explanation)


def _caption(rows: Sequence[CaseRecord], sides: Sequence[str], count: int) -> str:
    samples = sorted({record.samples for record in rows})
    ends = dict.fromkeys((samples[0], samples[-1]))
    is_two = len(sides) == 2
    text = (
        f"how many times as fast {sides[0]} is as {sides[1]}" if is_two
        else "how many times as fast the fastest algorithm is as the next"
    )  # fmt: skip
    ways = f" The {LIBRARY.removeprefix('the ')} is the strongest of its ways." * (LIBRARY in sides)
    return (
        f"A number says {text}.{ways} {count_text(count, 'case')}: a case is one collective at one "
        f"size, from {' to '.join(map(str, ends))} {'sample' if samples[-1] == 1 else 'samples'}."
    )


def times_sentence(panel: Panel) -> str:
    """Return the times of the first curve, for records that compare nothing."""
    curve = panel.curves[0]
    ends = dict.fromkeys((0, len(curve.points) - 1))
    times = [
        f"{number(median_of(curve.points[place]))} us"
        + (f" at {bytes_text(size)}" if (size := curve.points[place].bytes_total) else "")
        for place in ends
    ]
    return (
        f"{panel.collective} by {curve.name} on {count_text(panel.scope.ranks, 'rank')} takes "
        f"{' to '.join(times)}."
    )
