"""Rounds of disjoint pairs, so that many links are tried at once.

The circle method schedules a tournament: p - 1 rounds for an even number of hosts, p for an odd
one, in which every host meets every other host once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

Pair = tuple[int, int]


def tournament(count: int) -> list[list[Pair]]:
    """Return rounds of disjoint pairs of 0, ..., count - 1; each pair is in one round.

    With an odd count, one number has no partner in each round.

    >>> tournament(4)
    [[(0, 3), (1, 2)], [(1, 3), (0, 2)], [(2, 3), (0, 1)]]
    """
    last = count - 1 + count % 2
    rounds = []
    for turn in range(last):
        pairs = [(turn, last)]
        pairs += [((turn + step) % last, (turn - step) % last) for step in range(1, last // 2 + 1)]
        ordered = ((min(pair), max(pair)) for pair in pairs)
        rounds.append([(low, high) for low, high in ordered if high < count])
    return rounds


def matchings(count: int, limit: int) -> Sequence[Sequence[Pair]]:
    """Return at most `limit` rounds of a tournament, but at least log2(count) of them.

    Rounds that are left out are spread evenly. In r rounds every host has r partners, or r - 1.

    >>> len(matchings(64, 100)), len(matchings(64, 10)), len(matchings(64, 1))
    (63, 10, 6)
    """
    rounds = tournament(count)
    number = min(len(rounds), max(1, limit, ceil(log2(count))))
    return [rounds[index * len(rounds) // number] for index in range(number)]
