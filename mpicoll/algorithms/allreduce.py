"""Allreduce: every rank ends with the fold of all ranks' vectors."""

from __future__ import annotations

from mpicoll.algorithms import Nodes, algorithm, allgather, find, reduce_scatter
from mpicoll.algorithms.broadcast import naive as broadcast_naive
from mpicoll.algorithms.reduce import naive as reduce_naive
from mpicoll.algorithms.shapes import (
    core_after_swap,
    doubling,
    far_first,
    inside,
    lane,
    leaders,
    mirrored,
    node_of,
    split,
    swapped,
    windows,
)
from mpicoll.schedule import (
    Block,
    Schedule,
    Temp,
    fold,
    folded,
    on,
    recv,
    reduce,
    reverse,
    send,
    then,
)


@algorithm("allreduce")
def ring(rank: int, size: int) -> Schedule:
    """Reduce-scatter around the ring, then allgather around it (Patarasuk and Yuan 2009).

    Each block travels once around the ring gathering contributions, and once more to
    hand the result out. Every link carries the same load in every round, which makes
    the volume optimal.

    Rounds 2(p-1); bytes sent 2(p-1)/p m; reduced (p-1)/p m. Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> for round in find("allreduce", "ring").rounds(0, 4):
    ...     print(*round)
    send(1, 0) reduce_left(3, 3)
    send(1, 3) reduce_left(3, 2)
    send(1, 2) reduce_left(3, 1)
    send(1, 1) recv(3, 0)
    send(1, 0) recv(3, 3)
    send(1, 3) recv(3, 2)
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield send(right, (rank - step) % size), reduce(left, (rank - step - 1) % size)
    for step in range(size - 1):
        yield send(right, (rank + 1 - step) % size), recv(left, (rank - step) % size)


@algorithm("allreduce", blocks=1)
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Exchange and fold whole vectors with peers at distance 1, 2, 4, ... (Thakur et al. 2005).

    After round i each rank holds the fold of its group of 2^(i+1) neighbours. Fewest
    rounds possible, at the price of the whole vector in each.

    Rounds log2 p (+2 where p is no power of two); bytes sent and reduced m log2 p (+m).

    >>> from mpicoll.algorithms import find
    >>> for round in find("allreduce", "recursive_doubling").rounds(0, 4):
    ...     print(*round)
    send(1, 0) reduce_right(1, 0)
    send(2, 0) reduce_right(2, 0)
    """
    return folded(rank, size, lambda me, power: doubling(me, power, 0), 0)


@algorithm("allreduce", blocks=1)
def naive(rank: int, size: int) -> Schedule:
    """Reduce to rank 0, one rank after the other, then send the result to each.

    Two loops around rank 0, which does all of the work.

    Rounds 2(p-1); bytes sent and reduced (p-1) m by rank 0.

    >>> from mpicoll.algorithms import find
    >>> for round in find("allreduce", "naive").rounds(0, 4):
    ...     print(*round)
    reduce_right(1, 0)
    reduce_right(2, 0)
    reduce_right(3, 0)
    send(3, 0)
    send(2, 0)
    send(1, 0)
    """
    return then(reduce_naive(rank, size, 0), broadcast_naive(rank, size, 0))


