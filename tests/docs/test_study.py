"""The published study: its page follows from its records, and its descriptions can be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpicoll.docs.study_findings import STUDIES, Published, read_studies, ten_findings
from mpicoll.docs.study_pages import FOLDER, PAGE, main, page
from mpicoll.errors import ArgumentError
from mpicoll.study.description import load

pytest.importorskip("pyarrow")
_MOST_BYTES = 3 << 20
"""The size of all records together."""


@pytest.fixture(scope="module")
def studies() -> dict[str, Published]:
    return read_studies(FOLDER)


def test_the_page_is_that_of_the_records(studies: dict[str, Published]) -> None:
    assert (FOLDER / PAGE).read_text() == page(studies)


def test_ten_findings_are_short(studies: dict[str, Published]) -> None:
    sentences = [finding.sentence for finding in ten_findings(studies)]
    assert len(sentences) == 10
    assert [sentence for sentence in sentences if len(sentence.split()) > 25] == []


def test_every_finding_has_a_figure_and_a_command(studies: dict[str, Published]) -> None:
    for finding in ten_findings(studies):
        assert any(character.isdigit() for character in finding.sentence)
        assert finding.table.count("\n") >= 2 and finding.reason and finding.strength
        assert finding.limits and finding.studies and {*finding.studies} <= {*STUDIES}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_a_description_is_one(path: Path) -> None:
    assert path.stem in STUDIES and path.with_suffix(".parquet").exists()
    assert load(path).launches >= 6


def test_the_records_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.parquet")) < _MOST_BYTES


def test_other_studies_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="the published studies are libraries"):
        main([str(tmp_path / "another")], standalone_mode=False)
