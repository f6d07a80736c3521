"""Broadcast: the root's vector reaches every rank; reduce is the same read backwards."""

from __future__ import annotations

from mpicoll.algorithms import Nodes, algorithm, allgather, power_of_two
from mpicoll.algorithms.shapes import flat, inside, leaders, node_of, relayed, split, tree
from mpicoll.schedule import Schedule, around, recv, send, then


@algorithm("broadcast", blocks=1)
def naive(rank: int, size: int, root: int) -> Schedule:
    """Send the vector from the root to every rank, one after the other.

    What a first loop of sends does, and the yardstick of everything else.

    Rounds p-1; bytes sent (p-1) m by the root.

    >>> from mpicoll.algorithms import find
    >>> for round in find("broadcast", "naive").rounds(0, 4):
    ...     print(*round)
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
    >>> for round in find("broadcast", "one_shot").rounds(0, 4):
    ...     print(*round)
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
    >>> for round in find("broadcast", "binomial").rounds(0, 4):
    ...     print(*round)
    send(2, 0)
    send(1, 0)
    """
    return knomial(rank, size, root, radix=2)


@algorithm("broadcast", blocks=1)
def knomial(rank: int, size: int, root: int, radix: int = 4) -> Schedule:
    """Send to radix-1 children at a time down the k-nomial tree (Wilkins et al. 2023).

    The number of ranks that have the vector grows by `radix` in a round, whose radix-1
    messages are in flight together: fewer rounds for more ports.

    Rounds ceil(log_k p) with k-1 ports; bytes sent (k-1) m ceil(log_k p) by the root.

    >>> from mpicoll.algorithms import find
    >>> for round in find("broadcast", "knomial").rounds(0, 4):
    ...     print(*round)
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
    >>> for round in find("broadcast", "chain(segments=3)").rounds(1, 4):
    ...     print(*round)
    recv(0, 0)
    recv(0, 1) send(2, 0)
    recv(0, 2) send(2, 1)
    send(2, 2)
    """
    me = (rank - root) % size
    return around(root, size, relayed(me, size, range(segments), range(segments)))


@algorithm("broadcast", needs=power_of_two)
def scatter_recursive_doubling(rank: int, size: int, root: int) -> Schedule:
    """Scatter by the binomial tree, then allgather by recursive doubling (Thakur et al. 2005).

    The tree hands each rank a p-th of the vector; exchanges at distance 1, 2, 4, ...
    complete it everywhere (Chan et al. 2007). Powers of two of ranks only.

    Rounds 2 log2 p; bytes sent 2(p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> for round in find("broadcast", "scatter_recursive_doubling").rounds(0, 4):
    ...     print(*round)
    send(2, 2, 3)
    send(1, 1)
    send(1, 0) recv(1, 1)
    send(2, 0, 1) recv(2, 2, 3)
    """
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
    >>> for round in find("broadcast", "scatter_ring").rounds(0, 4):
    ...     print(*round)
    send(2, 2, 3)
    send(1, 1)
    send(1, 0) recv(3, 3)
    send(1, 3) recv(3, 2)
    send(1, 2) recv(3, 1)
    """
    me = (rank - root) % size
    return around(root, size, then(tree(me, size, 2, range), allgather.ring(me, size)))


@algorithm("broadcast")
def two_level(
    rank: int,
    size: int,
    root: int,
    nodes: Nodes,
    local: str = "binomial",
    across: str = "binomial",
) -> Schedule:
    """Broadcast across one rank of each node, then inside every node.

    The vector crosses the network once for each node. Both algorithms may be any
    broadcast that cuts it into no more blocks than there are ranks.

    Rounds and bytes sent: those of `across` on the nodes plus those of `local`.

    >>> from mpicoll.algorithms import find
    >>> for round in find("broadcast", "two_level").rounds(0, 4):
    ...     print(*round)
    send(2, 0, 1, 2, 3)
    send(1, 0, 1, 2, 3)
    """
    heads, node = leaders(nodes, root), node_of(rank, nodes)
    whole = split(range(size))
    return then(
        inside(heads, rank, "broadcast", across, root, whole),
        inside(node, rank, "broadcast", local, leaders((node,), root)[0], whole),
    )
