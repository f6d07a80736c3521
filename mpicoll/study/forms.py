"""The three forms of allreduce, and their times in records of the benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mpicoll.errors import ArgumentError
from mpicoll.records import reading
from mpicoll.records.lines import CaseRecord

FORMS = {
    "native": "one call",
    "native:reduce+broadcast": "reduce + broadcast",
    "native:reduce_scatter+allgather": "reduce_scatter + allgather",
}
"""The name of each form, by its algorithm."""
ONE_CALL = "native"


class Time(NamedTuple):
    """The microseconds of one form at one size, and the interval of the median."""

    median: float
    low: float
    high: float

    def ties(self, other: Time) -> bool:
        """Whether either may be the faster one."""
        return self.low <= other.high and other.low <= self.high


@dataclass
class FormTimes:
    """The times of all forms on one backend and device with one number of ranks.

    Attributes:
        times: by size in bytes, then by form.
    """

    backend: str
    library: str
    device: str
    ranks: int
    times: dict[int, dict[str, Time]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.backend}, {self.library}, {self.device}, {self.ranks} ranks"


def form_times(records: Iterable[CaseRecord]) -> list[FormTimes]:
    """Return the times of the three forms, sorted by backend, library, device and ranks.

    Wrong results and refused cases are left out; of a case measured twice the later record counts.
    """
    found: dict[tuple[str, str, str, int], FormTimes] = {}
    for each in records:
        if each.collective != "allreduce" or each.algorithm not in FORMS:
            continue
        if each.time_us is None or each.correct is False or each.call != "plan":
            continue
        key = each.backend, each.library, each.device, each.ranks
        by_size = found.setdefault(key, FormTimes(*key)).times
        time = Time(each.time_us.median, each.time_us.low, each.time_us.high)
        by_size.setdefault(each.bytes_total, {})[each.algorithm] = time
    for one in found.values():
        one.times = dict(sorted(one.times.items()))
    return [found[key] for key in sorted(found)]


def load(paths: Sequence[Path]) -> list[FormTimes]:
    """Return the times of the three forms in files of records.

    Raises:
        ArgumentError: a file cannot be read, or none has such records.
    """
    records = [each for path in paths for each in reading.load(path)]
    found = form_times(reading.only(CaseRecord, records))
    if not found:
        raise ArgumentError(
            f"no allreduce in these files: run the benchmark with --algorithms '{','.join(FORMS)}'"
        )
    return found
