"""All records of some files, each kind in a list of its own."""

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
"""Ranks above which a map of all their pairs is neither readable nor small."""


@dataclass(frozen=True)
class Records:
    """The content of the files.

    Attributes:
        runs: the description of each run by its id, as full as the files have it.
        cases, pairs, fits: records, each once even if a file was given twice; cases of several
            launches of a study are summed up.
        failed: the launches of a study that failed.
    """

    runs: dict[str, FullRun]
    cases: list[CaseRecord]
    pairs: list[PairRecord]
    fits: list[FitRecord]
    failed: list[LaunchRecord] = field(default_factory=list)

    def run_of(self, record: CaseRecord | PairRecord | FitRecord) -> FullRun:
        """Return the description of the run that a record is of."""
        return self.runs[record.run.id]

    def pairs_by_run(self) -> dict[str, list[PairRecord]]:
        """Return the records of pairs of each run, by its id."""
        found: dict[str, list[PairRecord]] = {}
        for each in self.pairs:
            found.setdefault(each.run.id, []).append(each)
        return found

    def mapped_pairs(self) -> Iterator[tuple[str, int, list[PairRecord]]]:
        """Yield the id, the ranks and the pairs of each run that has few enough ranks for maps."""
        for name, rows in self.pairs_by_run().items():
            ranks = max(each.ranks for each in rows)
            if ranks <= MOST_MAPPED:
                yield name, ranks, rows


def load(paths: Sequence[Path]) -> Records:
    """Read files of records.

    Raises:
        ArgumentError: a file cannot be read or holds other lines, or there are no records.
    """
    lines = [each for path in paths for each in reading.load(path)]
    once = {(each.run.id, key(each)): each for each in reading.only(CaseRecord, lines)}
    cases = summed_up(once.values())
    pairs = {_pair_key(each): each for each in reading.only(PairRecord, lines)}
    fits = {_fit_key(each): each for each in reading.only(FitRecord, lines)}
    if not (cases or pairs):
        names = ", ".join(map(str, paths))
        raise ArgumentError(f"no records of cases or pairs in {names}: nothing to report")
    failed = [each for each in reading.only(LaunchRecord, lines) if each.message]
    return Records(_runs(lines), cases, [*pairs.values()], [*fits.values()], failed)


def _runs(lines: Sequence[Record]) -> dict[str, FullRun]:
    found: dict[str, FullRun] = {}
    for each in lines:
        if isinstance(each, RunRecord):
            found[each.run.id] = each.run
        elif isinstance(each, CaseRecord | PairRecord | FitRecord):
            found.setdefault(each.run.id, reading.full(each.run))
    return found


def _pair_key(each: PairRecord) -> tuple[object, ...]:
    return (
        each.run.id, each.backend, each.transport, each.device, each.quantity, each.source,
        each.target, each.bytes,
    )  # fmt: skip


def _fit_key(each: FitRecord) -> tuple[object, ...]:
    return each.run.id, each.backend, each.transport, each.device, each.link
