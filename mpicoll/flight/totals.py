"""All calls of a rank, by group, kind and line: of the totals and the rows of its file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from mpicoll.flight import layout
from mpicoll.flight.counters import Clock, length_of
from mpicoll.flight.entries import Row, TotalRow, mark_of
from mpicoll.flight.layout import Outcome

_MOST = 1 << 62
Key = tuple[int, int, int]
"""The places of a group, a call and a line in the table."""


class Total(NamedTuple):
    """Calls that are counted together.

    Attributes:
        timed: of the calls; the ends of the others are not recorded.
        ns: nanoseconds of the timed calls.
        shortest: nanoseconds of the shortest one.
        histogram: the nanoseconds from which on a bucket counts, and its calls.
    """

    calls: int
    timed: int = 0
    ns: int = 0
    shortest: int = 0
    histogram: tuple[tuple[int, int], ...] = ()


def totals(data: bytes, rows: Iterable[Row], time: Clock, faults: list[str]) -> dict[Key, Total]:
    """Return all calls that a file tells, with those of its rows."""
    (folded,) = layout.FOLDED.unpack_from(data, layout.FOLDED_AT)
    parts: dict[Key, list[Total]] = {}
    for key, total in _written(data, time, faults):
        parts.setdefault(key, []).append(total)
    for row in rows:
        if row.number > folded:
            parts.setdefault((row.group, row.call, row.location), []).append(_of_row(row, time))
    return {key: combined(totals) for key, totals in parts.items()}


def combined(totals: Sequence[Total]) -> Total:
    """Return the sum of some totals."""
    return Total(
        sum(total.calls for total in totals), sum(total.timed for total in totals),
        sum(total.ns for total in totals),
        min((total.shortest for total in totals if total.timed), default=0),
        tuple(sorted(chain.from_iterable(total.histogram for total in totals))),
    )  # fmt: skip


def _written(data: bytes, time: Clock, faults: list[str]) -> Iterator[tuple[Key, Total]]:
    """Yield the totals of a file."""
    damaged = 0
    for at in range(layout.TOTALS_AT, layout.TABLE_AT, layout.TOTAL.size):
        numbers = layout.TOTAL.unpack_from(data, at)
        if not any(numbers):
            continue
        row, buckets = TotalRow(*numbers[: -layout.BUCKETS]), numbers[-layout.BUCKETS :]
        if (
            row.mark != (0 if at == layout.TOTALS_AT else mark_of(row))
            or not row.timed <= row.calls < _MOST
            or not row.shortest * row.timed <= row.ticks < _MOST
        ):
            damaged += 1
            continue
        if not row.calls:  # such as the first one, which has another number
            continue
        begins = (length_of((4 + place % 4) << (place // 4 + layout.FIRST_EXPONENT - 2), time)
                  for place in range(layout.BUCKETS))  # fmt: skip
        histogram = tuple((ns, calls) for ns, calls in zip(begins, buckets, strict=True) if calls)
        ns, shortest = length_of(row.ticks, time), length_of(row.shortest, time)
        yield row[:3], Total(row.calls, row.timed, ns, shortest, histogram)
    if damaged:
        faults.append(f"{damaged} totals are damaged, and left out")


def _of_row(row: Row, time: Clock) -> Total:
    if row.outcome not in (Outcome.COMPLETED, Outcome.RAISED):
        return Total(1)
    ns = time(row.end) - time(row.start)
    return Total(1, 1, ns, ns, ((ns, 1),))
