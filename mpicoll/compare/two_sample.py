"""Times of two runs compared: samples that were not taken side by side.

The ratio is Hodges and Lehmann's on a logarithmic scale, the median of all ratios of a sample
of one run to one of the other, and its interval is that of the Mann-Whitney test: nothing is
assumed of the distributions but that they differ by a factor. Samples that follow each other
are alike, as the same disturbance hits both: as much as their ranks are correlated, they
count for less (the variance of U grows by (1 + r) / (1 - r)).

Where many cases are compared, some differ by chance: `holm` keeps the probability that
any difference is called significant where none is at 1 - confidence, whatever their number.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import ceil, exp, floor, log, sqrt
from statistics import NormalDist, fmean, median
from typing import NamedTuple

_EXACT = 50
_MOST_ALIKE = 0.8


class Shift(NamedTuple):
    """How many times as fast the second sample is as the first.

    Attributes:
        low, high: bounds of `ratio`; the extremes where the samples are too few for one.
        p: how probable such samples were, at most, if neither were faster by the margin.
    """

    ratio: float
    low: float
    high: float
    p: float


def shift(
    first: Sequence[float], second: Sequence[float], margin: float = 0.0, confidence: float = 0.95
) -> Shift:
    """Return first / second as a factor, and whether it goes beyond `margin` by chance.

    >>> found = shift([4.2, 4.0, 4.4, 4.1, 4.5, 4.3], [2.05, 2.25, 2.0, 2.2, 2.1, 2.15])
    >>> round(found.ratio, 2), found.p < 0.01
    (2.0, True)
    """
    count = len(first) * len(second)
    spread = sqrt(_inflation(first, second))
    ratios = sorted(a / b for a in first for b in second)
    bound = _bound(len(first), len(second), (1 - confidence) / 2, spread)
    edge = log(1 + margin)
    # Under a shift by the edge, U is the number of pairs beyond it.
    faster = count - _rank(ratios, exp(edge))
    slower = _rank(ratios, exp(-edge))
    tails = [
        _tail(len(first), len(second), count / 2 - (beyond - count / 2) / spread)
        for beyond in (faster, slower)
    ]
    return Shift(
        median(ratios), ratios[max(0, bound)], ratios[-1 - max(0, bound)], min(1.0, 2 * min(tails))
    )


def scatter(equals: Sequence[Shift], confidence: float = 0.95) -> float:
    """Return the factor by which known equals seem to differ beyond their intervals, at least 1.

    Intervals that are wider by it hold 1 in so many cases as the confidence promises: what is
    known to be nothing says how much nothing may look like (Schuemie et al. 2014).

    >>> scatter([Shift(1.0, 0.9, 1.1, 1.0), Shift(0.7, 0.5, 0.8, 0.0)]), scatter([])
    (1.25, 1.0)
    """
    beyond = sorted(max(1.0, each.low, 1 / each.high) for each in equals)
    return beyond[ceil(confidence * len(beyond)) - 1] if beyond else 1.0


def can_differ(first: int, second: int, confidence: float = 0.95) -> bool:
    """Whether so many samples can carry an interval of this confidence.

    >>> can_differ(3, 3), can_differ(4, 4)
    (False, True)
    """
    return bool(first and second) and _bound(first, second, (1 - confidence) / 2, 1.0) >= 0


def holm(chances: Sequence[float], confidence: float = 0.95) -> list[bool]:
    """Return which are significant among all of them (Holm 1979).

    >>> holm([0.04, 0.001, 0.03]), holm([0.04])
    ([False, True, False], [True])
    """
    order = sorted(range(len(chances)), key=chances.__getitem__)
    found = [False] * len(chances)
    for position, index in enumerate(order):
        if chances[index] > (1 - confidence) / (len(chances) - position):
            break
        found[index] = True
    return found


def _rank(ordered: Sequence[float], value: float) -> float:
    """Return how many lie below a value; those that equal it count half."""
    return (bisect_left(ordered, value) + bisect_right(ordered, value)) / 2


def _inflation(*samples: Sequence[float]) -> float:
    """Return by what the variance of U grows, as neighbours among the samples are alike."""
    found = [each for each in map(likeness, samples) if each is not None]
    alike = min(max(fmean(found) if found else 0.0, 0.0), _MOST_ALIKE)
    return (1 + alike) / (1 - alike)


def likeness(samples: Sequence[float]) -> float | None:
    """Return the correlation of each sample's rank with the next one's, None of too few.

    Of independent samples it is 0 in the mean: the bias of short series is taken out.
    """
    count = len(samples)
    middle = (count - 1) / 2
    ordered = sorted(samples)
    ranks = [_rank(ordered, each) - 0.5 - middle for each in samples]
    total = sum(each * each for each in ranks)
    if count < 3 or not total:
        return None
    return sum(a * b for a, b in pairwise(ranks)) / total + 1 / count


def _bound(first: int, second: int, outside: float, spread: float) -> int:
    """Return which of the ordered ratios bounds the interval from below, -1 without one."""
    middle = first * second / 2
    low, high = -1, floor(middle)
    while low < high:
        step = (low + high + 1) // 2
        if _tail(first, second, middle - (middle - step) / spread) <= outside:
            low = step
        else:
            high = step - 1
    return low


def _tail(first: int, second: int, u: float) -> float:
    """Return the probability that U is at most `u` where the samples are alike."""
    if u < 0:
        return 0.0
    if max(first, second) <= _EXACT:
        below = _cumulated(first, second)
        return below[min(floor(u), len(below) - 1)]
    deviation = sqrt(first * second * (first + second + 1) / 12)
    return NormalDist(first * second / 2, deviation).cdf(u + 0.5)


@lru_cache(maxsize=512)
def _cumulated(first: int, second: int) -> tuple[float, ...]:
    """Return the distribution of U: sums of the Gaussian binomial coefficients."""
    ways = [1] + [0] * (first * second)
    for each in range(1, first + 1):
        for power in range(len(ways) - 1, second + each - 1, -1):
            ways[power] -= ways[power - second - each]
        for power in range(each, len(ways)):
            ways[power] += ways[power - each]
    total, sums = 0, []
    for count in ways:
        total += count
        sums.append(total)
    return tuple(each / total for each in sums)
