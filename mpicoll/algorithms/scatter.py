"""Scatter: every rank gets its own row from the root; gather is the same read backwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mpicoll.algorithms.registry import Rows, algorithm, even
from mpicoll.algorithms.shapes import flat, relayed, tree
from mpicoll.notation.schedule import Schedule, on, recv, send

Move = tuple[int, int, Sequence[int]]
"""Who hands which rows to whom: giver, taker, rows."""


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
    >>> find("scatter", "naive").show(0, 4)
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
    >>> find("scatter", "binomial").show(0, 4)
    send(2, 2, 3)
    send(1, 1)
    """
    return knomial(rank, size, root, radix=2)


@algorithm("scatter")
def knomial(rank: int, size: int, root: int, radix: int = 4) -> Schedule:
    """Send to radix-1 children at a time down the k-nomial tree (as in UCC).

    Each message carries the rows of a whole subtree; fewer rounds for more ports.

    Rounds ceil(log_k p) with k-1 ports; bytes sent (p-1)/p m by the root.

    >>> from mpicoll.algorithms import find
    >>> find("scatter", "knomial").show(0, 4)
    send(1, 1) send(2, 2) send(3, 3)
    """
    return _turned(root, size, tree((rank - root) % size, size, radix, range))


@algorithm("scatter", needs=even)
def bine(rank: int, size: int, root: int) -> Schedule:
    """Send down the tree whose ranks swing to the right and to the left (De Sensi et al. 2025).

    From round to round the distance halves and the direction turns: ..., -5, 3, -1, 1 for
    even ranks, counted from the root, and the opposite for odd ones. Subtrees lie closer
    together than in the binomial tree. Even numbers of ranks only: others are not all reached.

    Rounds ceil(log2 p); bytes sent (p-1)/p m by the root.

    >>> from mpicoll.algorithms import find
    >>> find("scatter", "bine").show(0, 4)
    send(3, 2, 3)
    send(1, 1)
    """
    from mpicoll.algorithms import bine_trees

    below = bine_trees.subtrees(size)
    rounds = ([(at, child, below[child]) for at, child in edges] for edges in bine_trees.tree(size))
    return _turned(root, size, _handed_on((rank - root) % size, rounds))


def _handed_on(rank: int, rounds: Iterable[Iterable[Move]]) -> Schedule:
    """Take one rank's part in moves of rows."""
    for moves in rounds:
        for giver, taker, rows in moves:
            if rank == giver:
                yield send(taker, *rows)
            elif rank == taker:
                yield recv(giver, *rows)


@algorithm("scatter")
def size_aware(rank: int, size: int, root: int, counts: Rows) -> Schedule:
    """Send down a tree in which long rows travel once, whatever the counts (Träff 2017).

    Ranks merge to pairs, those to fours, and so on. In each group one rank stands for all: the
    root, else the one with more of others' rows. The scatter runs from the whole group down.
    All ranks know the counts here, so that nothing need be exchanged to build the tree.

    Rounds ceil(log2 p); bytes sent (m - m_root) by the root. Forwarding takes less than as long
    again, and no longer where the merging would end at the root by itself.

    >>> from mpicoll.algorithms import find
    >>> find("scatter", "size_aware").show(3, 4, counts=(5, 1, 1, 9))
    recv(0, 2, 3)
    send(2, 2)
    """
    rounds = reversed([*merges(counts, root)])
    return _handed_on(
        rank, ([(keeps, gives, rows) for gives, keeps, rows in moves] for moves in rounds)
    )


def merges(counts: Sequence[int], root: int) -> Iterable[list[Move]]:
    """Yield the rounds of a size-aware gather: groups of ranks merge, one's rows move.

    What a rank has gathered for others was sent once already, and would be again; its own
    row would not. Whoever saves more keeps. With a root of -1 the merging ends where it may.
    """

    def weight(group: tuple[int, range]) -> tuple[bool, int, int]:
        speaker, rows = group
        total = sum(counts[row] for row in rows)
        return speaker == root, total - counts[speaker], total

    groups = [(rank, range(rank, rank + 1)) for rank in range(len(counts))]
    while len(groups) > 1:
        moves: list[Move] = []
        merged = []
        for pair in (groups[index : index + 2] for index in range(0, len(groups), 2)):
            keeps, _ = max(pair, key=weight)
            moves += [(speaker, keeps, rows) for speaker, rows in pair if speaker != keeps]
            merged.append((keeps, range(pair[0][1].start, pair[-1][1].stop)))
        yield moves
        groups = merged


@algorithm("scatter", aliases=("pipeline",))
def chain(rank: int, size: int, root: int) -> Schedule:
    """Pass the rows along the chain of ranks, the farthest rank's first.

    A rank forwards all rows but the last that reaches it, its own. Every message
    goes to a neighbour.

    Rounds p-1; bytes sent (p-1)/p m by the root.

    >>> from mpicoll.algorithms import find
    >>> find("scatter", "chain").show(0, 4)
    send(1, 3)
    send(1, 2)
    send(1, 1)
    """
    me = (rank - root) % size
    rows = range(size - 1, me, -1)
    return _turned(root, size, relayed(me, size, (*rows, me), rows))
