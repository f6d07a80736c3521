"""Rounds of disjoint pairs."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from mpicoll.p2p.matchings import matchings, tournament


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9, 64, 65])
def test_a_tournament_has_every_pair_once_in_disjoint_rounds(count: int) -> None:
    rounds = tournament(count)
    assert sorted(chain(*rounds)) == list(combinations(range(count), 2))
    assert all(len(set(chain(*pairs))) == 2 * len(pairs) == count - count % 2 for pairs in rounds)


@pytest.mark.parametrize(
    ("count", "limit", "rounds"),
    [(8, 100, 7), (9, 100, 9), (64, 10, 10), (1000, 3, 10), (1, 5, 1), (2, 0, 1)],
)
def test_fewer_rounds_give_every_host_as_many_partners(count: int, limit: int, rounds: int) -> None:
    chosen = matchings(count, limit)
    assert len(chosen) == rounds
    pairs = list(chain(*chosen))
    assert len(set(pairs)) == len(pairs)
    partners = [sum(host in pair for pair in pairs) for host in range(count)]
    assert min(partners) >= rounds - count % 2
