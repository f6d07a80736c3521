"""Compare the records of two runs, case by case.

A ratio is the time of the first run over that of the second: above 1, the second is faster.
Its interval, and the chance that the difference is none, are those of `twosample`; a
difference counts where it is significant among all of them (Holm) and surely more than a margin.

Samples of one run know nothing of what changes between runs: another process beside it, memory
that lies elsewhere, a processor that is slower for a while. Native calls of the same libraries, on
the same machine, under the same settings are known to be equal, so the factor by which they lie
beyond their intervals is such a change: it widens the margin, and all intervals (`scatter`).
Where library or machine differ nothing is known to be equal, and nothing is widened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Literal

from mpicoll.compare.two_sample import Shift, can_differ, holm, scatter, shift
from mpicoll.errors import ArgumentError
from mpicoll.records import journal
from mpicoll.records.conditions import differences
from mpicoll.records.identity import Key, key

Record = dict[str, Any]
Verdict = Literal["faster", "slower", "tie", "no verdict"]

_ENOUGH_CONTROLS = 10
_OURS = ("versions.mpicoll", "environment.MPICOLL_", "settings", "transports")
"""What changes nothing for a native call."""


@dataclass(frozen=True)
class Compared:
    """A case of two runs.

    Attributes:
        first, second: its records, None where a run lacks it.
        shift: the ratio with its interval; None without a verdict.
        reason: why there is no verdict.
    """

    case: Key
    first: Record | None
    second: Record | None
    shift: Shift | None = None
    verdict: Verdict = "no verdict"
    reason: str = ""

    @property
    def some(self) -> Record:
        """The record of one of the runs, for the keys that both agree in."""
        found = self.first or self.second
        assert found is not None
        return found


@dataclass(frozen=True)
class Comparison:
    """All cases of two runs.

    Attributes:
        factor: by what intervals were widened; `controls`: the native calls that told it.
        remarks: how the conditions of the runs differ.
    """

    rows: list[Compared]
    factor: float
    controls: int
    remarks: list[str]

    def counts(self) -> Counter[str]:
        """Return how many cases have which verdict."""
        return Counter(each.verdict for each in self.rows)

    def mean(self) -> float | None:
        """Return the geometric mean of the ratios."""
        ratios = [each.shift.ratio for each in self.rows if each.shift]
        return geometric_mean(ratios) if ratios else None


def load(path: Path) -> dict[Key, Record]:
    """Return the latest record of each case of a file, with the full description of its run.

    Raises:
        ArgumentError: the file has no records of cases.
    """
    lines = journal.read(path)
    runs = journal.runs(lines)
    found = {}
    for number, record in enumerate(journal.cases(lines), 1):
        try:
            found[key(record)] = record | {"run": runs.get(_id(record), record["run"])}
        except KeyError as missing:
            raise ArgumentError(f"{path}, record {number}, has no {missing}") from None
    if not found:
        raise ArgumentError(f"{path} has no records of cases")
    return found


def _id(record: Mapping[str, Any]) -> str:
    return str(record["run"].get("id"))


def compare(
    first: Mapping[Key, Record],
    second: Mapping[Key, Record],
    margin: float = 0.03,
    confidence: float = 0.95,
) -> Comparison:
    """Return every case of either run, with its verdict."""
    paired = [
        _paired(each, first.get(each), second.get(each), confidence)
        for each in dict.fromkeys([*first, *second])
    ]
    both = [each for each in paired if not each.reason]
    changes = _Changes()
    equal = [_shift(each, 0.0, confidence) for each in both if changes.is_control(each)]
    factor = scatter(equal, confidence) if len(equal) >= _ENOUGH_CONTROLS else 1.0
    sure = (1 + margin) * factor - 1
    shifts = [_widened(_shift(each, sure, confidence), factor) for each in both]
    found = holm([each.p for each in shifts], confidence)
    verdicts = {
        row.case: replace(row, shift=each, verdict=_verdict(each, is_real))
        for row, each, is_real in zip(both, shifts, found, strict=True)
    }
    rows = [verdicts.get(each.case, each) for each in paired]
    return Comparison(rows, factor, len(equal), changes.remarks(paired))


def _widened(found: Shift, factor: float) -> Shift:
    return found._replace(low=found.low / factor, high=found.high * factor)


def _verdict(found: Shift, is_real: bool) -> Verdict:
    if not is_real:
        return "tie"
    return "faster" if found.ratio > 1 else "slower"


def _shift(each: Compared, margin: float, confidence: float) -> Shift:
    assert each.first and each.second
    return shift(each.first["samples_us"], each.second["samples_us"], margin, confidence)


def _paired(case: Key, first: Record | None, second: Record | None, confidence: float) -> Compared:
    found = Compared(case, first, second)
    if first is None or second is None:
        return replace(found, reason=f"only in {'B' if first is None else 'A'}")
    reason = _unusable("A", first) or _unusable("B", second)
    if not reason and first["timing"] != second["timing"]:
        reason = f"timed {first['timing']} in A, {second['timing']} in B"
    ours, theirs = (len(each.get("samples_us") or ()) for each in (first, second))
    if not reason and not can_differ(ours, theirs, confidence):
        reason = f"too few samples: {ours} and {theirs}"
    return replace(found, reason=reason)


def _unusable(name: str, record: Record) -> str:
    """Say why a record carries no verdict, nothing where it does."""
    if record["correct"] is False:
        return f"wrong in {name}"
    if not record["time_us"]:
        return f"refused in {name}: {record['message']}"
    if not record.get("undisturbed", True):
        return f"too few undisturbed samples in {name}"
    return ""


class _Changes:
    """How the conditions of runs differ; every pair of runs is looked at once."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], list[str]] = {}

    def between(self, first: Record, second: Record) -> list[str]:
        """Say how the runs of two records differ."""
        runs = _id(first), _id(second)
        if runs not in self.known:
            self.known[runs] = differences(first["run"], second["run"])
        return self.known[runs]

    def is_control(self, each: Compared) -> bool:
        """Whether a case is a native call that nothing was changed for."""
        assert each.first and each.second
        if not each.first["algorithm"].startswith("native"):
            return False
        changed = self.between(each.first, each.second)
        return all(text.startswith(_OURS) for text in changed)

    def remarks(self, rows: Iterable[Compared]) -> list[str]:
        """Return each difference once."""
        found = [
            text
            for each in rows
            if each.first and each.second
            for text in self.between(each.first, each.second)
        ]
        return list(dict.fromkeys(found))


def shown(rows: Sequence[Compared], only_changes: bool) -> list[Compared]:
    """Return all rows, or those that are faster or slower."""
    return [each for each in rows if not only_changes or each.verdict in ("faster", "slower")]
