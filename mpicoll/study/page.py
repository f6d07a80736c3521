"""The page of a study: the answer with its overview, then figures, questions, tables, the machine.

Like the page of `mpicoll.report`, with which it shares layout and plots, it is one file that needs
no network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mpicoll.measurement.judgement import SIGNS
from mpicoll.report.page import POLICY, finite, plotly
from mpicoll.study.cells import Cell, Contestant, Panel, Ratio, compare_contestants
from mpicoll.study.findings import BETWEEN, MEASURED, SHORT, WARNINGS, WINNERS, WITHIN
from mpicoll.study.forms import COLUMNS, LEGEND, forms_of, rows
from mpicoll.study.markdown import TEXTS, facts
from mpicoll.study.overview import overviews
from mpicoll.study.questions import ONE_OR_TWO
from mpicoll.study.reading import Study
from mpicoll.study.sentences import OPEN, Finding
from mpicoll.text.numbers import count_text, number
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


class Figure(NamedTuple):
    """A panel, with the findings that stand beside its figure."""

    panel: Panel
    findings: list[Finding]
    warnings: list[Finding]
    undecided: list[Finding]


class Section(NamedTuple):
    """A question with its introduction and its findings."""

    title: str
    text: str
    findings: list[Finding]


_SUMMARY = (SHORT, WARNINGS)
_OF_FIGURES = (WINNERS, WITHIN, BETWEEN, MEASURED)
"""The sections whose findings stand beside the figures, each with its panel."""
_COLUMNS = (
    "size", "contestant", "us", "launches", "spread between launches", "spread within",
    "against its environment's native", "against the strongest native",
)  # fmt: skip


def page(study: Study, findings: Sequence[Finding], remarks: Sequence[str] = ()) -> str:
    """Return the page.

    Raises:
        ArgumentError: plotly is not installed.
    """
    library = plotly()
    panels = study.panels()
    answer, *short = _of(findings, SHORT) or [_first(findings)]
    questions = _questions(findings)
    return templates(__package__, size_text=bytes_text).get_template("study.html").render(
        policy=POLICY, title=_title(study), answer=answer.text, short=short,
        warnings=_of(findings, WARNINGS), overviews=overviews(study),
        sections=_links(questions), questions=questions,
        figures=[_figure(panel, findings) for panel in panels],
        undecided=[finding for finding in _of(findings, OPEN) if finding.panel is None],
        one_or_two=ONE_OR_TWO, forms=[(forms, list(rows(forms))) for forms in forms_of(study)],
        forms_columns=COLUMNS, legend=LEGEND, columns=_COLUMNS,
        tables=[(panel, list(_rows(study, panel))) for panel in panels],
        facts=[*facts(study), *remarks], terms=TEXTS[SHORT],
        data=finite({panel.anchor: _traces(study, panel) for panel in panels}), plotly=library,
    )  # fmt: skip


def _title(study: Study) -> str:
    machines = (machine for run in study.runs for machine in run.machines)
    processors = dict.fromkeys(filter(None, (machine.processor for machine in machines)))
    count = f" of {count_text(len(study.launches), 'launch')}" if study.launches else ""
    return f"Findings{count}{' on ' if processors else ''}{'; '.join(processors)}"


def _links(questions: Sequence[Section]) -> list[tuple[str, str]]:
    """Return the anchor and the name of each section."""
    numbered = [(f"question-{place}", entry.title) for place, entry in enumerate(questions, 1)]
    return [
        ("figures", "Figures"), *numbered, ("tables", "Tables"), ("undecided", OPEN),
        ("machine", "Machine"),
    ]  # fmt: skip


def _of(findings: Sequence[Finding], section: str) -> list[Finding]:
    return [finding for finding in findings if finding.section == section]


def _first(findings: Sequence[Finding]) -> Finding:
    """Return the first finding that is no warning; a page of nothing else begins with a warning."""
    decided = [finding for finding in findings if finding.section != WARNINGS]
    return [*decided, *findings, Finding(SHORT, "These records decide nothing.")][0]


def _figure(panel: Panel, findings: Sequence[Finding]) -> Figure:
    concerned = [finding for finding in findings if finding.panel == panel]
    return Figure(
        panel,
        [finding for finding in concerned if finding.section in _OF_FIGURES],
        _of(concerned, WARNINGS),
        _of(concerned, OPEN),
    )


def _questions(findings: Sequence[Finding]) -> list[Section]:
    titles = dict.fromkeys(finding.section for finding in findings)
    return [
        Section(title, TEXTS.get(title, ""), _of(findings, title))
        for title in titles
        if title not in (*_SUMMARY, *_OF_FIGURES, OPEN)
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
    """Return a ratio with its interval, and ? if it is undecided, ~ if it is disturbed."""
    interval = f"{number(ratio.low)} .. {number(ratio.high)}"
    return f"{number(ratio.ratio)} {SIGNS[ratio.decision]} ({interval})"


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
        "launches": [contestant.launches for contestant in contestants],
    }
