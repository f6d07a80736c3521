"""Tallies: how many calls of one kind there were, and a histogram of how long they took.

A tally is an array of 64-bit integers, which the compiled executor fills in for the calls that it
runs (``tally.h``): the calls; how many of them were timed, their ticks, the fewest and the most of
one; when the last timed call ended; and the timed calls of each bucket, of which there are four for
each power of two. Of calls shorter than a microsecond or two about one in eight is timed, by
chance.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from mpicoll.c_extension import _compiled

LENGTH = _compiled.TALLY_LENGTH


class Times(NamedTuple):
    """The times of a tally, in the unit of a tick that `read` was given.

    Attributes:
        mean: of the timed calls.
        ended: ticks at the end of the last timed call.
        histogram: for each bucket with calls where it begins, and the calls.
    """

    calls: int
    timed: int
    mean: float
    least: float
    most: float
    ended: int
    histogram: list[tuple[float, int]]


def new() -> array[int]:
    """Return a tally without a call."""
    return array("q", bytes(8 * LENGTH))


def read(tally: Sequence[int] | memoryview, tick: float) -> Times:
    """Return the times of a tally; `tick` is how long one takes."""
    timed = tally[_compiled.TALLY_TIMED]
    return Times(
        tally[_compiled.TALLY_CALLS], timed,
        tally[_compiled.TALLY_TICKS] * tick / max(timed, 1),
        tally[_compiled.TALLY_LEAST] * tick, tally[_compiled.TALLY_MOST] * tick,
        tally[_compiled.TALLY_ENDED],
        [
            (_begin(bucket) * tick, calls)
            for bucket, calls in enumerate(tally[_compiled.TALLY_BUCKETS :]) if calls
        ],
    )  # fmt: skip


def _begin(bucket: int) -> int:
    """Return the ticks from which on a bucket counts.

    >>> [_begin(bucket) for bucket in range(11)]
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12]
    """
    return bucket if bucket < 4 else (4 + bucket % 4) << (bucket // 4 - 1)


ticks, count = _compiled.ticks, _compiled.count
