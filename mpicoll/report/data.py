"""The content of a report, computed once from the records."""

from __future__ import annotations

from dataclasses import dataclass

from mpicoll.report.curves import Panel, panels
from mpicoll.report.loading import Records
from mpicoll.report.model_comparison import ModelComparison, model_comparisons
from mpicoll.report.notices import Notice, notices
from mpicoll.report.setups import Setup, setups
from mpicoll.report.winners import WinnerMap, winner_maps


@dataclass(frozen=True)
class Report:
    """The content of the page and the figures.

    Attributes:
        comparisons: with model and bound, for each panel in the order of `panels`.
    """

    records: Records
    setups: list[Setup]
    panels: list[Panel]
    maps: list[WinnerMap]
    comparisons: list[list[ModelComparison]]
    notices: list[Notice]


def report(records: Records) -> Report:
    """Return the report of these records."""
    measured = dict.fromkeys(record.run.id for record in records.cases or records.pairs)
    groups = setups([records.runs[name] for name in measured])
    shown = panels(records, groups)
    return Report(
        records,
        groups,
        shown,
        winner_maps(shown),
        [model_comparisons(panel, records) for panel in shown],
        notices(records, groups),
    )
