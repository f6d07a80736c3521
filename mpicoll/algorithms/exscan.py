"""Exscan: rank i ends with the fold of the vectors of ranks 0..i-1; rank 0 with nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from mpicoll.algorithms.registry import algorithm
from mpicoll.algorithms.shapes import staggered
from mpicoll.notation.schedule import Block, Schedule, Temp, copy, fold, on, recv, reduce, send


@algorithm("exscan", blocks=1, aliases=("naive",))
def linear(rank: int, size: int) -> Schedule:
    """Pass the prefix from rank to rank, each forwarding it with its own vector combined.

    Least work, but everyone waits for everyone before.

    Rounds p-1; bytes sent and reduced m.

    >>> from mpicoll.algorithms import find
    >>> find("exscan", "linear").show(3, 4)
    recv(2, 0)
    """
    return chain(rank, size, segments=1)


@algorithm("exscan", blocks="segments", aliases=("pipeline",))
def chain(rank: int, size: int, segments: int = 8) -> Schedule:
    """Pass the prefix from rank to rank in segments.

    A rank keeps each segment as it came, and forwards it one round later with its own
    folded in.

    Rounds p-2+n for n segments; bytes sent and reduced m.

    >>> from mpicoll.algorithms import find
    >>> find("exscan", "chain(segments=2)").show(1, 4)
    recv(0, prefix[0]) fold_left(0, prefix[0])
    recv(0, prefix[1]) fold_left(1, prefix[1]) send(2, 0) copy(0, prefix[0])
    send(2, 1) copy(1, prefix[1])
    """
    first, last = rank == 0, rank == size - 1
    came = [Temp("prefix", segment) for segment in range(segments)]
    arriving = [
        (recv(rank - 1, here),) if last else (recv(rank - 1, came[here]), fold(here, came[here]))
        for here in range(segments)
    ]
    leaving = [
        (send(rank + 1, here), *(() if first else (copy(here, came[here]),)))
        for here in range(segments)
    ]
    return staggered([] if first else arriving, [] if last else leaving)


@algorithm("exscan", blocks=1)
def one_shot(rank: int, size: int) -> Schedule:
    """Send the vector to all later ranks at once, and reduce what arrives in rank order.

    Rounds 1 with p-1 ports; bytes sent (p-1) m; reduced (p-2) m.

    >>> from mpicoll.algorithms import find
    >>> find("exscan", "one_shot").show(2, 4)
    send(3, 0) recv(0, 0) recv(1, from1[0]) fold_right(0, from1[0])
    """
    earlier: list[Block] = [Temp(f"from{peer}", 0) for peer in range(rank)]
    earlier[:1] = [0] * (rank > 0)
    yield (
        *(send(peer, 0) for peer in range(rank + 1, size)),
        *(recv(peer, vector) for peer, vector in enumerate(earlier)),
        *(fold(0, vector, "right") for vector in earlier[1:]),
    )


@algorithm("exscan")
def two_shot(rank: int, size: int) -> Schedule:
    """Let every rank compute all prefixes of one block, then hand each rank the one before its own.

    An alltoall, local prefix sums and an alltoall: all ranks fold equally much.

    Rounds 2 with p-1 ports; bytes sent 2(p-1)/p m; reduced (p-2)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("exscan", "two_shot").show(1, 2)
    send(0, 0) recv(0, from0[1]) copy(from1[1], 1) copy(1, from0[1])
    recv(0, 0)
    """
    parts = [Temp(f"from{peer}", rank) for peer in range(size)]
    peers = [peer for peer in range(size) if peer != rank]
    if not peers:
        return
    yield (
        *(send(peer, peer) for peer in peers),
        *(recv(peer, parts[peer]) for peer in peers),
        copy(parts[rank], rank),
        *(fold(part, previous, "left") for previous, part in pairwise(parts[:-1])),
        *((copy(rank, parts[rank - 1]),) if rank else ()),
    )
    yield (
        *(send(peer, parts[peer - 1]) for peer in peers if peer),
        *(recv(peer, peer) for peer in peers if rank),
    )


@algorithm("exscan", blocks=1, aliases=("shift",))
def hillis_steele(rank: int, size: int) -> Schedule:
    """Shift all vectors one rank to the right, then scan them (Hillis and Steele 1986).

    After the shift rank i holds its left neighbour's vector, and the inclusive scan
    among ranks 1..p-1 is the exclusive one.

    Rounds 1+ceil(log2(p-1)); bytes sent m(1+ceil(log2(p-1))), reduced m ceil(log2(p-1)).

    >>> from mpicoll.algorithms import find
    >>> find("exscan", "hillis_steele").show(3, 4)
    recv(2, 0)
    reduce_left(2, 0)
    reduce_left(1, 0)
    """
    from mpicoll.algorithms import scan

    return _shifted(rank, size, scan.hillis_steele)


@algorithm("exscan", blocks=1)
def sweep(rank: int, size: int) -> Schedule:
    """Shift all vectors one rank to the right, then sweep up and down (Blelloch 1990).

    Rounds 2+floor(log2(p-1))+floor(log2((p-1)/3)); bytes sent up to m(1+floor(log2(p-1))), by
    all ranks together less than 3pm.

    >>> from mpicoll.algorithms import find
    >>> find("exscan", "sweep").show(2, 4)
    send(3, 0) recv(1, 0)
    reduce_left(1, 0)
    send(3, 0)
    """
    from mpicoll.algorithms import scan

    return _shifted(rank, size, scan.sweep)


def _shifted(rank: int, size: int, inclusive: Callable[[int, int], Schedule]) -> Schedule:
    """Shift all vectors one rank to the right, then scan them there."""
    yield (
        *((send(rank + 1, 0),) if rank < size - 1 else ()),
        *((recv(rank - 1, 0),) if rank > 0 else ()),
    )
    if rank > 0:
        yield from on(range(1, size), inclusive(rank - 1, size - 1))


@algorithm("exscan", blocks=1, aliases=("123_doubling",))
def one_two_three(rank: int, size: int) -> Schedule:
    """Receive from the rank 1, 2, 3, 6, 12, ... to the left (123-doubling, Träff 2025).

    The prefix covers 1 rank, then 3, then twice as many in every round: almost as few rounds
    as recursive_doubling, with about half of its folds.

    Rounds ceil(log2(p-1) + log2(4/3)); bytes sent and reduced up to m for each round.

    >>> from mpicoll.algorithms import find
    >>> find("exscan", "one_two_three").show(2, 5)
    send(3, 0) recv(1, before[0]) fold_left(0, before[0])
    send(4, 0) reduce_left(0, before[0]) copy(0, before[0])
    """
    # Only who sends in the second round needs its own vector any longer.
    has_receiver = rank + 2 < size
    prefix: Block = Temp("before", 0) if has_receiver else 0
    yield (
        *((send(rank + 1, 0),) if rank + 1 < size else ()),
        *((recv(rank - 1, prefix),) if rank else ()),
        *((fold(0, prefix),) if rank and has_receiver else ()),
    )
    yield (
        *((send(rank + 2, 0),) if has_receiver else ()),
        *((reduce(rank - 2, prefix),) if rank >= 2 else ()),
        *((copy(0, prefix),) if rank and has_receiver else ()),
    )
    distance = 3
    while distance < size - 1:
        yield (
            *((send(rank + distance, 0),) if rank and rank + distance < size else ()),
            *((reduce(rank - distance, 0),) if rank > distance else ()),
        )
        distance *= 2


@algorithm("exscan", blocks="segments")
def binary_tree(rank: int, size: int, segments: int = 8) -> Schedule:
    """Fold up and down a binary tree in rank order, in segments (Sanders, Speck, Träff 2009).

    As the scan of that name, but a rank keeps the prefix of its left subtree beside the one
    that it hands on.

    Rounds up to 2 floor(log2 p)+n for n segments, with 3 ports; bytes sent up to 3m, reduced 4m.

    >>> from mpicoll.algorithms import find
    >>> find("exscan", "binary_tree(segments=1)").show(1, 4)
    recv(0, before[0]) fold_left(0, before[0]) recv(2, total[0]) fold_left(total[0], 0)
    send(3, total[0])
    send(2, 0) copy(0, before[0])
    """
    from mpicoll.algorithms import scan

    return scan.one_tree(rank, size, segments, inclusive=False)


@algorithm("exscan", blocks="segments")
def two_tree(rank: int, size: int, segments: int = 8) -> Schedule:
    """Scan half of the segments by another tree, with other leaves (Sanders et al. 2009).

    As the scan of that name.

    Rounds up to 2 ceil(log2 p)+n/2 for an even number n of segments, with 4 ports; bytes sent and
    reduced up to 2m, 3m and 4m for a single segment.

    >>> from mpicoll.algorithms import find
    >>> find("exscan", "two_tree(segments=2)").show(3, 4)
    recv(1, before[0])
    copy(0, before[0])
    recv(2, prefix[1]) copy(1, prefix[1])
    """
    from mpicoll.algorithms import scan

    return scan.two_trees(rank, size, segments, inclusive=False)


@algorithm("exscan", blocks=1)
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Exchange group totals with peers at distance 1, 2, 4, ... (as in MPICH and Open MPI).

    Each rank keeps the total of its group; those from the left make up the prefix.

    Rounds ceil(log2 p); bytes sent m ceil(log2 p), reduced up to 2m ceil(log2 p).

    >>> from mpicoll.algorithms import find
    >>> find("exscan", "recursive_doubling").show(1, 4)
    copy(total[0], 0)
    send(0, total[0]) recv(0, got[0]) fold_left(total[0], got[0])
    copy(0, got[0])
    send(3, total[0]) recv(3, got[0]) fold_right(total[0], got[0])
    """
    from mpicoll.algorithms import scan

    return scan.doubling(rank, size, inclusive=False)
