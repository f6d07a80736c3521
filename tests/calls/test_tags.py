"""Tags of plans: alike on all ranks, and of one live plan only, however ranks drop theirs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mpicoll.calls.tags import Tags
from mpicoll.errors import Unsupported

RANKS, MOST = 2, 3


class Owner:
    """A plan, as far as tags go."""


class Group:
    """Ranks in one process; all take a tag before any holds it."""

    def __init__(self) -> None:
        self.ranks = [Tags(self.exchange, MOST) for _ in range(RANKS)]
        self.owners: list[dict[int, Owner]] = [{} for _ in self.ranks]

    def exchange(self, _own: set[int], _kind: object) -> list[set[int]]:
        return [set(each.held) for each in self.ranks]

    def make(self) -> list[int]:
        """Make a plan on every rank, and return its tags."""
        found = [each.take() for each in self.ranks]
        for tags, tag, owners in zip(self.ranks, found, self.owners, strict=True):
            owners[tag] = Owner()
            tags.hold(tag, owners[tag])
        return found

    def live(self) -> set[int]:
        return set().union(*self.owners)


@given(some.lists(some.integers(0, RANKS), min_size=30, max_size=60), some.randoms())
def test_no_two_live_plans_share_a_tag(moves: list[int], choose: random.Random) -> None:
    """Each move makes a plan, or drops one on one rank alone."""
    group = Group()
    for move in moves:
        before = group.live()
        if move == RANKS and len(before) < MOST:
            first, *others = group.make()
            assert first not in before and others == [first] * (RANKS - 1)
        elif owners := group.owners[move % RANKS]:
            del owners[choose.choice(list(owners))]


def test_a_plan_too_many_is_refused() -> None:
    group = Group()
    assert [group.make()[0] for _ in range(MOST)] == [*range(1, MOST + 1)]
    with pytest.raises(Unsupported, match=f"{MOST} plans of this group are in use"):
        group.make()
    del group.owners[0][2]
    with pytest.raises(Unsupported):
        group.make()
    del group.owners[1][2]
    assert group.make() == [2] * RANKS
