"""Go on where a run was ended: leave out the cases that a file of records has already.

A case counts as measured where its record is there, whether it was timed, refused or wrong,
under the same conditions: versions, libraries, hosts, cores, the flags of measuring, and the
variables that tune a library. Where those differ the run is refused, as its numbers would
stand beside others of which they cannot be told apart.

Candidates of a group are measured side by side. Where only some of a group are missing, they are
measured with the native calls again, so that their ratios are as good as any; the records of
those native calls stay the ones that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpicoll.bench.record import Record, mark_best
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError
from mpicoll.measurement.cases import BASELINES, Case
from mpicoll.records import journal
from mpicoll.records.conditions import differences
from mpicoll.records.identity import Key, key, key_of
from mpicoll.records.journal import Journal


class Ledger:
    """What is measured, and where new records go: the file is in the hands of rank 0.

    Attributes:
        done: the cases that the file has, on every rank; `kept`: their records, on rank 0.
        remarks: what to say about the file.
    """

    def __init__(
        self, world: Collectives, run: Record, path: Path | None, *, resume: bool = False
    ) -> None:
        """Open the file; collective.

        Raises:
            ArgumentError: on every rank, where rank 0 cannot use the file.
        """
        self.world, self.run, self.is_new = world, run, True
        self.kept: dict[Key, Record] = {}
        self.remarks: list[str] = []
        self.journal = Journal(None)
        told = world.exchange(self._open(path, resume) if world.rank == 0 else None)[0]
        if isinstance(told, str):
            raise ArgumentError(told)
        self.done: set[Key] = told

    def _open(self, path: Path | None, resume: bool) -> set[Key] | str:
        """Return what is measured already, or why the file cannot be used."""
        try:
            self.journal = Journal(path, resume=resume)
            self.remarks = unlike(self.journal.found, self.run)
            self.kept = {key(each): each for each in journal.cases(self.journal.found)}
        except ArgumentError as error:
            return f"{path}: {error}" if str(path) not in str(error) else str(error)
        except (OSError, KeyError) as error:
            return f"cannot use {path}: {error!r}"
        return set(self.kept)

    # -- what to measure --------------------------------------------------------------

    def missing(self, cases: Iterable[Case]) -> list[Case]:
        """Return the cases of which there is no record."""
        return [case for case in cases if self._key(case) not in self.done]

    def with_baselines(self, cases: Sequence[Case]) -> list[Case]:
        """Return what is missing, and what that is compared with."""
        missing = set(self.missing(cases))
        return [case for case in cases if case in missing or case.algorithm in BASELINES]

    def _key(self, case: Case) -> Key:
        return key_of(case, self.world.size, len(self.world.nodes))

    # -- what was measured ------------------------------------------------------------

    def add(self, cases: Sequence[Case], measured: Sequence[Record]) -> list[Record]:
        """Write the new records of a group; return all that there are, in its order."""
        fresh = {key(each): each for each in measured if key(each) not in self.done}
        every = {**self.kept, **fresh}
        rows = [every[name] for name in map(self._key, cases) if name in every]
        mark_best(rows)
        self._write(list(fresh.values()))
        return rows

    def _write(self, fresh: Sequence[Record]) -> None:
        """Append records, the first time after the description of their run."""
        if fresh and self.world.rank == 0:
            self.journal.write([*([journal.run_line(self.run)] if self.is_new else []), *fresh])
            self.is_new = False


def unlike(lines: Sequence[Record], run: Mapping[str, Any]) -> list[str]:
    """Return remarks on what differs between the runs of a file and this one.

    Raises:
        ArgumentError: too much for their numbers to stand in one table.
    """
    runs, remarks = journal.runs(lines), []
    for name in dict.fromkeys(each["run"].get("id") for each in journal.cases(lines)):
        if name not in runs:
            raise ArgumentError(
                "it does not say under which conditions its records were measured: an older "
                "version wrote it, or lines are missing; give another file"
            )
        if differing := differences(runs[name], run):
            raise ArgumentError(
                f"it was measured under other conditions: {'; '.join(differing)}. Run as "
                "before, or give another file"
            )
        was, is_ = runs[name].get("git"), run.get("git")
        if was != is_:
            remarks.append(f"other records of this file are of another source: {was}, now {is_}")
    return remarks
