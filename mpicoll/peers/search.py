"""Search for the rank that keeps a wait from its end, by few questions.

In a collective every rank waits for all others. Each look of a rank asks one other rank, so a look
of p ranks costs p questions. The distance to that rank doubles from look to look. Ranks pass on
whom they wait for and that they have left, so news reaches all ranks within about log2(p) looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpicoll.memory.notes import GROUP
from mpicoll.peers.known import state_from_answer

if TYPE_CHECKING:
    from mpicoll.peers.contact import Answer
    from mpicoll.peers.known import Peers

Missing = Callable[[], Sequence[int]]
"""Returns the ranks that a wait is still for, as far as they are known."""


def _is_unknown(_: Answer) -> bool:
    return False


@dataclass(frozen=True)
class AllRanks:
    """All ranks of a collective. A rank must ask to find out which of them is missing.

    Attributes:
        is_late: whether an answer says that a rank has not come.
        operation: the number of the collective.
    """

    peers: Peers
    is_late: Callable[[Answer], bool] = _is_unknown
    operation: int = GROUP

    def __call__(self) -> list[int]:
        """Return the missing ranks, of all that are asked."""
        return self.peers.absent(self.is_late, self.operation, self.has_completed)

    def has_completed(self, answer: Answer | str) -> bool:
        """Whether a rank has completed the collective, and freed the group then.

        A library's call ends on one rank while another still waits for a third.
        """
        if isinstance(answer, str) or not answer.freed or self.is_late is _is_unknown:
            return False
        return not self.is_late(answer)


def search(peers: Peers, missing: Missing) -> _AmongAll | _AmongSenders:
    """Return the search of a new wait."""
    return _AmongAll(missing) if isinstance(missing, AllRanks) else _AmongSenders(peers, missing)


class _AmongSenders:
    """Asks the ranks whose messages have not come."""

    def __init__(self, peers: Peers, missing: Missing) -> None:
        self.peers, self._missing = peers, missing

    def have_told(self, operation: int) -> Sequence[int]:
        """Return the ranks that have told this one that they left the operation."""
        # Messages without a number are the user's own.
        return self.peers.have_told((operation,)) if operation else ()

    def next_ranks(self) -> Sequence[int]:
        """Return the ranks to ask now; `missing`: those for an error."""
        return self._missing()

    missing = next_ranks

    def ask(self, ranks: Sequence[int], operation: int) -> bool:
        """Ask ranks, and return whether one will not come."""
        self.peers.wait_for(ranks[0] if ranks else None)
        return self.peers.have_gone(ranks, operation)


class _AmongAll:
    """Asks one rank in each look.

    Attributes:
        suspect: the rank that is missing, as far as this one knows.
        is_certain: that rank has ended or left, is stopped or cannot be reached.
    """

    def __init__(self, all_ranks: AllRanks) -> None:
        self.all_ranks, self.peers = all_ranks, all_ranks.peers
        self.suspect: int | None = None
        self.is_certain = False
        self._looks = 0

    def have_told(self, operation: int) -> Sequence[int]:
        return self.peers.have_told((operation, GROUP))

    def next_ranks(self) -> Sequence[int]:
        """Return the rank at a distance of 1, 2, 4, ..., and later at any other one."""
        size, rank = self.peers.size, self.peers.rank
        if size == 1:
            return ()
        cycle, step = divmod(self._looks, (size - 1).bit_length())
        self._looks += 1
        return ((rank + 1 + ((1 << step) - 1 + cycle) % (size - 1)) % size,)

    def ask(self, ranks: Sequence[int], operation: int) -> bool:
        near = self.peers.near_missing(operation)
        answers = self._ask(ranks, operation)
        if near:
            self.suspect, self.is_certain = near[0], True
        for rank, answer in answers.items():
            self._hear(rank, answer)
        self.peers.wait_for(self.suspect)
        return self.peers.will_not_come([*near, *ranks], answers, operation)

    def _ask(self, ranks: Sequence[int], operation: int) -> dict[int, Answer | str]:
        """Return the answers of ranks that have not completed the collective."""
        answers, has_completed = self.peers.ask(ranks, operation), self.all_ranks.has_completed
        return {rank: answer for rank, answer in answers.items() if not has_completed(answer)}

    def _hear(self, rank: int, answer: Answer | str) -> None:
        """Note which rank is missing, as the answer of a rank says it."""
        if self.is_certain:
            return
        if state_from_answer(rank, answer).fact:
            self.suspect, self.is_certain = rank, True
        elif not isinstance(answer, str):
            if self.all_ranks.is_late(answer):
                self.suspect = rank
            elif answer.awaits not in (None, self.peers.rank):
                self.suspect = answer.awaits

    def missing(self) -> Sequence[int]:
        suspect, operation = self.suspect, self.all_ranks.operation
        if suspect is not None and self._is_missing(suspect, operation):
            return [suspect]
        return self.all_ranks()

    def _is_missing(self, rank: int, operation: int) -> bool:
        if rank in self.peers.near_missing(operation):
            return True
        answers = self._ask([rank], operation)
        return any(
            state_from_answer(rank, answer).fact
            or (not isinstance(answer, str) and self.all_ranks.is_late(answer))
            for answer in answers.values()
        )
