"""Tell whether one of several equal members differs from its peers: ranks, hosts, or links.

Equal members differ by chance. If all are equal, chance decides which of them has which value in
a block of observations. So the members are exchanged at random within each block, many times. A
member differs if its excess is larger than the largest one of almost all exchanges. That holds for
any distribution of the noise, for few observations, and for any number of members.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CHANCE = 0.004
"""The probability that equal members are told to differ."""
_EXCHANGES, _FEWER = 1999, 499
_MANY, _MOST_BLOCKS, _BATCHES = 64, 64, 10
Numbers = NDArray[np.float64]


class Excess(NamedTuple):
    """The excess of one member over the median of its peers, per observation.

    Attributes:
        mean: without what one or two blocks have more than the third largest.
        chance: the probability that equal members have an excess as large.
        least: the mean of the batch with the smallest one.
    """

    mean: float
    chance: float
    least: float

    @property
    def is_real(self) -> bool:
        """Whether equal members hardly ever have such an excess."""
        return self.mean > 0 and self.chance <= CHANCE


def compare(
    values: Numbers, blocks: int = _MOST_BLOCKS, least: float = -np.inf,
    typical: Numbers | None = None,
) -> list[Excess]:  # fmt: skip
    """Return the excess of each member.

    Args:
        values: by observation, in the order of time, and by member.
        blocks: the number of independent observations at most; those between depend on each other.
        least: smaller excesses are of no interest, and count as chance.
        typical: the value of a healthy member by observation, in place of the median of its peers.
    """
    differences = values - (medians_of_peers(values) if typical is None else typical[:, None])
    count, members = differences.shape
    sums = _sums(differences, max(1, min(blocks, count, _MOST_BLOCKS)))
    if len(sums) > 4:
        largest: list[float] = np.abs(sums).max(axis=1).tolist()
        limit = sorted(largest)[-3]
        sums = np.clip(sums, -limit, limit)
    totals, chances = sums.sum(axis=0), np.ones(members)
    if totals.max() >= least * count:
        maxima = _maxima(sums)
        chances = (1 + (maxima[:, None] >= totals * (1 - 1e-9)).sum(axis=0)) / (1 + len(maxima))
    batches = _sums(differences, min(_BATCHES, count))
    smallest = batches.min(axis=0) * len(batches) / count
    return [
        Excess(float(totals[member] / count), float(chances[member]), float(smallest[member]))
        for member in range(members)
    ]


def _sums(differences: Numbers, blocks: int) -> Numbers:
    starts = np.arange(blocks) * len(differences) // blocks
    return np.add.reduceat(differences, starts, axis=0)


def _maxima(sums: Numbers) -> Numbers:
    """Return the largest total of any member, after each of many exchanges."""
    blocks, members = sums.shape
    source = np.random.default_rng(0)
    count = _EXCHANGES if members <= _MANY else _FEWER
    totals = np.zeros((count, members))
    places = np.arange(members)
    for block in range(blocks):
        shifts = source.integers(members, size=(count, 1))
        totals += sums[block][(places + shifts) % members]
    largest: Numbers = totals.max(axis=1)
    return largest


def medians_of_peers(values: Numbers) -> Numbers:
    """Return for each element of a row the median of the other elements of its row.

    >>> medians_of_peers(np.array([[1.0, 2.0, 9.0]])).tolist()
    [[5.5, 5.0, 1.5]]
    """
    order = np.sort(values, axis=1)
    place = values.argsort(axis=1).argsort(axis=1)
    low, high = (values.shape[1] - 2) // 2, (values.shape[1] - 1) // 2
    picked = [
        np.take_along_axis(order, middle + (place <= middle), axis=1) for middle in (low, high)
    ]
    return (picked[0] + picked[1]) / 2
