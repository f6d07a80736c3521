"""The cells of a study."""

from __future__ import annotations

from pathlib import Path

from synthetic_studies import constant, make_launches

from mpicoll.records.lines import LaunchRecord
from mpicoll.records.reading import encoded
from mpicoll.report.data import report
from mpicoll.report.loading import load as load_report
from mpicoll.study.outcome import write_outcome


def test_cells_tell_of_failed_launches(tmp_path: Path) -> None:
    """So that a report of them has a warning."""
    lost = LaunchRecord(configuration="a", launch=0, environment="a", ranks=4, message="no MPI")
    records = [*make_launches(constant(native=10.0, ring=5.0), ["ring"]), lost]
    (tmp_path / "a.jsonl").write_text("".join(f"{encoded(record)}\n" for record in records))
    write_outcome([tmp_path / "a.jsonl"], tmp_path)
    first, *_ = report(load_report([tmp_path / "cells.jsonl"])).notices
    assert (first.severity, first.title) == ("error", "1 launch of a study failed")
    assert [place.text for place in first.places] == ["a: no MPI"]
