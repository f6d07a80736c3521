"""Scan: rank i ends with the fold of the vectors of ranks 0..i, in this order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from mpicoll.algorithms.registry import algorithm
from mpicoll.algorithms.shapes import staggered
from mpicoll.notation.schedule import (
    Block,
    Op,
    Schedule,
    Temp,
    copy,
    fold,
    recv,
    reduce,
    send,
    side_of,
)

Move = tuple[int, Op]
"""An operation of a rank, behind its time."""


@algorithm("scan", blocks=1, aliases=("naive",))
def linear(rank: int, size: int) -> Schedule:
    """Pass the prefix from rank to rank, each combining it with its own vector.

    Least work, but everyone waits for everyone before.

    Rounds p-1; bytes sent and reduced m.

    >>> from mpicoll.algorithms import find
    >>> find("scan", "linear").show(3, 4)
    reduce_left(2, 0)
    """
    return chain(rank, size, segments=1)


@algorithm("scan", blocks="segments", aliases=("pipeline",))
def chain(rank: int, size: int, segments: int = 8) -> Schedule:
    """Pass the prefix from rank to rank in segments.

    A rank folds one segment while it forwards the one before.

    Rounds p-2+n for n segments; bytes sent and reduced m.

    >>> from mpicoll.algorithms import find
    >>> find("scan", "chain(segments=3)").show(1, 4)
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
    """Send the vector to all later ranks at once, and reduce what arrives in rank order.

    Rounds 1 with p-1 ports; bytes sent and reduced (p-1) m.

    >>> from mpicoll.algorithms import find
    >>> find("scan", "one_shot").show(1, 4)
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
    >>> find("scan", "two_shot").show(0, 2)
    send(1, 1) recv(1, from1[0]) fold_left(from1[0], 0)
    send(1, from1[0]) recv(1, 1)
    """
    parts: list[Block] = [Temp(f"from{peer}", rank) for peer in range(size)]
    parts[rank] = rank
    peers = [peer for peer in range(size) if peer != rank]
    yield (
        *(send(peer, peer) for peer in peers),
        *(recv(peer, parts[peer]) for peer in peers),
        *(fold(part, previous, "left") for previous, part in pairwise(parts)),
    )
    yield (*(send(peer, parts[peer]) for peer in peers), *(recv(peer, peer) for peer in peers))


@algorithm("scan", blocks=1, aliases=("shift",))
def hillis_steele(rank: int, size: int) -> Schedule:
    """Fold in the partial prefix of the rank 1, 2, 4, ... to the left (Hillis and Steele 1986).

    After round i each rank holds the fold of the last 2^(i+1) ranks up to itself.

    Rounds ceil(log2 p); bytes sent and reduced m ceil(log2 p).

    >>> from mpicoll.algorithms import find
    >>> find("scan", "hillis_steele").show(3, 4)
    reduce_left(2, 0)
    reduce_left(1, 0)
    """
    distance = 1
    while distance < size:
        upper, lower = rank + distance, rank - distance
        yield (
            *((send(upper, 0),) if upper < size else ()),
            *((reduce(lower, 0),) if lower >= 0 else ()),
        )
        distance *= 2


@algorithm("scan", blocks=1)
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Exchange group totals with peers at distance 1, 2, 4, ... (as in MPICH and Open MPI).

    Each rank keeps the total of its group beside its prefix; only totals from the
    left enter the prefix.

    Rounds ceil(log2 p); bytes sent m ceil(log2 p), reduced up to 2m ceil(log2 p).

    >>> from mpicoll.algorithms import find
    >>> find("scan", "recursive_doubling").show(1, 4)
    copy(total[0], 0)
    send(0, total[0]) recv(0, got[0]) fold_left(total[0], got[0])
    fold_left(0, got[0])
    send(3, total[0]) recv(3, got[0]) fold_right(total[0], got[0])
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


@algorithm("scan", blocks=1)
def sweep(rank: int, size: int) -> Schedule:
    """Sweep up to totals of 2, 4, 8, ... ranks, then down to the prefixes between (Blelloch 1990).

    The last rank of each group folds in the total of its left half; then it sends its prefix
    to the middle of the next group. No rank folds more than in hillis_steele, most far less.

    Rounds floor(log2 p)+floor(log2(p/3))+1; bytes sent and reduced up to m floor(log2 p),
    by all ranks together less than 2pm.

    >>> from mpicoll.algorithms import find
    >>> find("scan", "sweep").show(1, 4)
    reduce_left(0, 0)
    send(3, 0)
    send(2, 0)
    """
    group = (rank + 1) & -(rank + 1)
    distances = [1 << level for level in range(group.bit_length() - 1)]
    for distance in distances:
        yield reduce(rank - distance, 0)
    if rank + group < size:
        yield send(rank + group, 0)
    if rank >= group:
        yield reduce(rank - group, 0)
    for distance in reversed(distances):
        if rank + distance < size:
            yield send(rank + distance, 0)


@algorithm("scan", blocks="segments")
def binary_tree(rank: int, size: int, segments: int = 8) -> Schedule:
    """Fold up and down a binary tree in rank order, in segments (Sanders, Speck, Träff 2009).

    A rank stands between its left and its right subtree. On the way up it sends their total
    with its own value between; on the way down it gets the prefix before its subtree, hands it
    to the left, and its own prefix to the right. Segments follow each other at once.

    Rounds up to 2 floor(log2 p)+n for n segments, with 3 ports; bytes sent and reduced up to 3m.

    >>> from mpicoll.algorithms import find
    >>> find("scan", "binary_tree(segments=1)").show(1, 4)
    recv(0, before[0]) fold_left(0, before[0]) recv(2, total[0]) fold_left(total[0], 0)
    send(3, total[0])
    send(2, 0)
    """
    return one_tree(rank, size, segments, inclusive=True)


