"""Medians, their intervals, and ratios of samples that were taken side by side.

Nothing here assumes a distribution: timings are skewed, and their tails are real.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil, comb, floor, inf, sqrt
from statistics import NormalDist, fmean, median, quantiles
from typing import NamedTuple

from mpicoll.records.fields import Verdict
from mpicoll.records.lines import Times

_EXACT = 500
FLOOR = 0.01
"""A smaller difference is a tie: where the arrays of two equal plans lie makes as much."""


class Interval(NamedTuple):
    """An estimate, and the bounds between which the truth lies with the confidence asked for."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval's width, as a share of the estimate."""
        return (self.high - self.low) / 2 / self.value if self.value else inf


class Ratio(NamedTuple):
    """How many times as fast a candidate is as its reference."""

    ratio: float
    low: float
    high: float
    verdict: Verdict


@lru_cache(maxsize=1024)
def order_of_bound(count: int, confidence: float = 0.95) -> int:
    """Return k so that the k-th smallest and k-th largest of `count` enclose the median.

    The number of samples below the median is binomial(count, 1/2), whatever the
    distribution. 0 means that `count` samples are too few for this confidence.

    >>> order_of_bound(5), order_of_bound(6), order_of_bound(20)
    (0, 1, 6)
    """
    outside = (1 - confidence) / 2
    if count > _EXACT:
        spread = NormalDist().inv_cdf(1 - outside) * sqrt(count) / 2
        return max(0, floor(count / 2 - spread))
    below, order = 0.0, 0
    while order < count / 2:
        below += comb(count, order) / 2**count
        if below > outside:
            break
        order += 1
    return order


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the median and its confidence interval by order statistics.

    With too few samples for the confidence the bounds are the extremes (see `is_enough`).
    """
    ordered = sorted(samples)
    bound = max(1, order_of_bound(len(ordered), confidence))
    return Interval(median(ordered), ordered[bound - 1], ordered[-bound])


def is_enough(count: int, confidence: float = 0.95) -> bool:
    """Whether `count` samples can carry an interval of this confidence."""
    return order_of_bound(count, confidence) > 0


def speedup(
    reference: Mapping[int, float], candidate: Mapping[int, float], confidence: float = 0.95
) -> Ratio | None:
    """Return reference / candidate over the blocks that have both, None without any.

    Both samples of a block were taken within moments of each other, so drift between
    blocks cancels in each ratio. A ratio that may be 1, or less than `FLOOR` away from
    it, is a tie.
    """
    return ratio_of(
        [reference[block] / candidate[block] for block in reference.keys() & candidate.keys()],
        confidence,
    )


def ratio_of(ratios: Sequence[float], confidence: float = 0.95) -> Ratio | None:
    """Return the median of ratios of blocks, or of launches, with its verdict; None without any.

    From nine launches on a single one that lies cannot move a bound beyond the others.

    >>> ratio_of([1.1] * 9 + [0.2]).verdict, ratio_of([1.1] * 5).verdict
    ('faster', 'tie')
    """
    if not ratios:
        return None
    value, low, high = median_interval(ratios, confidence)
    sure = is_enough(len(ratios), confidence)
    return Ratio(value, low, high, verdict(low, high) if sure else "tie")


def verdict(low: float, high: float) -> Verdict:
    """Return the verdict of a ratio's interval; one that may be `FLOOR` or less from 1 is a tie."""
    if low > 1 + FLOOR:
        return "faster"
    if high < 1 / (1 + FLOOR):
        return "slower"
    return "tie"


def spread(values: Sequence[float]) -> float:
    """Return half the distance of the quartiles over the median, 0 of a single value.

    >>> spread([9.0, 10.0, 11.0]), spread([5.0])
    (0.05, 0.0)
    """
    if len(values) < 2:
        return 0.0
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return (high - low) / 2 / middle


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the smallest sample that at least `percent` of them do not exceed.

    >>> percentile(range(1, 101), 95), percentile([7.0], 99)
    (95, 7.0)
    """
    ordered = sorted(samples)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def summary(samples: Sequence[float], confidence: float = 0.95) -> dict[str, float]:
    """Return the distribution of samples, as records have it."""
    middle = median_interval(samples, confidence)
    return {
        "median": middle.value,
        "low": middle.low,
        "high": middle.high,
        "mean": fmean(samples),
        "min": min(samples),
        "max": max(samples),
        "p95": percentile(samples, 95),
        "p99": percentile(samples, 99),
    }


def distribution(samples: Sequence[float]) -> Times | None:
    """Return the same to a tenth of a nanosecond, None without samples."""
    if not samples:
        return None
    return Times(**{name: round(us, 4) for name, us in summary(samples).items()})
