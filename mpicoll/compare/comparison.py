"""Compare the records of two runs, case by case.

A ratio is the time of the first run over that of the second: above 1, the second is faster. A
difference counts where it is significant among all cases (Holm) and surely more than a margin;
intervals and tests are those of `two_sample`.

The samples of one run do not show what changes between runs: another process on the machine, other
places in memory, a processor that is slower for a while. Records of several launches do: their
samples are the medians of the launches. Native calls of the same libraries, on the
same machine, under the same settings are controls: they did not change between the runs, so the
factor by which they differ beyond their intervals is the machine's. It widens the margin, and all
intervals (`scatter`). Where library or machine differ there are no controls, and nothing widens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Literal

from mpicoll.compare.two_sample import Shift, can_differ, holm, scatter, shift
from mpicoll.errors import ArgumentError
from mpicoll.measurement.launches import summed_up
from mpicoll.records import reading
from mpicoll.records.conditions import differences
from mpicoll.records.identity import Key, key
from mpicoll.records.lines import CaseRecord

Verdict = Literal["faster", "slower", "tie", "no verdict"]

_ENOUGH_CONTROLS = 10
_OURS = ("versions.mpicoll", "environment.MPICOLL_", "settings", "transports")
"""The conditions that do not change a native call."""


@dataclass(frozen=True)
class Compared:
    """A case of two runs.

    Attributes:
        first, second: its records, None where a run lacks it.
        shift: the ratio with its interval; None without a verdict.
        reason: why there is no verdict.
    """

    case: Key
    first: CaseRecord | None
    second: CaseRecord | None
    shift: Shift | None = None
    verdict: Verdict = "no verdict"
    reason: str = ""

    @property
    def either(self) -> CaseRecord:
        """The record of one of the runs, for the fields that both have in common."""
        found = self.first or self.second
        assert found is not None
        return found


@dataclass(frozen=True)
class Comparison:
    """All cases of two runs.

    Attributes:
        factor: by which intervals were widened; `controls`: the native calls that it is from.
        remarks: how the conditions of the runs differ.
    """

    rows: list[Compared]
    factor: float
    controls: int
    remarks: list[str]

    def counts(self) -> Counter[str]:
        """Return the number of cases of each verdict."""
        return Counter(each.verdict for each in self.rows)

    def mean(self) -> float | None:
        """Return the geometric mean of the ratios."""
        ratios = [each.shift.ratio for each in self.rows if each.shift]
        return geometric_mean(ratios) if ratios else None


def load(path: Path) -> dict[Key, CaseRecord]:
    """Return the latest record of each case of a file, with the full description of its run.

    A case of several launches of a study is one record, whose samples are their medians.

    Raises:
        ArgumentError: the file has no records of cases.
    """
    records = reading.load(path)
    runs = reading.runs(records)
    cases = reading.only(CaseRecord, records)
    for each in cases:
        each.run = runs.get(each.run.id, each.run)
    found = {key(each): each for each in summed_up(cases)}
    if not found:
        raise ArgumentError(f"{path} has no records of cases")
    return found


def compare(
    first: Mapping[Key, CaseRecord],
    second: Mapping[Key, CaseRecord],
    margin: float = 0.03,
    confidence: float = 0.95,
) -> Comparison:
    """Return every case of either run, with its verdict."""
    paired = [
        _paired(each, first.get(each), second.get(each), confidence)
        for each in dict.fromkeys([*first, *second])
    ]
    both = [each for each in paired if not each.reason]
    changed = _changes(paired)
    equal = [_shift(each, 0.0, confidence) for each in both if _is_control(each, changed)]
    factor = scatter(equal, confidence) if len(equal) >= _ENOUGH_CONTROLS else 1.0
    sure = (1 + margin) * factor - 1
    shifts = [_shift(each, sure, confidence) for each in both]
    shifts = [each._replace(low=each.low / factor, high=each.high * factor) for each in shifts]
    found = holm([each.p for each in shifts], confidence)
    verdicts = {
        row.case: replace(row, shift=each, verdict=_verdict(each, is_real))
        for row, each, is_real in zip(both, shifts, found, strict=True)
    }
    rows = [verdicts.get(each.case, each) for each in paired]
    remarks = dict.fromkeys(text for found in changed.values() for text in found)
    return Comparison(rows, factor, len(equal), list(remarks))


def _verdict(found: Shift, is_real: bool) -> Verdict:
    if not is_real:
        return "tie"
    return "faster" if found.ratio > 1 else "slower"


def _shift(each: Compared, margin: float, confidence: float) -> Shift:
    assert each.first and each.second
    return shift(each.first.samples_us, each.second.samples_us, margin, confidence)


def _paired(
    case: Key, first: CaseRecord | None, second: CaseRecord | None, confidence: float
) -> Compared:
    found = Compared(case, first, second)
    if first is None or second is None:
        return replace(found, reason=f"only in {'B' if first is None else 'A'}")
    reason = _unusable("A", first) or _unusable("B", second)
    if not reason and first.timing != second.timing:
        reason = f"timed {first.timing} in A, {second.timing} in B"
    ours, theirs = len(first.samples_us), len(second.samples_us)
    if not reason and not can_differ(ours, theirs, confidence):
        reason = f"too few samples: {ours} and {theirs}"
    return replace(found, reason=reason)


def _unusable(name: str, record: CaseRecord) -> str:
    """Return why a record allows no verdict, nothing where it does."""
    if record.correct is False:
        return f"wrong in {name}"
    if record.time_us is None:
        return f"refused in {name}: {record.message}"
    if not record.undisturbed:
        return f"too few undisturbed samples in {name}"
    return ""


def _changes(rows: Iterable[Compared]) -> dict[tuple[str, str], list[str]]:
    """Return in words how the conditions of each two runs differ, by their ids."""
    runs = {
        (each.first.run.id, each.second.run.id): (each.first.run, each.second.run)
        for each in rows if each.first and each.second
    }  # fmt: skip
    return {names: differences(*map(reading.full, both)) for names, both in runs.items()}


def _is_control(each: Compared, changed: Mapping[tuple[str, str], list[str]]) -> bool:
    """Whether a case is a native call under unchanged conditions."""
    assert each.first and each.second
    texts = changed[each.first.run.id, each.second.run.id]
    return each.either.algorithm.startswith("native") and all(t.startswith(_OURS) for t in texts)