@algorithm("scan", blocks="segments")
def two_tree(rank: int, size: int, segments: int = 8) -> Schedule:
    """Scan half of the segments by another tree, with other leaves (Sanders et al. 2009).

    In a binary tree the inner ranks do most of the work. In the same tree shifted by one rank
    they are the leaves: all ranks work equally much.

    Rounds up to 2 ceil(log2 p)+n/2 for an even number n of segments, with 4 ports; bytes sent and
    reduced up to 2m, 3m for a single segment.

    >>> from mpicoll.algorithms import find
    >>> find("scan", "two_tree(segments=2)").show(0, 4)
    send(1, 0)
    send(2, 1)
    """
    return two_trees(rank, size, segments, inclusive=True)


def one_tree(rank: int, size: int, segments: int, *, inclusive: bool) -> Schedule:
    """Scan by one tree."""
    return _by_time(_moves(_seat(rank, size, 1), range(segments), inclusive))


def two_trees(rank: int, size: int, segments: int, *, inclusive: bool) -> Schedule:
    """Scan by two trees that share the segments."""
    even_moves = _moves(_seat(rank, size, 1), range(0, segments, 2), inclusive)
    odd_moves = _moves(_seat(rank, size, 0), range(1, segments, 2), inclusive)
    return _by_time([*even_moves, *odd_moves])


def _by_time(moves: Iterable[Move]) -> Schedule:
    """Make one round of all that happens at one time."""
    times = defaultdict(list)
    for time, op in moves:
        times[time].append(op)
    for time in sorted(times):
        yield tuple(times[time])


class _Peer(NamedTuple):
    """A rank, and how high it is in the tree."""

    rank: int
    level: int


class _Seat(NamedTuple):
    """A rank's place in a binary tree in rank order.

    Attributes:
        level, top: how high it is, and the highest rank.
        above: the rank above, where there is one.
        follows, precedes: whether there are ranks before, and after, its subtree.
    """

    level: int
    top: int
    above: int
    left_child: _Peer | None
    right_child: _Peer | None
    follows: bool
    precedes: bool


def _seat(rank: int, size: int, first: int) -> _Seat:
    """Return a rank's place where rank 0 is number `first` of `in_order`: 1, or 0, above all."""
    from mpicoll.algorithms.trees import in_order

    number, last = rank + first, size - 1 + first
    parents = in_order(last + 1)

    def level(number: int) -> int:
        return (number & -number or 1 << last.bit_length()).bit_length() - 1

    below = [_Peer(node - first, level(node)) for node, up in enumerate(parents) if up == number]
    reach = 1 << level(number)
    return _Seat(
        level(number),
        last.bit_length() - first,
        (parents[number] or 0) - first,
        next((child for child in below if child.rank < rank), None),
        next((child for child in below if child.rank > rank), None),
        number - reach >= first,
        number + reach <= last,
    )


def _moves(at: _Seat, blocks: Iterable[Block], inclusive: bool) -> Iterator[Move]:
    """Yield a rank's moves with their times, equal on both sides of a message.

    Totals climb a level at a time and prefixes descend as fast; blocks follow each other.
    """
    for start, block in enumerate(blocks):
        yield from _climb(at, start, block, inclusive)
        yield from _descend(at, start + 2 * at.top, block, inclusive)
        if not inclusive:
            yield from _exclude(at, start + 2 * at.top, block)


def _climb(at: _Seat, start: int, block: Block, inclusive: bool) -> Iterator[Move]:
    """Get the total of the left subtree, fold it in, and send that of all three parts."""
    lower, total = Temp("before", block), Temp("total", block)
    if at.left_child:
        yield start + at.left_child.level, recv(at.left_child.rank, lower)
    if at.left_child and (inclusive or at.right_child or at.precedes):
        yield start + at.left_child.level, fold(block, lower)
    if at.left_child and at.right_child and at.precedes:
        yield start + at.right_child.level, recv(at.right_child.rank, total)
        yield start + at.left_child.level, fold(total, block)
    if at.precedes:
        yield start + at.level, send(at.above, total if at.right_child else block)


def _descend(at: _Seat, end: int, block: Block, inclusive: bool) -> Iterator[Move]:
    """Get the prefix before the subtree, hand it to the left, and one's own to the right."""
    prefix = Temp("prefix", block)
    if at.follows:
        yield end - at.level, recv(at.above, prefix)
    if at.follows and (inclusive or at.right_child):
        yield end - at.level, fold(block, prefix)
    if at.follows and at.left_child:
        yield end - at.left_child.level, send(at.left_child.rank, prefix)
    if at.right_child:
        yield end - at.right_child.level, send(at.right_child.rank, block)


def _exclude(at: _Seat, end: int, block: Block) -> Iterator[Move]:
    """End with the prefix of all ranks before, once no rank needs the inclusive one."""
    lower, prefix = Temp("before", block), Temp("prefix", block)
    if at.follows and at.left_child:
        yield end - at.level, fold(lower, prefix)
    if at.follows or at.left_child:
        yield end - (at.right_child or at).level, copy(block, lower if at.left_child else prefix)
