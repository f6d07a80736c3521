"""The page: one file that needs no network, with its script, style, data and plotly inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from mpicoll.report.setups import Setup, machine_kind
from mpicoll.report.tables import ReportTable, tables
from mpicoll.report.winners import WinnerMap
from mpicoll.text.numbers import number
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
    environment = templates(__package__, plain=plain, number=number, size_text=size_text)
    return environment.get_template("page.html").render(
        policy=POLICY, style=asset("page.css"), title=_title(report), sections=_sections(report),
        report=report, tables=listed, colours=hues, winner_maps=list(_winner_maps(report)),
        collectives=dict.fromkeys(panel.collective for panel in report.panels if panel.curves),
        how_to_measure_pairs=HOW_TO_MEASURE_PAIRS, data=finite(_data(report, hues, listed)),
        plotly=library, script=Markup("\n").join(asset(f"{name}.js") for name in _SCRIPTS),
    )  # fmt: skip


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


def _sections(report: Report) -> list[str]:
    of_cases = ["curves", "winners", "model"] if report.panels else []
    return ["warnings", "machine", *of_cases, "pairs"]


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
