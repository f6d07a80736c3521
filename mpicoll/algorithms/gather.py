"""Gather: the root gets every rank's row; each is a scatter read backwards."""

from __future__ import annotations

from mpicoll.algorithms import algorithm, scatter
from mpicoll.schedule import Schedule, reverse


@algorithm("gather", aliases=("linear",))
def naive(rank: int, size: int, root: int) -> Schedule:
    """Receive every rank's row straight at the root, one after the other.

    Each row travels once, which no tree can better; the root works alone.

    Rounds p-1; bytes sent 1/p m, received (p-1)/p m by the root.

    >>> from mpicoll.algorithms import find
    >>> for round in find("gather", "naive").rounds(0, 4):
    ...     print(*round)
    recv(1, 1)
    recv(2, 2)
    recv(3, 3)
    """
    return reverse(scatter.naive(rank, size, root), rank, folds=False)


@algorithm("gather", aliases=("tree",))
def binomial(rank: int, size: int, root: int) -> Schedule:
    """Collect rows up the binomial tree, twice as many in every round (Thakur et al. 2005).

    Each message carries the rows of a whole subtree, so the root receives no more
    than in a loop, in as few rounds as possible.

    Rounds ceil(log2 p); bytes sent up to m/2, received (p-1)/p m by the root.

    >>> from mpicoll.algorithms import find
    >>> for round in find("gather", "binomial").rounds(0, 4):
    ...     print(*round)
    recv(1, 1)
    recv(2, 2, 3)
    """
    return reverse(scatter.binomial(rank, size, root), rank, folds=False)


@algorithm("gather", aliases=("pipeline",))
def chain(rank: int, size: int, root: int) -> Schedule:
    """Pass the rows along the chain of ranks towards the root, each rank's own first.

    Every message goes to a neighbour; all links work at once.

    Rounds p-1; bytes sent (p-1)/p m by the rank next to the root.

    >>> from mpicoll.algorithms import find
    >>> for round in find("gather", "chain").rounds(0, 4):
    ...     print(*round)
    recv(1, 1)
    recv(1, 2)
    recv(1, 3)
    """
    return reverse(scatter.chain(rank, size, root), rank, folds=False)
