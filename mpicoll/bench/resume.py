"""Resume a run: leave out the cases that a file of records already has.

A case with a record counts as measured, even if it was refused or wrong. The run must have the same
conditions as the file: versions, libraries, hosts, cores, the flags of measuring, and the variables
that tune a library. If they differ the run is refused, since one file would hold numbers that
cannot be compared.

Candidates of a group are measured side by side. If only some of a group are missing, the native
calls are measured again with them, so that the new ratios come from one run. The file keeps its own
records of these native calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from mpicoll.bench.record import mark_best
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError
from mpicoll.measurement.cases import BASELINES, Case
from mpicoll.records.conditions import differences
from mpicoll.records.description import FullRun, Git
from mpicoll.records.identity import FIELDS, Key, key
from mpicoll.records.journal import Journal
from mpicoll.records.lines import CaseRecord, Record, RunRecord
from mpicoll.records.reading import only, runs


class Ledger:
    """The cases that are measured, and the file for new records, which rank 0 holds.

    Attributes:
        keys: the cases that the file already has, on every rank.
        records: their records, on rank 0 only.
        remarks: on the existing records.
    """

    def __init__(
        self, world: Collectives, run: FullRun, path: Path | None, *, resume: bool = False
    ) -> None:
        """Open the file; collective.

        Raises:
            ArgumentError: on every rank, if rank 0 cannot use the file.
        """
        self.world, self.run, self.is_new = world, run, True
        self.records: dict[Key, CaseRecord] = {}
        self.remarks: list[str] = []
        self.journal = Journal(None)
        content = self._open(path, resume) if world.rank == 0 else None
        content_of_root = world.exchange(content, set[Key] | str | None)[0]
        if isinstance(content_of_root, str):
            raise ArgumentError(content_of_root)
        self.keys: set[Key] = content_of_root

    def _open(self, path: Path | None, resume: bool) -> set[Key] | str:
        """Return the measured cases, or an error text if the file cannot be used."""
        try:
            self.journal = Journal(path, resume=resume)
            self.remarks = unlike(self.journal.records, self.run)
        except ArgumentError as error:
            return f"{path}: {error}" if str(path) not in str(error) else str(error)
        except OSError as error:
            return f"cannot use {path}: {error!r}"
        self.records = {key(record): record for record in only(CaseRecord, self.journal.records)}
        return set(self.records)

    # -- cases to measure -------------------------------------------------------------

    def missing(self, cases: Iterable[Case]) -> list[Case]:
        """Return the cases without a record."""
        return [case for case in cases if self._key(case) not in self.keys]

    def with_baselines(self, cases: Sequence[Case]) -> list[Case]:
        """Return the missing cases, and the native calls that they are compared with."""
        missing = set(self.missing(cases))
        return [case for case in cases if case in missing or case.algorithm in BASELINES]

    def _key(self, case: Case) -> Key:
        """Return the key of a case to measure: the same as `key` returns for its record."""
        fields = case.group.identity | {
            "backend": case.backend, "algorithm": case.algorithm, "call": case.call,
            "ranks": self.world.size, "nodes": len(self.world.nodes), "environment": None,
        }  # fmt: skip
        return tuple(fields[name] for name in FIELDS)

    # -- measured cases ---------------------------------------------------------------

    def add(self, cases: Sequence[Case], measured: Sequence[CaseRecord]) -> list[CaseRecord]:
        """Write the new records of a group; return all its records, in the order of the cases."""
        fresh = {key(record): record for record in measured if key(record) not in self.keys}
        every = {**self.records, **fresh}
        rows = [every[name] for name in map(self._key, cases) if name in every]
        mark_best(rows)
        if fresh and self.world.rank == 0:
            described = [RunRecord(run=self.run)] if self.is_new else []
            self.journal.write([*described, *fresh.values()])
            self.is_new = False
        return rows


def unlike(records: Sequence[Record], run: FullRun) -> list[str]:
    """Return remarks on the differences between the runs of a file and this one.

    Raises:
        ArgumentError: the conditions differ, so that the numbers cannot be compared.
    """
    described, remarks = runs(records), []
    for name in dict.fromkeys(record.run.id for record in only(CaseRecord, records)):
        if name not in described:
            raise ArgumentError(
                "it lacks the conditions of its records: an older version wrote it, or lines are "
                "missing; give another file"
            )
        if differing := differences(described[name], run):
            raise ArgumentError(
                f"it was measured under other conditions: {'; '.join(differing)}. Repeat the "
                "earlier command, or give another file"
            )
        was, is_ = described[name].git, run.git
        if was != is_:
            remarks.append(
                "existing records of this file come from other source code: "
                f"{_source_text(was)}, now {_source_text(is_)}"
            )
    return remarks


def _source_text(source: Git | None) -> str:
    if source is None:
        return "of no known commit"
    return source.commit[:12] + (" with changes" if source.dirty else "")
