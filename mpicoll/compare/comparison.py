"""Compare the records of two runs, case by case.

A ratio is the time of the first run over that of the second: above 1, the second is faster. A
difference counts if it is significant among all cases (Holm) and exceeds a margin. `two_sample` has
the intervals and tests.

The samples of one run do not show the changes between runs: another process on the machine, other
addresses in memory, a processor that is slower for a while. Records of several launches show them,
since their samples are the medians of the launches. Native calls of the same libraries, on the same
machine and under the same settings, are controls. They did not change between the runs, so the
machine causes any difference beyond their intervals. That factor widens the margin and all
intervals (`scatter`). If the library or the machine differs there are no controls, and nothing is
widened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Literal

from mpicoll.compare.two_sample import Shift, can_differ, holm, scatter, shift
from mpicoll.errors import ArgumentError
from mpicoll.measurement.judgement import MARGIN, contradictions, is_disturbed, is_tie
from mpicoll.measurement.launches import summed_up
from mpicoll.measurement.statistics import is_enough
from mpicoll.records import reading
from mpicoll.records.conditions import differences
from mpicoll.records.identity import Key, grouped, key, place
from mpicoll.records.lines import CaseRecord

Verdict = Literal["faster", "slower", "tie", "no verdict"]

_ENOUGH_CONTROLS = 10
_LOCAL_CONDITIONS = ("versions.mpicoll", "environment.MPICOLL_", "settings", "transports")
"""The conditions that do not change a native call."""


@dataclass(frozen=True)
class ComparedCase:
    """A case of two runs.

    Attributes:
        first, second: its records; None if a run lacks the case.
        shift: the ratio with its interval; None without a verdict.
        reason: the reason for a missing verdict.
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
        record = self.first or self.second
        assert record is not None
        return record


@dataclass(frozen=True)
class Comparison:
    """All cases of two runs.

    Attributes:
        factor: by which the intervals were widened.
        controls: the number of native calls that give the factor.
        remarks: the differences between the conditions of the runs.
    """

    rows: list[ComparedCase]
    factor: float
    controls: int
    remarks: list[str]

    def counts(self) -> Counter[str]:
        """Return the number of cases of each verdict."""
        return Counter(row.verdict for row in self.rows)

    @property
    def is_decided(self) -> bool:
        """Whether some case has a verdict."""
        return any(row.verdict != "no verdict" for row in self.rows)

    def mean(self) -> float | None:
        """Return the geometric mean of the ratios."""
        ratios = [row.shift.ratio for row in self.rows if row.shift]
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
    for record in cases:
        record.run = runs.get(record.run.id, record.run)
    by_case = {key(record): record for record in summed_up(cases)}
    if not by_case:
        raise ArgumentError(f"{path} has no records of cases")
    return by_case


def compare(
    first: Mapping[Key, CaseRecord],
    second: Mapping[Key, CaseRecord],
    margin: float = 0.03,
    confidence: float = 0.95,
) -> Comparison:
    """Return every case of either run, with its verdict."""
    wrong = [_contradicted("A", first), _contradicted("B", second)]
    paired = [
        _pair(case, first.get(case), second.get(case), confidence, wrong)
        for case in dict.fromkeys([*first, *second])
    ]
    comparable = [row for row in paired if not row.reason]
    changed = _changes(paired)
    equal = [_shift(row, 0.0, confidence) for row in comparable if _is_control(row, changed)]
    factor = scatter(equal, confidence) if len(equal) >= _ENOUGH_CONTROLS else 1.0
    sure = (1 + margin) * factor - 1
    shifts = [_shift(row, sure, confidence) for row in comparable]
    shifts = [ratio._replace(low=ratio.low / factor, high=ratio.high * factor) for ratio in shifts]
    significant = holm([ratio.p for ratio in shifts], confidence)
    judged = {
        row.case: _judge(row, ratio, is_real, max(margin, MARGIN))
        for row, ratio, is_real in zip(comparable, shifts, significant, strict=True)
    }
    rows = [judged.get(row.case, row) for row in paired]
    remarks = dict.fromkeys(text for texts in changed.values() for text in texts)
    return Comparison(rows, factor, len(equal), list(remarks))


def _judge(row: ComparedCase, ratio: Shift, is_real: bool, margin: float) -> ComparedCase:
    """Return a case with its verdict.

    Args:
        is_real: the difference is significant and exceeds the margin.
        margin: the largest difference of a tie.
    """
    if is_real:
        return replace(row, shift=ratio, verdict="faster" if ratio.ratio > 1 else "slower")
    if is_tie(ratio.low, ratio.high, margin):
        return replace(row, shift=ratio, verdict="tie")
    return replace(row, shift=ratio, reason="undecided")


def _shift(row: ComparedCase, margin: float, confidence: float) -> Shift:
    assert row.first and row.second
    return shift(row.first.samples_us, row.second.samples_us, margin, confidence)


def _contradicted(name: str, records: Mapping[Key, CaseRecord]) -> dict[Key, str]:
    """Return the native calls of a run whose plan and method exclude each other, with the reason.

    Args:
        name: the name of the run.
    """
    return {
        key(side): f"in {name}, {contradiction}"
        for _, group in grouped(records.values(), place)
        for contradiction in contradictions(group) for side in contradiction
    }  # fmt: skip


def _pair(
    case: Key, first: CaseRecord | None, second: CaseRecord | None, confidence: float,
    wrong: Sequence[Mapping[Key, str]],
) -> ComparedCase:  # fmt: skip
    row = ComparedCase(case, first, second)
    if first is None or second is None:
        return replace(row, reason=f"only in {'B' if first is None else 'A'}")
    reason = _unusable("A", first) or _unusable("B", second)
    reason = reason or next((reasons[case] for reasons in wrong if case in reasons), "")
    if not reason and first.timing != second.timing:
        reason = f"timed {first.timing} in A, {second.timing} in B"
    first_count, second_count = len(first.samples_us), len(second.samples_us)
    has_enough = is_enough(first_count) and is_enough(second_count)
    if not reason and not (has_enough and can_differ(first_count, second_count, confidence)):
        reason = f"too few samples: {first_count} and {second_count}"
    return replace(row, reason=reason)


def _unusable(name: str, record: CaseRecord) -> str:
    """Return the reason why a record allows no verdict, "" if it allows one."""
    if record.correct is False:
        return f"wrong in {name}"
    if record.time_us is None:
        return f"refused in {name}: {record.message}"
    if is_disturbed(record):
        return f"too few undisturbed samples in {name}"
    return ""


def _changes(rows: Iterable[ComparedCase]) -> dict[tuple[str, str], list[str]]:
    """Return the differences between the conditions of each pair of runs, in words, by run ids."""
    runs = {
        (row.first.run.id, row.second.run.id): (row.first.run, row.second.run)
        for row in rows if row.first and row.second
    }  # fmt: skip
    return {names: differences(*map(reading.full, pair)) for names, pair in runs.items()}


def _is_control(row: ComparedCase, changed: Mapping[tuple[str, str], list[str]]) -> bool:
    """Whether a case is a native call under unchanged conditions."""
    assert row.first and row.second
    texts = changed[row.first.run.id, row.second.run.id]
    return row.either.algorithm.startswith("native") and all(
        t.startswith(_LOCAL_CONDITIONS) for t in texts
    )
