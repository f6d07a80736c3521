"""What a study leaves: its findings in words, the page, and its cells as records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mpicoll.errors import ArgumentError
from mpicoll.records import reading
from mpicoll.records.lines import Record
from mpicoll.study.cells import Study, study_of
from mpicoll.study.crossovers import Crossings
from mpicoll.study.findings import Finding, findings
from mpicoll.study.markdown import markdown
from mpicoll.text.files import write_whole


def write_outcome(files: Sequence[Path], folder: Path, remarks: Sequence[str] = ()) -> None:
    """Write ``findings.md`` and ``study.html`` of these records, and print their names.

    Raises:
        ArgumentError: a file cannot be read, or there are no cases.
    """
    records = [each for path in files for each in reading.load(path)]
    study, found = found_in(records)
    text = markdown(study, found, remarks)
    write_whole(folder / "findings.md", lambda fresh: fresh.write_text(text, encoding="utf-8"))
    print(f"{folder / 'findings.md'}: {len(found)} findings")


def found_in(records: Sequence[Record]) -> tuple[Study, list[Finding]]:
    """Return the cells of records, and what was found in them.

    Raises:
        ArgumentError: there are no cases with a time.
    """
    study = study_of(records)
    if not study.cells:
        raise ArgumentError("no case in these records has a time: there is nothing to find")
    return study, findings(study, Crossings(records))
