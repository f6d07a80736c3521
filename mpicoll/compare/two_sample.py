"""Compare the times of two runs: samples that were not taken side by side.

The ratio is that of Hodges and Lehmann on a logarithmic scale: the median of all ratios of a sample
of one run to a sample of the other. The interval and the test are those of Mann and Whitney. They
assume only that the distributions differ by a factor. Successive samples are correlated, since one
disturbance affects several of them. The variance of U therefore grows by (1 + r) / (1 - r), where r
is the correlation of the ranks of neighbours.

Among many cases some differ by chance. `holm` bounds the probability of any false significant
difference by 1 - confidence, for any number of cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil, comb, floor, sqrt
from statistics import NormalDist, fmean
from typing import Literal, NamedTuple

import numpy as np
import scipy  # scipy loads scipy.stats at its first use, so that --help stays fast

Method = Literal["exact", "asymptotic"]

_EXACT = 50
"""Largest number of samples for which the distribution of U is computed exactly."""
_MOST_CORRELATED = 0.8
_MAX_SAMPLES = 2000
"""Largest number of samples of a run for which all pairwise ratios are computed."""


class Shift(NamedTuple):
    """How many times as fast the second sample is as the first.

    Attributes:
        low, high: bounds of `ratio`; the extremes if there are too few samples for an interval.
        p: upper bound of the probability of such samples if neither run were faster by the margin.
    """

    ratio: float
    low: float
    high: float
    p: float


def shift(
    first: Sequence[float], second: Sequence[float], margin: float = 0.0, confidence: float = 0.95
) -> Shift:
    """Return first / second as a factor, and test whether it is beyond `margin`.

    >>> ratio = shift([4.2, 4.0, 4.4, 4.1, 4.5, 4.3], [2.05, 2.25, 2.0, 2.2, 2.1, 2.15])
    >>> round(ratio.ratio, 2), ratio.p < 0.01
    (2.0, True)
    """
    spread = sqrt(_inflation(first, second))
    first, second = _thin(first), _thin(second)
    pairs = len(first) * len(second)
    ratios = np.sort(np.divide.outer(first, second), axis=None)
    # U: the pairs of samples that contradict a difference in the likelier direction.
    u = min(_count_below(ratios, 1 + margin), pairs - _count_below(ratios, 1 / (1 + margin)))
    p = 2 * _tail(len(first), len(second), floor(pairs / 2 - (pairs / 2 - u) / spread))
    order = _order_of_bound(len(first), len(second), spread, confidence)
    low, high = ratios[order], ratios[-1 - order]
    return Shift(float(np.median(ratios)), float(low), float(high), min(1.0, p))


def _thin(samples: Sequence[float]) -> Sequence[float]:
    """Return evenly spaced quantiles of many samples, to limit the number of their ratios."""
    if len(samples) <= _MAX_SAMPLES:
        return samples
    return [float(quantile) for quantile in np.quantile(samples, np.linspace(0, 1, _MAX_SAMPLES))]


def _count_below(ordered: np.ndarray, value: float) -> float:
    """Return how many numbers are below a value; equal numbers count half."""
    below, not_above = (ordered.searchsorted(value, side) for side in ("left", "right"))
    return float(below + not_above) / 2


@lru_cache(maxsize=4096)
def _tail(first: int, second: int, u: int) -> float:
    """Return the probability that U is at most `u` if neither run is faster.

    It is SciPy's p-value of samples that are constructed to have U = `u`.
    """
    above, remainder = divmod(u, second)
    places = [*range(second, second + above), remainder - 0.5, *range(-first, -1)][:first]
    method: Method = "exact" if max(first, second) <= _EXACT else "asymptotic"
    test = scipy.stats.mannwhitneyu(
        np.array(places), np.arange(second), alternative="less", method=method
    )
    return float(test.pvalue)


def _order_of_bound(first: int, second: int, spread: float, confidence: float) -> int:
    """Return the index of the sorted ratio that bounds the interval from below."""
    pairs = first * second
    deviation = spread * sqrt(pairs * (first + second + 1) / 12)
    return max(0, floor(pairs / 2 - 0.5 - NormalDist().inv_cdf((1 + confidence) / 2) * deviation))


def scatter(equals: Sequence[Shift], confidence: float = 0.95) -> float:
    """Return the factor by which known equals differ beyond their intervals, at least 1.

    Widened by it, intervals contain 1 in as many of these cases as the confidence promises. Such
    negative controls show the size of differences by chance (Schuemie et al. 2014).

    >>> scatter([Shift(1.0, 0.9, 1.1, 1.0), Shift(0.7, 0.5, 0.8, 0.0)]), scatter([])
    (1.25, 1.0)
    """
    beyond = sorted(max(1.0, equal.low, 1 / equal.high) for equal in equals)
    return beyond[ceil(confidence * len(beyond)) - 1] if beyond else 1.0


def can_differ(first: int, second: int, confidence: float = 0.95) -> bool:
    """Whether the most extreme order of so many samples would be significant.

    A single sample has no spread, so it never shows a difference.

    >>> can_differ(3, 3), can_differ(4, 4), can_differ(1, 200)
    (False, True, False)
    """
    return min(first, second) > 1 and 2 / comb(first + second, first) <= 1 - confidence


def holm(chances: Sequence[float], confidence: float = 0.95) -> list[bool]:
    """Return which of these p-values are significant among all of them (Holm 1979).

    >>> holm([0.04, 0.001, 0.03]), holm([0.04])
    ([False, True, False], [True])
    """
    order = sorted(range(len(chances)), key=chances.__getitem__)
    significant = [False] * len(chances)
    for position, index in enumerate(order):
        if chances[index] > (1 - confidence) / (len(chances) - position):
            break
        significant[index] = True
    return significant


def _inflation(*samples: Sequence[float]) -> float:
    """Return the variance of U over that of independent samples."""
    correlations = [value for value in map(correlation, samples) if value is not None]
    mean = min(max(fmean(correlations) if correlations else 0.0, 0.0), _MOST_CORRELATED)
    return (1 + mean) / (1 - mean)


def correlation(samples: Sequence[float]) -> float | None:
    """Return the correlation of the ranks of neighbouring samples, None for too few samples.

    The bias of short series is removed: the mean over independent samples is 0.
    """
    count = len(samples)
    ranks = scipy.stats.rankdata(samples) - (count + 1) / 2
    total = float(ranks @ ranks)
    if count < 3 or not total:
        return None
    return float(ranks[:-1] @ ranks[1:]) / total + 1 / count
