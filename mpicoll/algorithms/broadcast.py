"""Broadcast: the root's vector reaches every rank; reduce is the same read backwards."""

from __future__ import annotations

from collections.abc import Iterable

from mpicoll.algorithms.registry import algorithm, even, power_of_two
from mpicoll.algorithms.shapes import (
    flat,
    passed_down,
    relayed,
    tree,
)
from mpicoll.notation.schedule import Schedule, around, merge_rounds, recv, send, then


@algorithm("broadcast", blocks=1)
def naive(rank: int, size: int, root: int) -> Schedule:
    """Send the vector from the root to every rank, one after the other.

    What a first loop of sends does, and the yardstick of everything else.

    Rounds p-1; bytes sent (p-1) m by the root.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "naive").show(0, 4)
    send(3, 0)
    send(2, 0)
    send(1, 0)
    """
    return flat(rank, size, root, lambda peer: (0,))


@algorithm("broadcast", blocks=1)
def one_shot(rank: int, size: int, root: int) -> Schedule:
    """Send the vector from the root to everyone at once.

    Where ranks share memory the root writes it once, and all read it side by side.

    Rounds 1 with p-1 ports; bytes sent (p-1) m.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "one_shot").show(0, 4)
    send(1, 0) send(2, 0) send(3, 0)
    """
    if rank == root:
        yield tuple(send(peer, 0) for peer in range(size) if peer != root)
    else:
        yield recv(root, 0)


@algorithm("broadcast", blocks=1, aliases=("tree",))
def binomial(rank: int, size: int, root: int) -> Schedule:
    """Double the number of ranks that have the vector in every round (Thakur et al. 2005).

    Rank i sends to i + p/2, then both do the same in their halves. No schedule
    has fewer rounds, but the root sends the whole vector in each.

    Rounds ceil(log2 p); bytes sent m ceil(log2 p) by the root.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "binomial").show(0, 4)
    send(2, 0)
    send(1, 0)
    """
    return knomial(rank, size, root, radix=2)


@algorithm("broadcast", blocks=1)
def knomial(rank: int, size: int, root: int, radix: int = 4) -> Schedule:
    """Send to radix-1 children at a time down the k-nomial tree (Wilkins et al. 2023).

    The number of ranks that have the vector grows by `radix` in a round, whose radix-1
    messages are in flight together: fewer rounds for more ports.

    Rounds ceil(log_k p) with k-1 ports; bytes sent up to (k-1) m ceil(log_k p) by the root.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "knomial").show(0, 4)
    send(1, 0) send(2, 0) send(3, 0)
    """
    me = (rank - root) % size
    return around(root, size, tree(me, size, radix, lambda start, stop: (0,)))


@algorithm("broadcast", blocks="segments", aliases=("pipeline",))
def chain(rank: int, size: int, root: int, segments: int = 8) -> Schedule:
    """Pass the vector along the chain of ranks in segments.

    A rank receives one segment while it forwards the one before, so all links
    work at once and the length of the chain is paid in small segments only.

    Rounds p-2+n for n segments; bytes sent m.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "chain(segments=3)").show(1, 4)
    recv(0, 0)
    recv(0, 1) send(2, 0)
    recv(0, 2) send(2, 1)
    send(2, 2)
    """
    me = (rank - root) % size
    return around(root, size, relayed(me, size, range(segments), range(segments)))


@algorithm("broadcast", blocks="segments")
def kary(rank: int, size: int, root: int, radix: int = 2, segments: int = 8) -> Schedule:
    """Pass the vector down the complete k-ary tree in segments (binary_tree of Open MPI).

    Every rank forwards a segment to all of its children at once while the next one arrives. A
    flatter chain: fewer rounds, `radix` times the volume.

    Rounds about log_k p+n-1 for n segments with k ports; bytes sent k m.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "kary(segments=2)").show(1, 4)
    recv(0, 0)
    recv(0, 1) send(3, 0)
    send(3, 1)
    """
    me = (rank - root) % size
    children = range(radix * me + 1, min(radix * (me + 1) + 1, size))
    parent = (me - 1) // radix if me else None
    return around(root, size, passed_down(parent, children, range(segments)))


