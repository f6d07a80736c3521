"""Scatter: every rank gets its own row from the root; gather is the same read backwards."""

from __future__ import annotations

from mpicoll.algorithms import algorithm
from mpicoll.algorithms.shapes import flat, relayed, tree
from mpicoll.schedule import Schedule, on


def _turned(root: int, size: int, schedule: Schedule) -> Schedule:
    """Move a scatter written for root 0 to another root: ranks and rows turn together."""
    ranks = [(index + root) % size for index in range(size)]
    return on(ranks, schedule, lambda row: ranks[row])  # type: ignore[call-overload]


@algorithm("scatter", aliases=("linear",))
def naive(rank: int, size: int, root: int) -> Schedule:
    """Send every rank its row straight from the root, one after the other.

    Each row travels once, which no tree can better; the root works alone.

    Rounds p-1; bytes sent (p-1)/p m by the root.

    >>> from mpicoll.algorithms import find
    >>> for round in find("scatter", "naive").rounds(0, 4):
    ...     print(*round)
    send(3, 3)
    send(2, 2)
    send(1, 1)
    """
    return flat(rank, size, root, lambda peer: (peer,))


@algorithm("scatter", aliases=("tree",))
def binomial(rank: int, size: int, root: int) -> Schedule:
    """Send half of the rows to the other half of the ranks, and so on (Thakur et al. 2005).

    Down the binomial tree each message carries the rows of the whole subtree, so
    the root sends no more than in a loop, in as few rounds as possible.

    Rounds ceil(log2 p); bytes sent (p-1)/p m by the root.

    >>> from mpicoll.algorithms import find
    >>> for round in find("scatter", "binomial").rounds(0, 4):
    ...     print(*round)
    send(2, 2, 3)
    send(1, 1)
    """
    return _turned(root, size, tree((rank - root) % size, size, 2, range))


@algorithm("scatter", aliases=("pipeline",))
def chain(rank: int, size: int, root: int) -> Schedule:
    """Pass the rows along the chain of ranks, the farthest rank's first.

    A rank forwards all rows but the last that reaches it, its own. Every message
    goes to a neighbour.

    Rounds p-1; bytes sent (p-1)/p m by the root.

    >>> from mpicoll.algorithms import find
    >>> for round in find("scatter", "chain").rounds(0, 4):
    ...     print(*round)
    send(1, 3)
    send(1, 2)
    send(1, 1)
    """
    me = (rank - root) % size
    rows = range(size - 1, me, -1)
    return _turned(root, size, relayed(me, size, (*rows, me), rows))