@algorithm("allreduce", blocks=1)
def ring_unchunked(rank: int, size: int) -> Schedule:
    """Pass every rank's whole vector once around the ring, everyone folding it in.

    What the ring allreduce is without its blocks: the same rounds as a
    reduce-scatter, p times its volume.

    Rounds p-1; bytes sent and reduced (p-1) m. Commutative operators only.
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    leaving: Block = 0
    for step in range(size - 1):
        arriving = Temp(("even", "odd")[step % 2], 0)
        yield send(right, leaving), recv(left, arriving), fold(0, arriving)
        leaving = arriving


@algorithm("allreduce", blocks=windows)
def rabenseifner(rank: int, size: int) -> Schedule:
    """Reduce-scatter by the butterfly, then allgather back the same way (Rabenseifner 2004).

    Surplus ranks first share the work of a neighbour, half each, and get the result at
    the end. Near ranks fold first, so rank order is kept.

    Rounds 2 log2 p (+3 where p is no power of two); bytes sent 2(p-1)/p m (+3m/2),
    reduced (p-1)/p m (+m/2).

    >>> from mpicoll.algorithms import find
    >>> for round in find("allreduce", "rabenseifner").rounds(0, 4):
    ...     print(*round)
    reduce_right(1, 0, 1) send(1, 2, 3)
    reduce_right(2, 0) send(2, 1)
    send(2, 0) recv(2, 1)
    send(1, 0, 1) recv(1, 2, 3)
    """
    core = core_after_swap(size)
    power = len(core)
    yield from swapped(rank, core, size)
    if rank in core:
        me = core.index(rank)

        def spread() -> Schedule:
            return far_first(me, power, mirrored(power))

        yield from on(core, then(reverse(spread(), me, folds=True), spread()))
    if rank < 2 * (size - power):
        yield (send if rank in core else recv)(rank ^ 1, *range(power))


@algorithm("allreduce", blocks=1)
def one_shot(rank: int, size: int) -> Schedule:
    """Send the vector to everyone at once and fold all that arrives in rank order.

    The latency of one message, for the volume of p-1. Every rank folds in the same
    order and association, so all get the same bits.

    Rounds 1 with p-1 ports; bytes sent and reduced (p-1) m.
    """
    vectors = {peer: Temp(f"from{peer}", 0) for peer in range(size) if peer != rank}
    earlier, later = list(vectors.values())[:rank], list(vectors.values())[rank:]
    yield (
        *(send(peer, 0) for peer in vectors),
        *(recv(peer, vector) for peer, vector in vectors.items()),
        *(fold(earlier[0], vector, "right") for vector in earlier[1:]),
        *((fold(0, earlier[0], "left"),) if earlier else ()),
        *(fold(0, vector, "right") for vector in later),
    )


@algorithm("allreduce")
def two_shot(rank: int, size: int) -> Schedule:
    """Reduce-scatter in one round, then allgather in one round.

    The least volume and the latency of two messages, if a rank can send p-1 at once.

    Rounds 2 with p-1 ports; bytes sent 2(p-1)/p m; reduced (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> for round in find("allreduce", "two_shot").rounds(0, 4):
    ...     print(*round)
    send(1, 1) send(2, 2) send(3, 3) reduce_right(1, 0) reduce_right(2, 0) reduce_right(3, 0)
    send(1, 0) send(2, 0) send(3, 0) recv(1, 1) recv(2, 2) recv(3, 3)
    """
    return then(reduce_scatter.direct(rank, size), allgather.direct(rank, size))


def _over(size: int, over: str) -> int:
    find("reduce", over)
    return find("broadcast", over).blocks(size)


@algorithm(
    "allreduce",
    name="reduce+broadcast",
    blocks=_over,
    aliases=(
        "tree=reduce+broadcast(over=tree)",
        "pipeline=reduce+broadcast(over=pipeline)",
    ),
)
def reduce_broadcast(rank: int, size: int, nodes: Nodes, over: str = "tree") -> Schedule:
    """Reduce to rank 0, then broadcast from it.

    `over` is any algorithm that both have: ``tree``, ``pipeline``, ``knomial(radix=8)``,
    ``two_level``.

    Rounds and bytes sent: twice those of the broadcast at most.

    >>> from mpicoll.algorithms import find
    >>> for round in find("allreduce", "reduce+broadcast").rounds(0, 4):
    ...     print(*round)
    reduce_right(1, 0)
    reduce_right(2, 0)
    send(2, 0)
    send(1, 0)
    """
    return then(
        find("reduce", over).rounds(rank, size, 0, nodes),
        find("broadcast", over).rounds(rank, size, 0, nodes),
    )


@algorithm("allreduce")
def two_level(
    rank: int,
    size: int,
    nodes: Nodes,
    local: str = "binomial",
    across: str = "recursive_doubling",
) -> Schedule:
    """Reduce inside every node, allreduce across one rank of each, broadcast inside every node.

    The vector crosses the network as often as if each node were one rank. `local` is any
    reduce and broadcast, `across` any allreduce; ``across="ring"`` moves the least between nodes.

    Rounds, bytes sent and reduced: those of its three parts.

    >>> from mpicoll.algorithms import find
    >>> for round in find("allreduce", "two_level").rounds(0, 4):
    ...     print(*round)
    reduce_right(1, 0, 1, 2, 3)
    reduce_right(2, 0, 1, 2, 3)
    send(2, 0, 1, 2, 3)
    send(1, 0, 1, 2, 3)
    """
    heads, node = leaders(nodes), node_of(rank, nodes)
    whole = split(range(size))
    return then(
        inside(node, rank, "reduce", local, node[0], whole),
        inside(heads, rank, "allreduce", across, heads[0], whole),
        inside(node, rank, "broadcast", local, node[0], whole),
    )


@algorithm("allreduce")
def lanes(
    rank: int,
    size: int,
    nodes: Nodes,
    local: str = "direct",
    across: str = "ring",
) -> Schedule:
    """Reduce-scatter inside every node, allreduce along each lane, allgather inside every node.

    A lane is one rank of each node; all of them share the nodes' links, so that one's folds
    hide behind another's messages (Träff and Hunold 2020). `local` is any reduce_scatter and
    allgather, `across` any allreduce. Nodes must have as many ranks each.

    Rounds: those of its three parts. On n nodes 2m(n-1)/n bytes cross each node's link.

    >>> from mpicoll.algorithms import find
    >>> for round in find("allreduce", "lanes").rounds(0, 4, nodes=((0, 1), (2, 3))):
    ...     print(*round)
    send(1, 2, 3) reduce_right(1, 0, 1)
    send(2, 0) reduce_left(2, 1)
    send(2, 1) recv(2, 0)
    send(1, 0, 1) recv(1, 2, 3)
    """
    number, place, group = lane(rank, nodes)
    node, whole = nodes[number], split(range(size))
    mine = split(range(place * len(nodes), (place + 1) * len(nodes)))
    return then(
        inside(node, rank, "reduce_scatter", local, node[0], whole),
        inside(group, rank, "allreduce", across, group[0], mine),
        inside(node, rank, "allgather", local, node[0], whole),
    )


@algorithm("allreduce", blocks=lambda size, segments: size * segments)
def lane_ring(rank: int, size: int, nodes: Nodes, segments: int = 4) -> Schedule:
    """Reduce-scatter, then allgather by rings along lanes, hiding what happens inside nodes.

    A lane is one rank of each node; see `allgather.lane_ring`. Only the first fold and the last
    exchange inside a node are not hidden behind messages between nodes: a segment of a row each.
    Nodes must have as many ranks each.

    Rounds 2s(n-1)+2 on n nodes for s segments; 2m(n-1)/n bytes cross each node's link.

    >>> from mpicoll.algorithms import find
    >>> ring = find("allreduce", "lane_ring(segments=1)")
    >>> for round in ring.rounds(0, 4, nodes=((0, 1), (2, 3))):
    ...     print(*round)
    reduce_right(1, 2) send(1, 3)
    reduce_right(1, 0) send(1, 1) reduce_right(2, 0) send(2, 2)
    send(1, 0) recv(1, 1) send(2, 0) recv(2, 2)
    send(1, 2) recv(1, 3)
    """
    return then(
        reduce_scatter.lane_ring(rank, size, nodes, segments),
        allgather.lane_ring(rank, size, nodes, segments),
    )
