"""The files of a run over pairs, and what is printed where they cannot be written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pairing import alike, context, findings, records, usual

from mpicoll.p2p.options import Options
from mpicoll.p2p.output import Results, publish
from mpicoll.p2p.record import fit_records
from mpicoll.records.lines import RunRecord
from mpicoll.records.reading import load, only


def publish_results(path: Path, layout: str, plot: Path | None = None) -> tuple[bool, Results]:
    """Publish made-up results to a file."""
    options = Options(
        ("mpi4py",), (), (8, 65536), "cpu", 1.0, path, plot, layout, False, 0, 0.0, None
    )
    ranks_context = context(2, alike(2))
    pairs = records(2, findings(2, usual))
    results = Results(
        RunRecord(run=ranks_context.run), pairs, fit_records(pairs, ranks_context), []
    )
    return publish(options, ranks_context, results, []), results


@pytest.mark.parametrize("layout", ["table", "csv", "jsonl"])
def test_records_that_cannot_be_written_are_printed(
    layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder was there when the run began."""
    is_written, results = publish_results(tmp_path / "gone" / "pairs.jsonl", layout)
    assert not is_written
    output, errors = capsys.readouterr()
    assert re.search("^Error: .*cannot write .* is not a folder", errors, re.MULTILINE)
    whole = errors if layout == "csv" else output
    assert whole.count(results.lines()) == 1


def test_a_plot_that_cannot_be_drawn_loses_no_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "pairs.jsonl"
    is_written, results = publish_results(path, "table", tmp_path / "gone" / "pairs.png")
    assert not is_written
    assert re.search(r"^Error: .*pairs\.png", capsys.readouterr().err, re.MULTILINE)
    assert only(type(results.pairs[0]), load(path)) == results.pairs
