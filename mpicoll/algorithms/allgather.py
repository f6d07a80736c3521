"""Allgather: every rank gets every rank's row; each reads backwards as a reduce_scatter."""

from __future__ import annotations

from mpicoll.algorithms import Nodes, algorithm, even, gather, power_of_two
from mpicoll.algorithms.shapes import in_lanes, inside, lane, near_first, tree
from mpicoll.schedule import Schedule, recv, send, then


@algorithm("allgather", aliases=("linear",))
def naive(rank: int, size: int) -> Schedule:
    """Send one's own row to every rank, one after the other.

    In round i everyone sends to the i-th rank on its right, so nobody is crowded.

    Rounds p-1; bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> for round in find("allgather", "naive").rounds(0, 4):
    ...     print(*round)
    send(1, 0) recv(3, 3)
    send(2, 0) recv(2, 2)
    send(3, 0) recv(1, 1)
    """
    for step in range(1, size):
        right, left = (rank + step) % size, (rank - step) % size
        yield send(right, rank), recv(left, left)


@algorithm("allgather")
def direct(rank: int, size: int) -> Schedule:
    """Send one's own row to every rank at once.

    All p-1 messages of a rank are in flight together: one latency, many ports.

    Rounds 1 with p-1 ports; bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> for round in find("allgather", "direct").rounds(0, 4):
    ...     print(*round)
    send(1, 0) send(2, 0) send(3, 0) recv(1, 1) recv(2, 2) recv(3, 3)
    """
    peers = [(rank + step) % size for step in range(1, size)]
    yield (*(send(peer, rank) for peer in peers), *(recv(peer, peer) for peer in peers))


@algorithm("allgather", aliases=("pipeline",))
def ring(rank: int, size: int) -> Schedule:
    """Pass every row once around the ring (Thakur et al. 2005).

    Each rank forwards what it received in the round before; every message goes to
    a neighbour and every link carries the same load.

    Rounds p-1; bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> for round in find("allgather", "ring").rounds(0, 4):
    ...     print(*round)
    send(1, 0) recv(3, 3)
    send(1, 3) recv(3, 2)
    send(1, 2) recv(3, 1)
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield send(right, (rank - step) % size), recv(left, (rank - step - 1) % size)


@algorithm("allgather")
def bruck(rank: int, size: int, radix: int = 2) -> Schedule:
    """Fetch as many rows from the right as one has, at distance 1, k, k^2, ... (Bruck et al. 1997).

    Before each phase a rank holds the rows of itself and its right neighbours; one
    phase multiplies their number by `radix`, the last one fetches the rest.

    Rounds ceil(log_k p) with k-1 ports; bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> for round in find("allgather", "bruck").rounds(0, 4):
    ...     print(*round)
    send(3, 0) recv(1, 1)
    send(2, 0, 1) recv(2, 2, 3)
    """
    distance = 1
    while distance < size:
        hops = range(distance, min(radix * distance, size), distance)
        runs = [(hop, min(distance, size - hop)) for hop in hops]
        yield (
            *(send((rank - hop) % size, *_run(rank, n, size)) for hop, n in runs),
            *(recv((rank + hop) % size, *_run(rank + hop, n, size)) for hop, n in runs),
        )
        distance *= radix


def _run(first: int, length: int, size: int) -> list[int]:
    return [index % size for index in range(first, first + length)]


@algorithm("allgather", needs=power_of_two)
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Exchange all one has with peers at distance 1, 2, 4, ... (Thakur et al. 2005).

    The rows a rank holds double in each round and stay contiguous. Powers of two only.

    Rounds log2 p; bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> for round in find("allgather", "recursive_doubling").rounds(0, 4):
    ...     print(*round)
    send(1, 0) recv(1, 1)
    send(2, 0, 1) recv(2, 2, 3)
    """
    return near_first(rank, size, lambda index: (index,))


