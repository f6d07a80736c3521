"""Everything that a report says, worked out once from the records."""

from __future__ import annotations

from dataclasses import dataclass

from mpicoll.report.curves import Panel, panels
from mpicoll.report.loading import Records, run_id
from mpicoll.report.model_comparison import Against, against
from mpicoll.report.notices import Notice, notices
from mpicoll.report.setups import Setup, setups
from mpicoll.report.winners import WinnerMap, winner_maps


@dataclass(frozen=True)
class Report:
    """What the page and the figures show.

    Attributes:
        against: beside each panel, in the order of `panels`.
    """

    records: Records
    setups: list[Setup]
    panels: list[Panel]
    maps: list[WinnerMap]
    against: list[list[Against]]
    notices: list[Notice]


def report(records: Records) -> Report:
    """Work out what the records say."""
    measured = dict.fromkeys(
        map(run_id, records.cases) if records.cases else [each.run.id for each in records.pairs]
    )
    found = setups([records.runs[name] for name in measured])
    drawn = panels(records, found)
    return Report(
        records,
        found,
        drawn,
        winner_maps(drawn),
        [against(panel, records) for panel in drawn],
        notices(records, found),
    )
