"""Reduce: the root ends with the fold of all ranks' vectors."""

from __future__ import annotations

from mpicoll.algorithms.registry import algorithm, even
from mpicoll.algorithms.shapes import (
    core_after_swap,
    far_first,
    gathering,
    mirrored,
    staggered,
    swapped,
    windows,
)
from mpicoll.notation.schedule import Round, Schedule, on, reduce, reverse, send, side_of, then


@algorithm("reduce", blocks=1)
def naive(rank: int, size: int, root: int) -> Schedule:
    """Fold every rank's vector at the root, one after the other, the nearest first.

    What a first loop of receives does; keeps rank order for every root.

    Rounds p-1; bytes sent m, received and reduced (p-1) m by the root.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "naive").show(0, 4)
    reduce_right(1, 0)
    reduce_right(2, 0)
    reduce_right(3, 0)
    """
    from mpicoll.algorithms import broadcast

    return reverse(broadcast.naive(rank, size, root), rank, folds=True)


@algorithm("reduce", blocks=1)
def one_shot(rank: int, size: int, root: int) -> Schedule:
    """Send every vector to the root at once; it reduces them in rank order.

    Rounds 1 with p-1 ports; bytes sent m, received and reduced (p-1) m by the root.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "one_shot").show(1, 3, root=1)
    recv(0, from0[0]) recv(2, from2[0]) fold_left(0, from0[0]) fold_right(0, from2[0])
    """
    if rank == root:
        yield gathering(root, range(size))
    else:
        yield send(root, 0)


@algorithm("reduce")
def two_shot(rank: int, size: int, root: int) -> Schedule:
    """Reduce-scatter in one round, then gather at the root.

    All ranks share the folding; the root reads what they have folded.

    Rounds p, the first with p-1 ports; bytes sent m, reduced (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "two_shot").show(0, 2)
    send(1, 1) recv(1, from1[0]) fold_right(0, from1[0])
    recv(1, 1)
    """
    from mpicoll.algorithms import gather, reduce_scatter

    return then(reduce_scatter.direct(rank, size), gather.naive(rank, size, root))


@algorithm("reduce", blocks=1, aliases=("tree",))
def binomial(rank: int, size: int, root: int) -> Schedule:
    """Halve the number of partial results in every round (Thakur et al. 2005).

    The binomial broadcast backwards. No schedule has fewer rounds.

    Rounds ceil(log2 p); bytes sent m, reduced m ceil(log2 p) by the root.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "binomial").show(0, 4)
    reduce_right(1, 0)
    reduce_right(2, 0)
    """
    from mpicoll.algorithms import broadcast

    return reverse(broadcast.binomial(rank, size, root), rank, folds=True)


@algorithm("reduce", blocks=1)
def knomial(rank: int, size: int, root: int, radix: int = 4) -> Schedule:
    """Fold the vectors of radix-1 children at a time up the k-nomial tree (Wilkins et al. 2023).

    The k-nomial broadcast backwards: fewer rounds for more ports.

    Rounds ceil(log_k p) with k-1 ports; bytes sent m, reduced up to (k-1) m ceil(log_k p).

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "knomial").show(0, 4)
    reduce_right(1, 0) reduce_right(2, 0) reduce_right(3, 0)
    """
    from mpicoll.algorithms import broadcast

    return reverse(broadcast.knomial(rank, size, root, radix), rank, folds=True)


@algorithm("reduce", blocks="segments", aliases=("pipeline",))
def chain(rank: int, size: int, root: int, segments: int = 8) -> Schedule:
    """Pass partial results along the chain of ranks to the root in segments.

    The chain broadcast backwards: one segment is folded while the one before leaves.

    Rounds p-2+n for n segments; bytes sent and reduced m.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "chain(segments=3)").show(1, 4)
    reduce_right(2, 2)
    send(0, 2) reduce_right(2, 1)
    send(0, 1) reduce_right(2, 0)
    send(0, 0)
    """
    from mpicoll.algorithms import broadcast

    return reverse(broadcast.chain(rank, size, root, segments), rank, folds=True)


