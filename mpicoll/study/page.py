"""The page of a study: the findings first, then a figure and a table for each panel.

Like the page of `mpicoll.report`, whose style and plots it uses, it is one file that needs no
network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mpicoll.report.page import POLICY, asset, finite, plotly
from mpicoll.study.cells import Cell, Contestant, Panel, Ratio, Study, compare_contestants
from mpicoll.study.forms import COLUMNS, LEGEND, forms_of, rows
from mpicoll.study.markdown import TEXTS, anchor, facts
from mpicoll.study.questions import ONE_OR_TWO
from mpicoll.study.sentences import Finding
from mpicoll.text.numbers import number
from mpicoll.text.pages import templates
from mpicoll.text.sizes import bytes_text

_SHOWN = 6
"""Number of schedules that a figure shows at first: the fastest; the legend shows others."""


class Row(NamedTuple):
    """A contestant of a cell, as its row in a table."""

    size: str
    name: str
    us: str
    launches: int
    between: str
    within: str
    versus_environment: str
    strongest: str


def page(study: Study, findings: Sequence[Finding], remarks: Sequence[str] = ()) -> str:
    """Return the page.

    Raises:
        ArgumentError: plotly is not installed.
    """
    library = plotly()
    panels = [(panel, anchor(panel), list(_rows(study, panel))) for panel in study.panels()]
    data = {anchor(panel): _traces(study, panel) for panel in study.panels()}
    return templates(__package__).get_template("study.html").render(
        policy=POLICY, style=asset("page.css"), facts=[*facts(study), *remarks], panels=panels,
        sections=_sections(findings),
        forms=[(forms, list(rows(forms))) for forms in forms_of(study)],
        one_or_two=ONE_OR_TWO, forms_columns=COLUMNS, legend=LEGEND, columns=_COLUMNS,
        data=finite(data), plotly=library, anchor=anchor,
    )  # fmt: skip


_COLUMNS = (
    "size", "contestant", "us", "launches", "spread between launches", "spread within",
    "against its environment's native", "against the strongest native",
)  # fmt: skip


def _sections(findings: Sequence[Finding]) -> list[tuple[str, str, list[Finding]]]:
    titles = dict.fromkeys(finding.section for finding in findings)
    return [
        (title, TEXTS.get(title, ""), [finding for finding in findings if finding.section == title])
        for title in titles
    ]


def _rows(study: Study, panel: Panel) -> Iterator[Row]:
    for cell in study.of(panel):
        for contestant in sorted(cell.contestants.values(), key=lambda entry: entry.us):
            yield Row(
                bytes_text(cell.size) if cell.size else "-", contestant.label,
                number(contestant.us), contestant.launches,
                _share(contestant.spread_between) if contestant.launches > 1 else "-",
                _share(contestant.spread_within),
                _against(contestant, cell.strongest_native(contestant.name.environment)),
                _against(contestant, cell.strongest_native()),
            )  # fmt: skip


def _share(value: float) -> str:
    return f"{number(100 * value, 2)} %"


def _against(contestant: Contestant, reference: Contestant | None) -> str:
    if reference is None or contestant is reference:
        return "-"
    return ratio_text(compare_contestants(contestant, reference))


def ratio_text(ratio: Ratio) -> str:
    """Return a ratio with its interval, and ? if it is undecided."""
    sign = "?" if ratio.is_undecided else {"faster": "+", "slower": "-", "tie": "="}[ratio.verdict]
    return f"{number(ratio.ratio)} {sign} ({number(ratio.low)} .. {number(ratio.high)})"


def _traces(study: Study, panel: Panel) -> list[dict[str, Any]]:
    cells = study.of(panel)
    names = dict.fromkeys(name for cell in cells for name in cell.contestants)
    best: dict[Any, float] = {}
    for cell in cells:
        fastest = min(contestant.us for contestant in cell.contestants.values())
        for name, contestant in cell.contestants.items():
            best[name] = min(best.get(name, 1e300), contestant.us / fastest)
    shown = sorted((candidate for candidate in names if candidate.is_ours), key=best.__getitem__)[
        :_SHOWN
    ]
    return [
        {
            "name": str(name), "shown": name in shown or not name.is_ours, "native": name.is_native,
            **_points([cell for cell in cells if name in cell.contestants], name),
        }
        for name in names
    ]  # fmt: skip


def _points(cells: Sequence[Cell], name: Any) -> dict[str, list[Any]]:
    contestants = [cell.contestants[name] for cell in cells]
    return {
        "x": [max(1, cell.size) for cell in cells],
        "sizes": [bytes_text(cell.size) for cell in cells],
        "y": [contestant.us for contestant in contestants],
        "low": [min(contestant.times.values()) for contestant in contestants],
        "high": [max(contestant.times.values()) for contestant in contestants],
    }
