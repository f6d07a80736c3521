"""All records of some files, with a list for each kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mpicoll.errors import ArgumentError
from mpicoll.measurement.launches import summed_up
from mpicoll.records import reading
from mpicoll.records.description import FullRun
from mpicoll.records.identity import key
from mpicoll.records.lines import CaseRecord, FitRecord, LaunchRecord, PairRecord, Record, RunRecord

MOST_MAPPED = 1024
"""Largest number of ranks for a map of all pairs: larger maps are unreadable and large."""


@dataclass(frozen=True)
class Records:
    """The content of the files.

    Attributes:
        runs: the fullest description of each run in the files, by its id.
        cases, pairs, fits: records without duplicates; cases of several launches of a study are
            summed up.
        failed: the launches of a study that failed.
    """

    runs: dict[str, FullRun]
    cases: list[CaseRecord]
    pairs: list[PairRecord]
    fits: list[FitRecord]
    failed: list[LaunchRecord] = field(default_factory=list)

    def run_of(self, record: CaseRecord | PairRecord | FitRecord) -> FullRun:
        """Return the description of the run of a record."""
        return self.runs[record.run.id]

    def pairs_by_run(self) -> dict[str, list[PairRecord]]:
        """Return the records of pairs of each run, by its id."""
        by_run: dict[str, list[PairRecord]] = {}
        for record in self.pairs:
            by_run.setdefault(record.run.id, []).append(record)
        return by_run

    def mapped_pairs(self) -> Iterator[tuple[str, int, list[PairRecord]]]:
        """Yield the id, the ranks and the pairs of each run with few enough ranks for maps."""
        for name, rows in self.pairs_by_run().items():
            ranks = max(record.ranks for record in rows)
            if ranks <= MOST_MAPPED:
                yield name, ranks, rows


def load(paths: Sequence[Path]) -> Records:
    """Read files of records.

    Raises:
        ArgumentError: a file cannot be read or holds other lines, or there are no records.
    """
    lines = [line for path in paths for line in reading.load(path)]
    once = {(record.run.id, key(record)): record for record in reading.only(CaseRecord, lines)}
    cases = summed_up(once.values())
    pairs = {_pair_key(record): record for record in reading.only(PairRecord, lines)}
    fits = {_fit_key(record): record for record in reading.only(FitRecord, lines)}
    if not (cases or pairs):
        names = ", ".join(map(str, paths))
        raise ArgumentError(f"no records of cases or pairs in {names}: nothing to report")
    failed = [record for record in reading.only(LaunchRecord, lines) if record.message]
    return Records(_runs(lines), cases, [*pairs.values()], [*fits.values()], failed)


def _runs(lines: Sequence[Record]) -> dict[str, FullRun]:
    runs: dict[str, FullRun] = {}
    for line in lines:
        if isinstance(line, RunRecord):
            runs[line.run.id] = line.run
        elif isinstance(line, CaseRecord | PairRecord | FitRecord):
            runs.setdefault(line.run.id, reading.full(line.run))
    return runs


def _pair_key(record: PairRecord) -> tuple[object, ...]:
    return (
        record.run.id, record.backend, record.transport, record.device, record.quantity,
        record.source, record.target, record.bytes,
    )  # fmt: skip


def _fit_key(record: FitRecord) -> tuple[object, ...]:
    return record.run.id, record.backend, record.transport, record.device, record.link
