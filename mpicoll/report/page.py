"""The page: one file that needs no network, with its script, style, data and plotly inside.

It begins with a sentence and its chart. Figures, tables and the machine follow in this order.
Notices stand beside the charts that they concern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from math import isfinite
from typing import Any

from markupsafe import Markup

from mpicoll.errors import ArgumentError
from mpicoll.report.charts import heat_maps, panel_values
from mpicoll.report.colours import colours
from mpicoll.report.data import Report
from mpicoll.report.model_comparison import HOW_TO_MEASURE_PAIRS
from mpicoll.report.notices import PAIRS, Notice
from mpicoll.report.overview import Overview, headline
from mpicoll.report.record_overviews import overviews, times_sentence
from mpicoll.report.setups import Setup, machine_kind
from mpicoll.report.tables import ReportTable, tables
from mpicoll.report.winners import WinnerMap
from mpicoll.text.numbers import count_text, number
from mpicoll.text.pages import templates
from mpicoll.text.sizes import size_text

_SCRIPTS = ("state", "traces", "views", "tools", "pairs", "tables", "main")
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
"""The page must not load anything from elsewhere, for any content of a record."""


def page(report: Report) -> str:
    """Return the page.

    Raises:
        ArgumentError: plotly is not installed.
    """
    library = plotly()
    hues, listed = colours(report.panels, report.maps), tables(report)
    collectives = dict.fromkeys(panel.collective for panel in report.panels if panel.curves)
    charts = overviews(report.panels, report.records)
    subjects = {*collectives, PAIRS}
    environment = templates(__package__, plain=plain, number=number, size_text=size_text)
    return environment.get_template("page.html").render(
        policy=POLICY, style=asset("page.css"), title=_title(report), sections=_sections(report),
        answer=_answer(report, charts), overviews=charts, collectives=[*collectives],
        notices=_about(report, lambda subject: subject not in subjects),
        notices_of={name: _about(report, name.__eq__) for name in subjects},
        report=report, tables=listed, colours=hues, winner_maps=list(_winner_maps(report)),
        how_to_measure_pairs=HOW_TO_MEASURE_PAIRS, data=finite(_data(report, hues, listed)),
        plotly=library, script=Markup("\n").join(asset(f"{name}.js") for name in _SCRIPTS),
    )  # fmt: skip


def _about(report: Report, holds: Callable[[str], bool]) -> list[Notice]:
    notices = (notice.about(holds) for notice in report.notices)
    return [notice for notice in notices if notice is not None]


def _answer(report: Report, charts: Sequence[Overview]) -> str:
    """Return the sentence of the first chart."""
    if charts:
        return headline(charts[0])
    for panel in report.panels:
        if panel.curves:
            return times_sentence(panel)
    if report.records.pairs:
        outliers = sum(record.outlier for record in report.records.pairs)
        links = count_text(len(report.records.pairs), "measurement")
        standing_out = f"{outliers} of them stand out" if outliers else "none of them stands out"
        return f"{links} of pairs of ranks, and {standing_out}."
    return "No case in these records has a time."


@cache
def plotly() -> Markup:
    """Return the plotting library's script.

    Raises:
        ArgumentError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ArgumentError("a page needs plotly: pip install 'mpicoll[report]'") from None
    return Markup(str(get_plotlyjs()).replace("</script", "<\\/script"))


def asset(name: str) -> Markup:
    """Return a file of the page without escaping it."""
    return Markup(resources.files(__package__).joinpath("assets", name).read_text("utf-8"))


def plain(value: object) -> object:
    """Return a value of a table in readable form.

    >>> plain(None), plain(True), plain(3.14159), plain(7)
    ('-', 'yes', '3.14', 7)
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, float) else value


def finite(values: Any) -> Any:
    """Return values with None for each number that JSON does not have.

    >>> finite({"a": [1.5, float("nan")]})
    {'a': [1.5, None]}
    """
    if isinstance(values, dict):
        return {name: finite(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [finite(value) for value in values]
    return None if isinstance(values, float) and not isfinite(values) else values


def _data(
    report: Report, hues: Mapping[str, str], listed: Mapping[str, ReportTable]
) -> dict[str, Any]:
    return {
        "colours": hues,
        "panels": panel_values(report),
        "pairs": heat_maps(report),
        "tables": {
            name: {"columns": table.columns, "rows": table.rows} for name, table in listed.items()
        },
    }


def _title(report: Report) -> str:
    kinds = dict.fromkeys(machine_kind(run) for run in report.records.runs.values())
    return f"Collectives on {'; '.join(kinds)}"


def _sections(report: Report) -> list[tuple[str, str]]:
    """Return the anchor and the name of each section."""
    of_cases = ["curves", "winners", "model"] if report.panels else []
    return [(name, name.capitalize()) for name in (*of_cases, "pairs", "tables", "machine")]


def _winner_maps(report: Report) -> Iterator[tuple[Setup | None, list[WinnerMap], Sequence[int]]]:
    """Yield the maps that share a table, with their sizes; the setup with its first table."""
    for setup in report.setups:
        title: Setup | None = setup
        setup_maps = [winner_map for winner_map in report.maps if winner_map.setup == setup.name]
        # Collectives without data would need a column of their own.
        for maps in (
            [m for m in setup_maps if any(m.sizes)],
            [m for m in setup_maps if not any(m.sizes)],
        ):
            if maps:
                yield (
                    title,
                    maps,
                    sorted({size for winner_map in maps for size in winner_map.sizes}),
                )
                title = None