@algorithm("allgather", needs=even)
def neighbor_exchange(rank: int, size: int) -> Schedule:
    """Exchange pairs of rows with the left and right neighbour in turn (Chen et al. 2005).

    After a first swap of single rows each round passes on the pair that the last one
    brought: half as many rounds as the ring. Even numbers of ranks only.

    Rounds p/2; bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> for round in find("allgather", "neighbor_exchange").rounds(0, 4):
    ...     print(*round)
    send(1, 0) recv(1, 1)
    send(3, 0, 1) recv(3, 2, 3)
    """
    if size == 1:
        return
    outward = 1 if rank % 2 == 0 else -1
    peers = (rank + outward) % size, (rank - outward) % size
    yield send(peers[0], rank), recv(peers[0], peers[0])
    pair = rank // 2 * 2
    for step in range(1, size // 2):
        last, pair = pair, (pair + (step if step % 2 == 0 else -step) * 2 * outward) % size
        peer = peers[step % 2]
        yield send(peer, last, last + 1), recv(peer, pair, pair + 1)


@algorithm("allgather", name="gather+broadcast", aliases=("tree",))
def gather_broadcast(rank: int, size: int) -> Schedule:
    """Gather all rows at rank 0 and broadcast them, both by the binomial tree.

    Two collectives that everybody has; rank 0 sends the whole result log2 p times.

    Rounds 2 ceil(log2 p); bytes sent m ceil(log2 p) by rank 0.

    >>> from mpicoll.algorithms import find
    >>> for round in find("allgather", "gather+broadcast").rounds(0, 4):
    ...     print(*round)
    recv(1, 1)
    recv(2, 2, 3)
    send(2, 0, 1, 2, 3)
    send(1, 0, 1, 2, 3)
    """
    return then(
        gather.binomial(rank, size, 0), tree(rank, size, 2, lambda start, stop: range(size))
    )


@algorithm("allgather")
def lanes(
    rank: int, size: int, nodes: Nodes, local: str = "direct", across: str = "ring"
) -> Schedule:
    """Allgather along each lane, then inside every node.

    A lane is one rank of each node (Träff and Hunold 2020). Both algorithms are any allgather.
    Nodes must have as many ranks each.

    Rounds: those of its two parts. On n nodes m(n-1)/n bytes cross each node's link, each of
    them once.

    >>> from mpicoll.algorithms import find
    >>> for round in find("allgather", "lanes").rounds(0, 4, nodes=((0, 1), (2, 3))):
    ...     print(*round)
    send(2, 0) recv(2, 2)
    send(1, 0, 2) recv(1, 1, 3)
    """
    number, _, group = lane(rank, nodes)
    node = nodes[number]
    return then(
        inside(group, rank, "allgather", across, group[0], lambda block, _: [group[block]]),
        inside(node, rank, "allgather", local, node[0], in_lanes(nodes)),
    )


@algorithm("allgather", blocks=lambda size, segments: size * segments)
def lane_ring(rank: int, size: int, nodes: Nodes, segments: int = 4) -> Schedule:
    """Pass rows in segments along the ring of each lane; share each in its node once it came.

    A lane is one rank of each node. As in `lanes`, each row crosses each node's link once, but
    while a segment is on its way the ranks of a node already exchange the last one, so that only
    the last exchange is not hidden (a multi-lane ring, after Träff and Hunold 2020, and Cho et
    al. 2019). Nodes must have as many ranks each.

    Rounds s(n-1)+1 on n nodes for s segments; m(n-1)/n bytes cross each node's link.

    >>> from mpicoll.algorithms import find
    >>> ring = find("allgather", "lane_ring(segments=1)")
    >>> for round in ring.rounds(0, 4, nodes=((0, 1), (2, 3))):
    ...     print(*round)
    send(1, 0) recv(1, 1) send(2, 0) recv(2, 2)
    send(1, 2) recv(1, 3)
    """
    number, place, group = lane(rank, nodes)
    right, left = group[(number + 1) % len(nodes)], group[number - 1]
    mates = [(member, mate) for member, mate in enumerate(nodes[number]) if mate != rank]
    messages = (len(nodes) - 1) * segments

    def part(index: int, member: int) -> int:
        """Return the block of a lane that is the index-th to be sent: one's own row comes first."""
        step, segment = divmod(index, segments)
        return nodes[number - step][member] * segments + segment

    for now in range(max(messages + 1, segments)):
        known = [now] if now < segments else []
        known += [now + segments - 1] if 0 < now <= messages else []
        ops = [
            op
            for index in known
            for member, mate in mates
            for op in (send(mate, part(index, place)), recv(mate, part(index, member)))
        ]
        if now < messages:
            ops += send(right, part(now, place)), recv(left, part(now + segments, place))
        yield tuple(ops)
