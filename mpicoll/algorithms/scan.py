"""Scan: rank i ends with the fold of the vectors of ranks 0..i, in this order."""

from __future__ import annotations

from itertools import pairwise

from mpicoll.algorithms import algorithm
from mpicoll.algorithms.shapes import staggered
from mpicoll.schedule import Block, Schedule, Temp, copy, fold, recv, reduce, send, side_of


@algorithm("scan", blocks=1, aliases=("naive",))
def linear(rank: int, size: int) -> Schedule:
    """Pass the prefix from rank to rank, each folding in its own vector.

    Least work, but everyone waits for everyone before.

    Rounds p-1; bytes sent and reduced m.

    >>> from mpicoll.algorithms import find
    >>> for round in find("scan", "linear").rounds(3, 4):
    ...     print(*round)
    reduce_left(2, 0)
    """
    return chain(rank, size, segments=1)


@algorithm("scan", blocks="segments", aliases=("pipeline",))
def chain(rank: int, size: int, segments: int = 8) -> Schedule:
    """Pass the prefix from rank to rank in segments.

    A rank folds one segment while it forwards the one before.

    Rounds p-2+n for n segments; bytes sent and reduced m.

    >>> from mpicoll.algorithms import find
    >>> for round in find("scan", "chain(segments=3)").rounds(1, 4):
    ...     print(*round)
    reduce_left(0, 0)
    reduce_left(0, 1) send(2, 0)
    reduce_left(0, 2) send(2, 1)
    send(2, 2)
    """
    return staggered(
        [(reduce(rank - 1, segment),) for segment in range(segments) if rank > 0],
        [(send(rank + 1, segment),) for segment in range(segments) if rank < size - 1],
    )


@algorithm("scan", blocks=1)
def one_shot(rank: int, size: int) -> Schedule:
    """Send the vector to all later ranks at once, and fold what arrives in rank order.

    Rounds 1 with p-1 ports; bytes sent and reduced (p-1) m.

    >>> from mpicoll.algorithms import find
    >>> for round in find("scan", "one_shot").rounds(1, 4):
    ...     print(*round)
    send(2, 0) send(3, 0) recv(0, from0[0]) fold_left(0, from0[0])
    """
    earlier = [Temp(f"from{peer}", 0) for peer in range(rank)]
    yield (
        *(send(peer, 0) for peer in range(rank + 1, size)),
        *(recv(peer, vector) for peer, vector in enumerate(earlier)),
        *(fold(earlier[0], vector, "right") for vector in earlier[1:]),
        *((fold(0, earlier[0], "left"),) if earlier else ()),
    )


@algorithm("scan")
def two_shot(rank: int, size: int) -> Schedule:
    """Let every rank compute all prefixes of one block, then hand each rank its own.

    An alltoall, local prefix sums and an alltoall: all ranks fold equally much.

    Rounds 2 with p-1 ports; bytes sent 2(p-1)/p m; reduced (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> for round in find("scan", "two_shot").rounds(0, 2):
    ...     print(*round)
    send(1, 1) recv(1, from1[0]) fold_left(from1[0], 0)
    send(1, from1[0]) recv(1, 1)
    """
    parts: list[Block] = [Temp(f"from{peer}", rank) for peer in range(size)]
    parts[rank] = rank
    peers = [peer for peer in range(size) if peer != rank]
    yield (
        *(send(peer, peer) for peer in peers),
        *(recv(peer, parts[peer]) for peer in peers),
        *(fold(part, before, "left") for before, part in pairwise(parts)),
    )
    yield (*(send(peer, parts[peer]) for peer in peers), *(recv(peer, peer) for peer in peers))


@algorithm("scan", blocks=1)
def hillis_steele(rank: int, size: int) -> Schedule:
    """Fold in the partial prefix of the rank 1, 2, 4, ... to the left (Hillis and Steele 1986).

    After round i each rank holds the fold of the last 2^(i+1) ranks up to itself.

    Rounds ceil(log2 p); bytes sent and reduced m ceil(log2 p).

    >>> from mpicoll.algorithms import find
    >>> for round in find("scan", "hillis_steele").rounds(3, 4):
    ...     print(*round)
    reduce_left(2, 0)
    reduce_left(1, 0)
    """
    distance = 1
    while distance < size:
        right, left = rank + distance, rank - distance
        yield (
            *((send(right, 0),) if right < size else ()),
            *((reduce(left, 0),) if left >= 0 else ()),
        )
        distance *= 2


@algorithm("scan", blocks=1)
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Exchange group totals with peers at distance 1, 2, 4, ... (as in MPICH and Open MPI).

    Each rank keeps the total of its group beside its prefix; only totals from the
    left enter the prefix.

    Rounds ceil(log2 p); bytes sent m ceil(log2 p), reduced up to 2m ceil(log2 p).
    """
    return doubling(rank, size, inclusive=True)


def doubling(rank: int, size: int, *, inclusive: bool) -> Schedule:
    """Scan by recursive doubling; exclusive, the first total from the left is the prefix."""
    total, got = Temp("total", 0), Temp("got", 0)
    if size > 1:
        yield copy(total, 0)
    distance, started = 1, inclusive
    while distance < size:
        peer = rank ^ distance
        distance *= 2
        if peer >= size:
            continue
        yield send(peer, total), recv(peer, got), fold(total, got, side_of(peer, rank))
        if peer < rank:
            yield fold(0, got) if started else copy(0, got)
            started = True
