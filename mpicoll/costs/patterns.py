"""The schedules of all ranks as arrays: ranks that are alike share one listing of messages.

Ranks are divided into groups, such as the nodes. A *kind* is a listing of messages that names each
peer by its place in its group, and by the distance between the groups: a difference, or an
exclusive or. So a few kinds stand for a million ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mpicoll.costs.groups import Groups
from mpicoll.errors import Unsupported

Ints = np.ndarray
Flags = np.ndarray


class OutOfTime(Unsupported):
    """A schedule takes longer to generate, or to simulate, than it may."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """The messages and folds of all ranks. Rounds and messages are numbered through all kinds.

    >>> from mpicoll.algorithms import find
    >>> from mpicoll.costs import pattern_of
    >>> pattern = pattern_of(find("allreduce", "ring"), 4)
    >>> pattern.size, pattern.sent, pattern.degree, pattern.messages
    (4, 1.5, 6, 24)
    >>> len(pattern.start) - 1  # kinds of ranks
    1

    Attributes:
        vector_blocks: blocks of the whole vector, or of all rows.
        kind: of each rank, in the order of its number.
        xor: whether a kind's distances are exclusive ors, else differences.
        base: the first round of each kind, and the end.
        head: blocks that each kind folds before its first message.
        first: the first message of each round, and the end.
        folded: blocks folded at the end of each round.
        distance: of each message, from the group of the rank to that of the peer.
        place: of the peer in its group.
        blocks: how many a message has; sends: whether it is sent, else received.
    """

    groups: Groups
    vector_blocks: int
    kind: Ints
    xor: Flags
    base: Ints
    head: Ints
    first: Ints
    folded: Ints
    distance: Ints
    place: Ints
    blocks: Ints
    sends: Flags

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.kind)

    @property
    def start(self) -> Ints:
        """The first message of each kind, and the end."""
        start: Ints = self.first[self.base]
        return start

    @cached_property
    def messages(self) -> int:
        """How many messages all ranks send."""
        ranks = np.bincount(self.kind, minlength=len(self.xor))
        return int(self._totals(self.sends) @ ranks)

    @property
    def sent(self) -> float:
        """The most that a rank sends, in vectors."""
        return int(self._totals(np.where(self.sends, self.blocks, 0)).max()) / self.vector_blocks

    @property
    def degree(self) -> int:
        """The most messages that a rank sends, or that one receives; at least 1."""
        return max(1, *(int(self._totals(side).max()) for side in (self.sends, ~self.sends)))

    def _totals(self, values: Ints) -> Ints:
        """Return the sum of the values of each kind's messages."""
        totals: Ints = np.diff(np.concatenate([[0], np.cumsum(values)])[self.start])
        return totals
