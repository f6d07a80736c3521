"""The results of a study: its findings in words, the page, and its cells as records."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from mpicoll.errors import ArgumentError
from mpicoll.measurement.launches import summed_up
from mpicoll.records import reading
from mpicoll.records.fields import Verdict
from mpicoll.records.journal import check_ours
from mpicoll.records.lines import CaseRecord, Record, RunRecord, SpeedupVsStrongest
from mpicoll.records.reading import only
from mpicoll.study.cells import ENOUGH, compare_contestants
from mpicoll.study.crossovers import Crossings
from mpicoll.study.findings import FASTEST, SHORT, WARNINGS, findings, is_guess
from mpicoll.study.forms import write_times
from mpicoll.study.markdown import PAGE, markdown
from mpicoll.study.page import page
from mpicoll.study.reading import Study, name_of, panel_of, study_of
from mpicoll.study.run_environments import environments_of, set_environments
from mpicoll.study.sentences import Finding
from mpicoll.text.files import write_whole
from mpicoll.text.numbers import count_text
from mpicoll.text.printable import printable

_ADVICE = f"{ENOUGH} launches or more of each configuration"
_MOST_CASES, _MOST_WARNINGS = 24, 2
"""The numbers of cases and of warnings that a terminal shows."""


def check_folder(folder: Path) -> None:
    """Raise ArgumentError if a folder has foreign files with the names of a study's files."""
    check_ours(folder / "findings.md", opening=b"# Findings\n")
    check_ours(folder / "cells.jsonl")


def write_outcome(
    files: Sequence[Path], folder: Path | None, remarks: Sequence[str] = (),
    table: Path | None = None, advice: str = _ADVICE,
) -> None:  # fmt: skip
    """Write ``findings.md``, ``study.html`` and ``cells.jsonl`` of records; print their names.

    Args:
        folder: None to print the findings.
        table: also write the times of allreduce in one call and in two to this file.
        advice: how to decide what is not decided.

    Raises:
        ArgumentError: a file cannot be read, or there are no cases.
    """
    if folder is not None:
        check_folder(folder)
    records = [record for path in files for record in reading.load(path)]
    study, sentences = found_in(records)
    if table is not None:
        write_times(study, table)
    if folder is None:
        print(printable(markdown(study, sentences, remarks, linked=False)), end="")
        return
    for line in short_answer(sentences, advice):
        print(printable(line))
    text = markdown(study, sentences, remarks)
    write_whole(folder / "findings.md", lambda fresh: fresh.write_text(text, encoding="utf-8"))
    print(printable(f"{folder / 'findings.md'}: {count_text(len(sentences), 'finding')}"))
    _write_cells(records, study, folder / "cells.jsonl")
    try:
        shown = page(study, sentences, remarks)
    except ArgumentError as error:
        print(printable(f"warning: no {PAGE}: {error}"), file=sys.stderr)
        return
    write_whole(folder / PAGE, lambda fresh: fresh.write_text(shown, encoding="utf-8"))
    print(printable(f"{folder / PAGE}: {count_text(len(study.panels()), 'figure')}"))


def short_answer(findings: Sequence[Finding], advice: str) -> list[str]:
    """Return what is fastest here, for a terminal, with advice if a case is not decided."""
    short, warnings, cases = (
        [finding.text for finding in findings if finding.section == section]
        for section in (SHORT, WARNINGS, FASTEST)
    )
    lines = [*short[:1], *(f"  warning: {text}" for text in warnings[:_MOST_WARNINGS])]
    lines += [f"  {text}" for text in cases[:_MOST_CASES]]
    if len(cases) > _MOST_CASES:
        lines.append(f"  {len(cases) - _MOST_CASES} more cases are in findings.md")
    return [*lines, f"For a verdict: {advice}"] if any(map(is_guess, cases)) else lines


def _write_cells(records: Sequence[Record], study: Study, path: Path) -> None:
    """Write a record for each case over all launches, with its ratio to the strongest native.

    The file also has the records of failed launches.
    """
    cases = summed_up(only(CaseRecord, records))
    runs = {case.run.id for case in cases}
    described = [record for record in only(RunRecord, records) if record.run.id in runs]
    for case in cases:
        _against_strongest(case, study)
    failed = [launch for launch in study.launches if launch.message]
    lines = [reading.encoded(record) + "\n" for record in (*described, *failed, *cases)]
    write_whole(path, lambda fresh: fresh.write_text("".join(lines)))


def _against_strongest(record: CaseRecord, study: Study) -> None:
    cell = study.cells.get((panel_of(record), record.bytes_total))
    contestant = cell.contestants.get(name_of(record)) if cell else None
    strongest = cell.strongest_native() if cell else None
    if contestant is None or strongest is None or contestant is strongest:
        return
    ratio, name = compare_contestants(contestant, strongest), strongest.name
    verdict: Verdict = "tie"
    if ratio.decision in ("faster", "slower"):
        verdict = ratio.decision
    by_way = f" by {strongest.way}" if strongest.way else ""
    record.speedup_vs_strongest = SpeedupVsStrongest(
        ratio.ratio, ratio.low, ratio.high, verdict,
        against=f"{name.backend} {name.algorithm}{by_way}", environment=name.environment or None,
    )  # fmt: skip


def found_in(records: Sequence[Record]) -> tuple[Study, list[Finding]]:
    """Return the cells of records, and the findings in them.

    Different environments with the same name get different names in the records.

    Raises:
        ArgumentError: there are no cases with a time.
    """
    environments = environments_of(records)
    set_environments(records, environments)
    study = study_of(records)
    if not study.cells:
        raise ArgumentError("no case in these records has a time: there are no findings")
    return study, findings(study, Crossings(records, environments))
