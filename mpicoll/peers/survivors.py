"""Agree on the ranks that are left of a group, though more of them may end meanwhile.

The first rank that still lives decides: it waits for those that live to come, and states who goes
on, and where they meet. Whoever has read that states it, too, so that it stays known where the
first one ends. Those that go on then meet, and tell each other that they have: where one has not,
all begin anew without it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import sleep
from typing import NamedTuple, TypeVar

from mpicoll.errors import CollectiveError, RankLost
from mpicoll.interfaces import Stage
from mpicoll.machine.waited import Waited
from mpicoll.peers.known import Peers

T = TypeVar("T")
_FIRST = -(1 << 40)
"""The number of the first attempt, as of an operation; that of the next is 2 less."""
_PAUSE = 0.02
_GRACE = 10.0
"""Seconds, or as much as the deadline: who came first waits for those that notice at theirs."""
_CAME, _MET = "came", "met"
_STAGE = "agreeing on the survivors"


class Decision(NamedTuple):
    """The ranks that go on, in order, and where they meet."""

    ranks: tuple[int, ...]
    place: str

    def text(self) -> str:
        """Return it as ranks state it."""
        return f"{sum(1 << rank for rank in self.ranks):x} {self.place}"


def _read(text: str) -> Decision | None:
    mask, space, place = text.partition(" ")
    if not space:
        return None
    number = int(mask, 16)
    return Decision(tuple(r for r in range(number.bit_length()) if number >> r & 1), place)


def go_on(
    peers: Peers, place: Callable[[], str], meet: Callable[[Decision, int], T], first: int
) -> tuple[T, int]:
    """Return what `meet` makes of the ranks that are left, and the attempts it took; collective.

    Args:
        place: returns where the ranks meet; called on the one that decides.
        meet: makes a group of ranks, given the number of the attempt; raises where one is missing.
        first: the attempts that this group has made before.

    Raises:
        RankLost: the others go on without this rank, or do not meet in as many attempts as they
            are.
    """
    error: BaseException | None = None
    for attempt in range(first, first + peers.size):
        decision = _decide(peers, place, _FIRST - 2 * attempt)
        if peers.rank not in decision.ranks:
            raise RankLost(
                f"{_STAGE}: ranks {', '.join(map(str, decision.ranks))} go on without rank "
                f"{peers.rank}, which came too late",
                rank=peers.rank,
            )
        try:
            made = meet(decision, attempt)
        except (CollectiveError, RuntimeError, OSError) as raised:
            error = raised
            continue
        if _all_met(peers, decision, _FIRST - 2 * attempt - 1):
            return made, attempt + 1
    raise RankLost(f"{_STAGE}: rank {peers.rank} met no group that stayed: {error}")


def _decide(peers: Peers, place: Callable[[], str], operation: int) -> Decision:
    """Return who goes on."""
    peers.post(operation, _CAME)
    waited, limit = Waited(), peers.deadline + min(peers.deadline, _GRACE)
    while True:
        said = {rank: peers.read(rank, operation) for rank in range(peers.size)}
        found = next(filter(None, map(_read, said.values())), None)
        if found is not None:
            peers.post(operation, found.text())
            return found
        out = {rank for rank, text in said.items() if not text and peers.is_out(rank)}
        came = tuple(rank for rank, text in said.items() if text and not peers.is_out(rank))
        absent = set(range(peers.size)) - set(came) - out
        seconds = waited.look()
        if (not absent or seconds > limit) and came[:1] == (peers.rank,):
            decision = Decision(came, place())
            peers.post(operation, decision.text())
            return decision
        if seconds > 2 * limit + _PAUSE:
            raise peers.lost(
                Stage(_STAGE), sorted(absent), f"which did not come in {seconds:.3g} s"
            )
        sleep(_PAUSE)


def _all_met(peers: Peers, decision: Decision, operation: int) -> bool:
    """Whether all that go on have met."""
    peers.post(operation, _MET)
    waited = Waited()
    while waited.look() <= peers.deadline:
        missing = [rank for rank in decision.ranks if peers.read(rank, operation) != _MET]
        if not missing:
            return True
        if any(map(peers.is_out, missing)):
            return False
        sleep(_PAUSE)
    return False