@algorithm("reduce", blocks="segments")
def kary(rank: int, size: int, root: int, radix: int = 2, segments: int = 8) -> Schedule:
    """Fold up the complete k-ary tree in segments (binary tree of Open MPI).

    The broadcast backwards: a flatter chain.

    Rounds about log_k p+n-1 for n segments with k ports; bytes sent m, reduced k m.
    Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "kary(segments=2)").show(1, 4)
    reduce_right(3, 1)
    send(0, 1) reduce_right(3, 0)
    send(0, 0)
    """
    from mpicoll.algorithms import broadcast

    return reverse(broadcast.kary(rank, size, root, radix, segments), rank, folds=True)


@algorithm("reduce", blocks="segments")
def chains(rank: int, size: int, root: int, count: int = 4, segments: int = 8) -> Schedule:
    """Pass partial results along `count` chains that end at the root, in segments (as in Open MPI).

    Rounds about (p-1)/k+n-1 for k chains and n segments with k ports; bytes sent m, reduced k m
    by the root.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "chains(count=2,segments=2)").show(0, 4)
    reduce_right(1, 1) reduce_right(2, 1)
    reduce_right(1, 0) reduce_right(2, 0)
    """
    from mpicoll.algorithms import broadcast

    return reverse(broadcast.chains(rank, size, root, count, segments), rank, folds=True)


@algorithm("reduce", blocks=1, aliases=("postal",))
def fibonacci(rank: int, size: int, root: int, latency: int = 2) -> Schedule:
    """Fold up the postal tree (Bar-Noy and Kipnis 1992).

    The broadcast backwards, for messages that take `latency` times as long as sending one does.

    Rounds about log p to the base of the golden ratio; bytes sent m, reduced m by the root for
    each of its children.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "fibonacci").show(0, 4)
    reduce_right(1, 0)
    reduce_right(2, 0)
    reduce_right(3, 0)
    """
    from mpicoll.algorithms import broadcast

    return reverse(broadcast.fibonacci(rank, size, root, latency), rank, folds=True)


@algorithm("reduce", blocks=lambda size, segments: 2 * segments)
def split_binary(rank: int, size: int, root: int, segments: int = 4) -> Schedule:
    """Fold halves with a neighbour, then up a binary tree each (Open MPI's idea backwards).

    Rounds about log2 p+n for n segments of a half with 2 ports; bytes sent and reduced 3m/2.
    Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "split_binary(segments=1)").show(1, 5)
    reduce_right(2, 0) send(2, 1)
    reduce_right(3, 0)
    send(0, 0)
    """
    from mpicoll.algorithms import broadcast

    return reverse(broadcast.split_binary(rank, size, root, segments), rank, folds=True)


@algorithm("reduce", blocks="segments", aliases=("circ_graph",))
def pipelined_circulant(rank: int, size: int, root: int, segments: int = 8) -> Schedule:
    """Fold a new segment over the circulant graph in every round (Träff 2023; MPICH's circ_graph).

    The broadcast backwards. No schedule of one message at a time has fewer rounds.

    Rounds r = n-1+ceil(log2 p) for n segments; bytes sent m, reduced r/n m by the root.
    Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "pipelined_circulant(segments=3)").show(1, 5)
    reduce_right(4, 2) send(3, 0)
    send(4, 1)
    send(0, 2)
    """
    from mpicoll.algorithms import broadcast

    return reverse(broadcast.pipelined_circulant(rank, size, root, segments), rank, folds=True)


@algorithm("reduce", blocks="segments")
def two_tree(rank: int, size: int, root: int, segments: int = 8) -> Schedule:
    """Fold half of the segments up each of two binary trees below the root (Sanders et al. 2009).

    The broadcast backwards. Each rank folds in one tree and only sends in the other.

    Rounds about n+2 log2 p for n segments; bytes sent m, reduced m.
    Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "two_tree(segments=2)").show(0, 4)
    reduce_right(2, 0)
    reduce_right(3, 1)
    """
    from mpicoll.algorithms import broadcast

    return reverse(broadcast.two_tree(rank, size, root, segments), rank, folds=True)


@algorithm("reduce", blocks=1, needs=even)
def bine(rank: int, size: int, root: int) -> Schedule:
    """Halve the partial results at distance 1, 1, 3, 5, 11, ... in turn (De Sensi et al. 2025).

    The Bine tree backwards. Even numbers of ranks only.

    Rounds ceil(log2 p); bytes sent m, reduced m ceil(log2 p) by the root.
    Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "bine").show(0, 8)
    reduce_right(1, 0)
    reduce_right(7, 0)
    reduce_right(3, 0)
    """
    from mpicoll.algorithms import broadcast

    return reverse(broadcast.bine(rank, size, root), rank, folds=True)