@algorithm("broadcast", blocks="segments")
def chains(rank: int, size: int, root: int, count: int = 4, segments: int = 8) -> Schedule:
    """Pass the vector along `count` chains that start at the root, in segments (as in Open MPI).

    Rounds about (p-1)/k+n-1 for k chains and n segments with k ports; bytes sent k m by the root.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "chains(count=2,segments=2)").show(0, 4)
    send(1, 0) send(2, 0)
    send(1, 1) send(2, 1)
    """
    me = (rank - root) % size
    heads = sorted({1 + index * (size - 1) // count for index in range(count)} - {size})
    follows = [me + 1] if me + 1 < size and me + 1 not in heads else []
    parent = None if me == 0 else 0 if me in heads else me - 1
    return around(root, size, passed_down(parent, heads if me == 0 else follows, range(segments)))


@algorithm("broadcast", blocks=1, aliases=("postal",))
def fibonacci(rank: int, size: int, root: int, latency: int = 2) -> Schedule:
    """Send down the tree that is fastest if a message arrives `latency` sends after its start.

    Where one can send again before the last message has arrived, the best tree is narrower than
    the binomial one; the numbers of ranks it can reach are Fibonacci's for a latency of 2 (Bar-Noy
    and Kipnis 1992). A latency of 1 gives a binomial tree.

    Rounds about log p to the base of the golden ratio, sends of one rank overlapping; bytes sent
    m by the root for each of its children.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "fibonacci").show(0, 4)
    send(3, 0)
    send(2, 0)
    send(1, 0)
    """
    from mpicoll.algorithms import trees

    return _along(rank, size, root, trees.postal(size, latency))


def _along(rank: int, size: int, root: int, edges: Iterable[tuple[int, int]]) -> Schedule:
    """Pass the vector along the edges of a tree below rank 0, from parent to child, in order."""
    me = (rank - root) % size
    local_edges = (edge for edge in edges if me in edge)
    ops = (send(child, 0) if me == parent else recv(parent, 0) for parent, child in local_edges)
    return around(root, size, ops)


@algorithm("broadcast", blocks=lambda size, segments: 2 * segments)
def split_binary(rank: int, size: int, root: int, segments: int = 4) -> Schedule:
    """Pass each half of the vector down a binary tree over half of the ranks, then swap halves.

    Neighbours are in different trees and give each other what they lack. Only the root sends to
    both (Open MPI's split binary tree).

    Rounds about log2 p+n for n segments of a half with 2 ports; bytes sent 3m/2.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "split_binary(segments=1)").show(1, 5)
    recv(0, 0)
    send(3, 0)
    send(2, 0) recv(2, 1)
    """
    me = (rank - root) % size
    halves = range(segments), range(segments, 2 * segments)

    def descend(which: int) -> Schedule:
        """Yield a rank's rounds in the heap of ranks 1, 3, 5, ... or of 2, 4, 6, ..."""
        group = range(1 + which, size, 2)
        if me == 0:
            return passed_down(None, group[:1], halves[which])
        if me not in group:
            return iter(())
        at = group.index(me)
        parent = group[(at - 1) // 2] if at else 0
        return passed_down(parent, group[2 * at + 1 : 2 * at + 3], halves[which])

    def swap() -> Schedule:
        """Yield the exchange with one's neighbour; to one without, the root gives its half."""
        mate = me + 1 if me % 2 else me - 1
        if me == 0 and size % 2 == 0:
            yield send(size - 1, *halves[1])
        elif mate == size:
            yield recv(0, *halves[1])
        elif me:
            yield send(mate, *halves[1 - me % 2]), recv(mate, *halves[me % 2])

    return around(root, size, then(merge_rounds(descend(0), descend(1)), swap()))


@algorithm("broadcast", blocks="segments", aliases=("circ_graph",))
def pipelined_circulant(rank: int, size: int, root: int, segments: int = 8) -> Schedule:
    """Send a new segment over the circulant graph in every round (Träff 2023; MPICH's circ_graph).

    In every phase of ceil(log2 p) rounds a rank gets as many segments, from a different neighbour
    each. No schedule of one message at a time has fewer rounds, for any number of ranks and
    segments.

    Rounds r = n-1+ceil(log2 p) for n segments; bytes sent m, r/n m by the root.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "pipelined_circulant(segments=3)").show(1, 5)
    recv(0, 2)
    recv(4, 1)
    send(4, 2) recv(3, 0)
    """
    from mpicoll.algorithms import circulant_graph

    me = (rank - root) % size
    ops = (
        (
            *((send(turn.to, turn.leaving),) if turn.leaving is not None else ()),
            *((recv(turn.source, turn.arriving),) if turn.arriving is not None else ()),
        )
        for turn in circulant_graph.turns(me, size, segments)
    )
    return around(root, size, ops)


@algorithm("broadcast", blocks="segments")
def two_tree(rank: int, size: int, root: int, segments: int = 8) -> Schedule:
    """Pass half of the segments down each of two binary trees below the root (Sanders et al. 2009).

    Ranks inside one tree are leaves of the other, so each forwards about as much as it gets.

    Rounds about n+2 log2 p for n segments; bytes sent m.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "two_tree(segments=2)").show(0, 4)
    send(3, 1)
    send(2, 0)
    """
    from mpicoll.algorithms import trees

    me = (rank - root) % size
    return around(root, size, trees.down(me, trees.pair_below(size), segments))


@algorithm("broadcast", needs=even, blocks=1)
def bine(rank: int, size: int, root: int) -> Schedule:
    """Double the informed ranks at distance ..., 11, 5, 3, 1, 1 in turn (De Sensi et al. 2025).

    As many rounds as the binomial tree, a third less distance. Even numbers of ranks only.

    Rounds ceil(log2 p); bytes sent up to m ceil(log2 p) by the root.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "bine").show(0, 8)
    send(3, 0)
    send(7, 0)
    send(1, 0)
    """
    from mpicoll.algorithms import bine_trees

    return _along(rank, size, root, (edge for edges in bine_trees.tree(size) for edge in edges))


@algorithm("broadcast", needs=even)
def scatter_bine(rank: int, size: int, root: int) -> Schedule:
    """Scatter down the Bine tree, then allgather by Swing (De Sensi et al. 2025).

    Even numbers of ranks only.

    Rounds 2 ceil(log2 p); bytes sent 2(p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "scatter_bine").show(0, 4)
    send(3, 2, 3)
    send(1, 1)
    send(3, 0) recv(3, 3)
    send(1, 0, 3) recv(1, 1, 2)
    """
    from mpicoll.algorithms import allgather, scatter

    me = (rank - root) % size
    return around(root, size, then(scatter.bine(me, size, 0), allgather.swing(me, size)))


@algorithm("broadcast")
def scatter_circulant(rank: int, size: int, root: int) -> Schedule:
    """Scatter by the binomial tree, then allgather on the circulant graph (Träff 2024).

    As few rounds as with recursive doubling, for every number of ranks.

    Rounds 2 ceil(log2 p); bytes sent 2(p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "scatter_circulant").show(0, 3)
    send(2, 2)
    send(1, 1)
    send(2, 0) recv(1, 1)
    send(1, 0) recv(2, 2)
    """
    from mpicoll.algorithms import allgather

    me = (rank - root) % size
    return around(root, size, then(tree(me, size, 2, range), allgather.circulant(me, size)))


@algorithm("broadcast", needs=power_of_two)
def scatter_recursive_doubling(rank: int, size: int, root: int) -> Schedule:
    """Scatter by the binomial tree, then allgather by recursive doubling (Thakur et al. 2005).

    The tree hands each rank a p-th of the vector; exchanges at distance 1, 2, 4, ...
    complete it everywhere (Chan et al. 2007). Powers of two of ranks only.

    Rounds 2 log2 p; bytes sent 2(p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "scatter_recursive_doubling").show(0, 4)
    send(2, 2, 3)
    send(1, 1)
    send(1, 0) recv(1, 1)
    send(2, 0, 1) recv(2, 2, 3)
    """
    from mpicoll.algorithms import allgather

    me = (rank - root) % size
    return around(
        root,
        size,
        then(tree(me, size, 2, range), allgather.recursive_doubling(me, size)),
    )


@algorithm("broadcast")
def scatter_ring(rank: int, size: int, root: int) -> Schedule:
    """Scatter by the binomial tree, then allgather around the ring (Thakur et al. 2005).

    As with recursive doubling each byte is sent about twice, but for any number of
    ranks, and to neighbours only after the scatter.

    Rounds ceil(log2 p)+p-1; bytes sent 2(p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "scatter_ring").show(0, 4)
    send(2, 2, 3)
    send(1, 1)
    send(1, 0) recv(3, 3)
    send(1, 3) recv(3, 2)
    send(1, 2) recv(3, 1)
    """
    from mpicoll.algorithms import allgather

    me = (rank - root) % size
    return around(root, size, then(tree(me, size, 2, range), allgather.ring(me, size)))
