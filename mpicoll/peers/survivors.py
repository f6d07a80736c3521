"""Agree on the ranks that are left of a group, though more of them may end meanwhile.

Ranks state what they know, and the first that still lives decides for all: who goes on and where
they meet, and, once each has made the group of these, whether all have. Whoever has read a decision
states it, too, so that it stays known where the first one ends. Where some rank has not made the
group, those that have leave it, and all begin anew without the ranks that have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import sleep
from typing import Any, NamedTuple, Protocol

from mpicoll.backend import Stage
from mpicoll.errors import CollectiveError, RankLost
from mpicoll.machine.waited import Waited
from mpicoll.memory.notes import GROUP


class OtherRanks(Protocol):
    """The other ranks of a group, to agree with them: `mpicoll.peers.known.Peers` is one."""

    rank: int
    size: int

    @property
    def deadline(self) -> float:
        """Seconds after which this rank gives up a wait."""

    def post(self, operation: int, text: str) -> None:
        """State a short text about an operation."""

    def hear(self, ranks: Sequence[int], operation: int) -> tuple[set[int], dict[int, str]]:
        """Return the ranks that have ended, are stopped or cannot be reached, and each statement.

        A statement is a rank's last one about an operation; empty where it has made none.
        """

    def lost(self, stage: Stage, missing: Sequence[int], reason: str) -> RankLost:
        """Return the error of this rank's wait for others."""


_FIRST = -(1 << 40)
"""The number of the first attempt, as of an operation; that of the next is 2 less."""
_PAUSE = 0.02
_GRACE = 10.0
"""Seconds, or as much as the deadline: who came first waits for those that notice at theirs."""
_CAME, _MET, _NOT_MET = _STATES = "came", "met", "alone"
_DECIDED, _ALL, _AGAIN = "decided: ", "all have met", "not all have met"
_STAGE = "agreeing on the survivors"


class Decision(NamedTuple):
    """The ranks that go on, in order, and where they meet."""

    ranks: tuple[int, ...]
    place: str

    def text(self) -> str:
        """Return it as ranks state it."""
        return f"{sum(1 << rank for rank in self.ranks):x} {self.place}"


def _read(text: str) -> Decision:
    mask, _, place = text.partition(" ")
    number = int(mask, 16)
    return Decision(tuple(r for r in range(number.bit_length()) if number >> r & 1), place)


def go_on(
    peers: OtherRanks, place: Callable[[], str], make_group: Callable[[Decision, int], Any],
    attempts: Iterator[int],
) -> Any:  # fmt: skip
    """Return the result of `make_group` on the ranks that are left; collective.

    Args:
        place: returns where the ranks meet; called on the one that decides.
        make_group: makes the `mpicoll.Collectives` of ranks, given the number of the attempt;
            raises where one is missing.
        attempts: numbers those of this group: what was stated about one stays.

    Raises:
        RankLost: the others go on without this rank, or the same ranks have not met twice.
    """
    ranks: Sequence[int] = range(peers.size)
    previous_ranks: Sequence[int] = ()
    why: object = "another has not come"
    while True:
        attempt = next(attempts)
        operation = _FIRST - 2 * attempt
        decision = _read(
            _decided(
                peers, ranks, operation, _CAME, lambda came: Decision(tuple(came), place()).text()
            )
        )
        ranks = decision.ranks
        if peers.rank not in ranks:
            raise RankLost(
                f"{_STAGE}: ranks {_listed(ranks)} go on without rank {peers.rank}, "
                "which came too late",
                rank=peers.rank,
            )
        group, state = None, _NOT_MET
        try:
            group, state = make_group(decision, attempt), _MET
        except (CollectiveError, RuntimeError, OSError) as error:
            why = error
        decide = partial(_whether_all_met, ranks)
        have_met = _decided(peers, ranks, operation - 1, state, decide)
        if group is not None and have_met == _ALL:
            return group
        if group is not None:
            group.transport.leave(GROUP, RankLost("not all ranks that were left have come"))
            group.free()
        if ranks == previous_ranks:  # what keeps them apart is no rank that ends
            raise RankLost(
                f"{_STAGE}: ranks {_listed(ranks)} are left and twice did not meet: {why}"
            )
        previous_ranks = ranks


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))


def _whether_all_met(ranks: Sequence[int], came: Mapping[int, str]) -> str:
    return _ALL if [*came.items()] == [(rank, _MET) for rank in ranks] else _AGAIN


def _decided(
    peers: OtherRanks, ranks: Sequence[int], operation: int, state: str,
    decide: Callable[[Mapping[int, str]], str],
) -> str:  # fmt: skip
    """Return the decision of the first of some ranks that lives, once all that live have come.

    Args:
        state: what this rank states about the operation.
        decide: given what each rank states that has come, in their order.

    Raises:
        RankLost: the ranks before this one have neither come nor ended.
    """
    peers.post(operation, state)
    waited, limit = Waited(), peers.deadline + min(peers.deadline, _GRACE)
    previous_out: set[int] = set()
    while True:
        out, texts = peers.hear(ranks, operation)
        statements = {
            # A rank may also state why it has left the group.
            rank: text if text in _STATES or text.startswith(_DECIDED) else ""
            for rank, text in texts.items()
        }
        known_decision = next(
            (statement for statement in statements.values() if statement.startswith(_DECIDED)), None
        )
        if known_decision is not None:
            peers.post(operation, known_decision)
            return known_decision.removeprefix(_DECIDED)
        came = {rank: text for rank, text in statements.items() if text and rank not in out}
        absent = [rank for rank, text in statements.items() if not text and rank not in out]
        seconds = waited.look()
        # One that has ended may have told another a decision, which states it by the next look.
        if out == previous_out and (not absent or seconds > limit) and min(came) == peers.rank:
            decision = decide(came)
            peers.post(operation, _DECIDED + decision)
            return decision
        if seconds > 2 * limit + _PAUSE:
            raise peers.lost(Stage(_STAGE), absent, f"which did not come in {seconds:.3g} s")
        previous_out = out
        sleep(_PAUSE)
