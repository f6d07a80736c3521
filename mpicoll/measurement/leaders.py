"""Decide which cases of a group may be the fastest: the one rule behind stars, maps and verdicts.

A ratio of two cases that were sampled in the same blocks is the median of their ratios within each
block, with its interval (`speedup`). A ratio of other cases is that of their medians, bounded by
the ends of both intervals. A case is *beaten* where another correct case is surely faster. The
leaders are the cases that nobody beats. The fastest case is known only where all leaders ran the
same way.

A case with fewer samples than an interval needs neither leads nor beats: one sample is no
distribution.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpicoll.measurement.statistics import Ratio, is_enough, speedup, verdict
from mpicoll.records.lines import CaseRecord, Times


def has_enough(record: CaseRecord) -> bool:
    """Whether a record has samples enough for an interval of its median."""
    return record.time_us is not None and is_enough(record.samples)


def can_lead(record: CaseRecord) -> bool:
    """Whether a record may lead: it has samples enough, and no wrong result."""
    return has_enough(record) and record.correct is not False


def compared(reference: CaseRecord, record: CaseRecord) -> Ratio | None:
    """Return how many times as fast a record is as a reference, None where one has no time."""
    if reference.time_us is None or record.time_us is None:
        return None
    paired = None
    if reference.run.id == record.run.id:
        paired = speedup(_by_block(reference), _by_block(record))
    return paired or _of_medians(reference, record, reference.time_us, record.time_us)


def leaders(group: Sequence[CaseRecord]) -> list[CaseRecord]:
    """Return the cases of a group that nobody beats, the shortest median first.

    Args:
        group: the cases of one collective, variant and size, called alike.
    """
    able = sorted(filter(can_lead, group), key=_median)
    return [record for record in able if not any(_beats(rival, record) for rival in able)]


def fastest(group: Sequence[CaseRecord]) -> list[CaseRecord]:
    """Return the records of the way that is surely the fastest; none where several ways lead."""
    leading = leaders(group)
    return leading if len({*map(way, leading)}) == 1 else []


def way(record: CaseRecord) -> tuple[str, str, str]:
    """Return what ran: `auto` is no rival of the algorithm that it chose."""
    return record.backend, record.executed or record.algorithm, str(record.transport)


def _beats(rival: CaseRecord, record: CaseRecord) -> bool:
    if way(rival) == way(record):
        return False
    ratio = compared(record, rival)
    return ratio is not None and ratio.verdict == "faster"


def _median(record: CaseRecord) -> float:
    assert record.time_us is not None
    return record.time_us.median


def _by_block(record: CaseRecord) -> dict[int, float]:
    """Return the samples by block; none where the record does not have the blocks."""
    return dict(zip(record.blocks or (), record.samples_us, strict=False))


def _of_medians(
    reference: CaseRecord, record: CaseRecord, first: Times, second: Times
) -> Ratio:  # fmt: skip
    low, high = first.low / second.high, first.high / second.low
    is_sure = has_enough(reference) and has_enough(record)
    return Ratio(first.median / second.median, low, high, verdict(low, high) if is_sure else "tie")