@algorithm("reduce")
def circulant(rank: int, size: int, root: int) -> Schedule:
    """Reduce-scatter on the circulant graph, then gather by the binomial tree (Träff 2024).

    As few folds as can be, for every number of ranks.

    Rounds 2 ceil(log2 p); bytes sent up to 3m/2, reduced (p-1)/p m. Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "circulant").show(0, 3)
    reduce_right(1, 0) send(2, 2)
    reduce_right(2, 0) send(1, 1)
    recv(1, 1)
    recv(2, 2)
    """
    from mpicoll.algorithms import gather, reduce_scatter

    return then(reduce_scatter.circulant(rank, size), gather.binomial(rank, size, root))


@algorithm("reduce", blocks="segments")
def in_order_binary(rank: int, size: int, root: int, segments: int = 1) -> Schedule:
    """Fold up the binary search tree of the ranks, with the root on top (Open MPI's idea).

    The left subtree holds lower ranks and the right one higher ranks, so rank order is
    kept for every root, without a hop from the last rank to the root.

    Rounds about log2 p+n for n segments; bytes sent m, reduced 2m.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "in_order_binary").show(0, 4)
    reduce_right(2, 0)
    """
    parent, children = _in_order(rank, root, 0, size)
    folds: list[Round] = [
        tuple(reduce(child, segment, side=side_of(child, rank)) for child in children)
        for segment in range(segments)
    ]
    sends: list[Round] = [
        (send(parent, segment),) for segment in range(segments) if parent is not None
    ]
    return staggered(folds, sends)


def _in_order(
    rank: int, head: int, start: int, stop: int, parent: int | None = None
) -> tuple[int | None, list[int]]:
    """Return a rank's parent and children in the tree over start..stop-1 below `head`."""
    below = [(first, last) for first, last in ((start, head), (head + 1, stop)) if first < last]
    heads = [(first + last) // 2 for first, last in below]
    if rank == head:
        return parent, heads
    at = 0 if rank < below[0][1] else 1
    return _in_order(rank, heads[at], *below[at], head)


@algorithm("reduce", blocks=windows)
def rabenseifner(rank: int, size: int, root: int) -> Schedule:
    """Reduce-scatter by the butterfly, then gather to the root (Rabenseifner 2004).

    Surplus ranks first share the work of a neighbour, half each. Near ranks fold first,
    so rank order is kept.

    Rounds 2 log2 p (+2 where p is no power of two); bytes sent up to 3m/2 and
    reduced (p-1)/p m (+m/2 each).

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "rabenseifner").show(0, 4)
    reduce_right(1, 0, 1) send(1, 2, 3)
    reduce_right(2, 0) send(2, 1)
    recv(2, 1)
    recv(1, 2, 3)
    """
    core = core_after_swap(size, root)
    yield from swapped(rank, core, size)
    if rank in core:
        me, top, parts = core.index(rank), core.index(root), len(core)
        halving = reverse(far_first(me, parts, mirrored(parts)), me, folds=True)
        yield from on(core, then(halving, _collected(me, top, parts)))


def _collected(me: int, top: int, parts: int) -> Schedule:
    """Gather to `top`: of each exchange of the allgather, only the half towards it."""
    distance = parts
    for outgoing, incoming in far_first(me, parts, mirrored(parts)):  # type: ignore[misc]
        if me // distance == top // distance:
            yield incoming if me // (distance // 2) == top // (distance // 2) else outgoing
        distance //= 2


@algorithm("reduce")
def ring(rank: int, size: int, root: int) -> Schedule:
    """Reduce-scatter around the ring, then gather by the binomial tree.

    Every rank folds its share; the root only collects.

    Rounds p-1+ceil(log2 p); bytes sent up to 3m/2, reduced (p-1)/p m.
    Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "ring").show(0, 4)
    reduce_right(1, 2) send(3, 1)
    reduce_right(1, 3) send(3, 2)
    reduce_right(1, 0) send(3, 3)
    recv(1, 1)
    recv(2, 2, 3)
    """
    from mpicoll.algorithms import gather, reduce_scatter

    return then(reduce_scatter.ring(rank, size), gather.binomial(rank, size, root))
