"""Gather: the root gets every rank's row; each is a scatter read backwards."""

from __future__ import annotations

from mpicoll.algorithms.registry import Rows, algorithm, even
from mpicoll.notation.schedule import Schedule, reverse


@algorithm("gather", aliases=("linear",))
def naive(rank: int, size: int, root: int) -> Schedule:
    """Receive every rank's row straight at the root, one after the other.

    Each row travels once, which no tree can better; the root works alone.

    Rounds p-1; bytes sent 1/p m, received (p-1)/p m by the root.

    >>> from mpicoll.algorithms import find
    >>> find("gather", "naive").show(0, 4)
    recv(1, 1)
    recv(2, 2)
    recv(3, 3)
    """
    from mpicoll.algorithms import scatter

    return reverse(scatter.naive(rank, size, root), rank, folds=False)


@algorithm("gather", aliases=("tree",))
def binomial(rank: int, size: int, root: int) -> Schedule:
    """Collect rows up the binomial tree, twice as many in every round (Thakur et al. 2005).

    Each message carries the rows of a whole subtree, so the root receives no more
    than in a loop, in as few rounds as possible.

    Rounds ceil(log2 p); bytes sent up to m/2, received (p-1)/p m by the root.

    >>> from mpicoll.algorithms import find
    >>> find("gather", "binomial").show(0, 4)
    recv(1, 1)
    recv(2, 2, 3)
    """
    from mpicoll.algorithms import scatter

    return reverse(scatter.binomial(rank, size, root), rank, folds=False)


@algorithm("gather")
def knomial(rank: int, size: int, root: int, radix: int = 4) -> Schedule:
    """Collect from radix-1 children at a time up the k-nomial tree (as in UCC).

    Each message carries the rows of a whole subtree; fewer rounds for more ports.

    Rounds ceil(log_k p) with k-1 ports; bytes received (p-1)/p m by the root.

    >>> from mpicoll.algorithms import find
    >>> find("gather", "knomial").show(0, 4)
    recv(1, 1) recv(2, 2) recv(3, 3)
    """
    from mpicoll.algorithms import scatter

    return reverse(scatter.knomial(rank, size, root, radix), rank, folds=False)


@algorithm("gather", needs=even)
def bine(rank: int, size: int, root: int) -> Schedule:
    """Collect up the tree whose ranks swing to the right and to the left (De Sensi et al. 2025).

    From round to round the distance doubles and the direction turns: 1, -1, 3, -5, ... for
    even ranks, counted from the root, and the opposite for odd ones. Even numbers of ranks only.

    Rounds ceil(log2 p); bytes sent up to m/2, received (p-1)/p m by the root.

    >>> from mpicoll.algorithms import find
    >>> find("gather", "bine").show(0, 4)
    recv(1, 1)
    recv(3, 2, 3)
    """
    from mpicoll.algorithms import scatter

    return reverse(scatter.bine(rank, size, root), rank, folds=False)


@algorithm("gather")
def size_aware(rank: int, size: int, root: int, counts: Rows) -> Schedule:
    """Collect up a tree in which long rows travel once, whatever the counts (Träff 2017).

    Neighbouring groups of ranks merge, and the rank that has gathered less for others, and is
    not the root, hands all to the one that has gathered more. The paper's exchange of sizes is
    not needed: all ranks know the counts here.

    Rounds ceil(log2 p); bytes received (m - m_root) by the root.

    >>> from mpicoll.algorithms import find
    >>> for rank in range(4):
    ...     for round in find("gather", "size_aware").rounds(rank, 4, counts=(1, 1, 5, 9)):
    ...         print(rank, *round)
    0 recv(1, 1)
    0 recv(3, 2, 3)
    1 send(0, 1)
    2 send(3, 2)
    3 recv(2, 2)
    3 send(0, 2, 3)
    """
    from mpicoll.algorithms import scatter

    return reverse(scatter.size_aware(rank, size, root, counts), rank, folds=False)


@algorithm("gather", aliases=("pipeline",))
def chain(rank: int, size: int, root: int) -> Schedule:
    """Pass the rows along the chain of ranks towards the root, each rank's own first.

    Every message goes to a neighbour; all links work at once.

    Rounds p-1; bytes sent (p-1)/p m by the rank next to the root.

    >>> from mpicoll.algorithms import find
    >>> find("gather", "chain").show(0, 4)
    recv(1, 1)
    recv(1, 2)
    recv(1, 3)
    """
    from mpicoll.algorithms import scatter

    return reverse(scatter.chain(rank, size, root), rank, folds=False)
