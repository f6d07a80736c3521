"""All records of some files, each kind by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from mpicoll.errors import ArgumentError
from mpicoll.records import journal
from mpicoll.records.identity import key
from mpicoll.records.journal import Line
from mpicoll.records.lines import PairRecord

_NEEDED = ("run", "time_us", "correct", "algorithm", "backend", "ranks", "bytes_total")
_ABSENT: dict[str, Any] = {
    "device": "cpu", "allocated": False, "nodes": 1, "executed": None, "transport": None,
    "library": "", "message": None, "speedup_vs_native": None, "algbw_GBps": None,
    "busbw_GBps": None, "samples": 0, "wrong": 0,
}  # fmt: skip
"""What stands for keys that older records lack."""


@dataclass
class Records:
    """What the files hold.

    Attributes:
        runs: the description of each run by its id, as full as the files have it.
        cases, pairs, fits: records, those of a run that was given twice only once.
    """

    runs: dict[str, Line] = field(default_factory=dict)
    cases: list[Line] = field(default_factory=list)
    pairs: list[PairRecord] = field(default_factory=list)
    fits: list[Line] = field(default_factory=list)

    def run_of(self, record: Mapping[str, Any]) -> Line:
        """Return the description of the run that a record is of."""
        return self.runs[run_id(record)]


def run_id(record: Mapping[str, Any]) -> str:
    """Return the id of the run of a record."""
    return str(record["run"].get("id"))


def load(paths: Sequence[Path]) -> Records:
    """Read files of records.

    Raises:
        ArgumentError: a file cannot be read or is none of records, or there is nothing in them.
    """
    found = Records()
    for path in paths:
        _add(found, journal.read(path), path)
    found.cases, found.fits = map(_once, (found.cases, found.fits))
    found.pairs = list({_pair_identity(each): each for each in found.pairs}.values())
    if not (found.cases or found.pairs):
        names = ", ".join(map(str, paths))
        raise ArgumentError(f"no records of cases or pairs in {names}: nothing to report")
    return found


def _add(found: Records, lines: Sequence[Line], path: Path) -> None:
    for number, line in enumerate(lines, 1):
        try:
            _sort_in(found, line)
        except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
            raise ArgumentError(f"{path}, line {number}, is no whole record: {error!r}") from None


def _sort_in(found: Records, line: Line) -> None:
    kind = line.get("kind", journal.CASE)
    if kind == journal.RUN:
        found.runs[str(line["run"]["id"])] = line["run"]
    elif kind == journal.CASE:
        key(line), [line[name] for name in _NEEDED]
        found.runs.setdefault(run_id(line), line["run"])
        found.cases.append(_ABSENT | line)
    elif kind == "pair":
        found.runs.setdefault(run_id(line), line["run"])
        found.pairs.append(msgspec.convert(line, PairRecord))
    elif kind == "fit":
        found.runs.setdefault(run_id(line), line["run"])
        found.fits.append(line)


def _once(lines: Iterable[Line]) -> list[Line]:
    """Leave out what is there twice, as where a file was named twice."""
    return list({_identity(line): line for line in lines}.values())


def _identity(line: Line) -> tuple[Any, ...]:
    if line.get("kind", journal.CASE) == journal.CASE:
        return run_id(line), key(line)
    return run_id(line), *(line.get(name) for name in ("backend", "transport", "device", "link"))


def _pair_identity(each: PairRecord) -> tuple[Any, ...]:
    return (
        each.run.id, each.backend, each.transport, each.device, each.quantity, each.source,
        each.target, each.bytes,
    )  # fmt: skip
