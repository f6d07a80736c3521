"""Allgather: every rank gets every rank's row; each reads backwards as a reduce_scatter."""

from __future__ import annotations

from mpicoll.algorithms.registry import (
    Constraint,
    algorithm,
    any_size,
    even,
    power_of_two,
)
from mpicoll.algorithms.shapes import (
    factors,
    far_first,
    mirrored,
    near_first,
    tree,
)
from mpicoll.errors import ArgumentError
from mpicoll.notation.schedule import Schedule, recv, send, then, with_lenders


@algorithm("allgather", aliases=("linear",))
def naive(rank: int, size: int) -> Schedule:
    """Send one's own row to every rank, one after the other.

    In round i everyone sends to the i-th rank on its right, so no receiver is flooded.

    Rounds p-1; bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "naive").show(0, 4)
    send(1, 0) recv(3, 3)
    send(2, 0) recv(2, 2)
    send(3, 0) recv(1, 1)
    """
    for step in range(1, size):
        successor, predecessor = (rank + step) % size, (rank - step) % size
        yield send(successor, rank), recv(predecessor, predecessor)


@algorithm("allgather")
def direct(rank: int, size: int) -> Schedule:
    """Send one's own row to every rank at once.

    All p-1 messages of a rank are in flight together: one latency, many ports.

    Rounds 1 with p-1 ports; bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "direct").show(0, 4)
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
    >>> find("allgather", "ring").show(0, 4)
    send(1, 0) recv(3, 3)
    send(1, 3) recv(3, 2)
    send(1, 2) recv(3, 1)
    """
    successor, predecessor = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield send(successor, (rank - step) % size), recv(predecessor, (rank - step - 1) % size)


@algorithm("allgather")
def bruck(rank: int, size: int, radix: int = 2) -> Schedule:
    """Fetch as many rows from the right as one has, at distance 1, k, k^2, ... (Bruck et al. 1997).

    Before each phase a rank holds the rows of itself and its right neighbours; one
    phase multiplies their number by `radix`, the last one fetches the rest.

    Rounds ceil(log_k p) with k-1 ports; bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "bruck").show(0, 4)
    send(3, 0) recv(1, 1)
    send(2, 0, 1) recv(2, 2, 3)
    """
    from mpicoll.algorithms import circulant_graph

    steps = [1]
    while steps[-1] < size:
        steps.append(min(radix * steps[-1], size))
    return circulant_graph.widening(rank, size, steps)


@algorithm("allgather", needs=power_of_two)
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Exchange all rows held with peers at distance 1, 2, 4, ... (Thakur et al. 2005).

    The rows a rank holds double in each round and stay contiguous. Powers of two only.

    Rounds log2 p; bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "recursive_doubling").show(0, 4)
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
    >>> find("allgather", "neighbor_exchange").show(0, 4)
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


@algorithm("allgather")
def circulant(rank: int, size: int, ports: int = 1) -> Schedule:
    """Fetch rows from the right over the halved skips of a circulant graph (Träff 2024).

    As Bruck's, but what is held doubles, less one at times, instead of being cut short at the
    end: read backwards, as a reduce_scatter, it is as good for every number of ranks.

    Rounds ceil(log_(k+1) p) with k ports; bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "circulant").show(0, 5)
    send(4, 0) recv(1, 1)
    send(3, 0) recv(2, 2)
    send(2, 0, 1) recv(3, 3, 4)
    """
    from mpicoll.algorithms import circulant_graph

    return circulant_graph.widening(rank, size, circulant_graph.skips(size, ports))


@algorithm("allgather", blocks=lambda size, segments: size * segments, aliases=("circ_graph",))
def pipelined_circulant(rank: int, size: int, segments: int = 4) -> Schedule:
    """Broadcast everyone's row at once on the circulant graph, in segments (Träff 2023).

    All ranks are roots of one schedule each, which is turned: what they send to the same rank in
    a round makes one message. Made for uneven rows, where it needs no more than all rows and a few
    segments of the largest one for each round (MPICH's circ_graph).

    Rounds n-1+ceil(log2 p) for n segments; bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "pipelined_circulant(segments=1)").show(0, 4)
    send(1, 0) recv(3, 3)
    send(2, 0, 3) recv(2, 1, 2)
    """
    from mpicoll.algorithms import circulant_graph

    views = [circulant_graph.turns((rank - root) % size, size, segments) for root in range(size)]
    for turns in zip(*views, strict=True):
        to, source = ((turns[rank].to + rank) % size, (turns[rank].source + rank) % size)
        leaving = [root * segments + turn.leaving for root, turn in enumerate(turns)
                   if turn.leaving is not None]  # fmt: skip
        arriving = [root * segments + turn.arriving for root, turn in enumerate(turns)
                    if turn.arriving is not None]  # fmt: skip
        yield (
            *((send(to, *leaving),) if leaving else ()),
            *((recv(source, *arriving),) if arriving else ()),
        )


@algorithm("allgather", needs=even)
def swing(rank: int, size: int) -> Schedule:
    """Exchange with partners at distance ..., 11, 5, 3, 1, 1 (De Sensi et al. 2024 and 2025).

    Partners are nearer than at powers of two, a third less on the way; nearest where messages are
    largest. Reach sets make it serve every even number of ranks (`bine`).

    Rounds ceil(log2 p); bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "swing").show(0, 6)
    send(3, 0) recv(3, 3)
    send(5, 0, 3) recv(5, 2, 5)
    send(1, 0, 3) recv(1, 1, 4)
    """
    from mpicoll.algorithms import bine_trees

    return bine_trees.swing(rank, size)


@algorithm("allgather")
def recexch(rank: int, size: int, radix: int = 4) -> Schedule:
    """Exchange all rows held in groups of k at distance 1, k, k^2, ... (as in MPICH).

    Where p is no power of k, surplus ranks first lend their row to a neighbour, which hands
    them the others at the end.

    Rounds floor(log_k p) with k-1 ports (+2); bytes sent (p-1)/p m, up to about
    3k/2 times that where p is no power of k.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "recexch(radix=3)").show(1, 4)
    recv(0, 0)
    send(2, 0, 1) recv(2, 2) send(3, 0, 1) recv(3, 3)
    send(0, 1, 2, 3)
    """
    return with_lenders(
        rank, size,
        lambda me, groups: near_first(me, len(groups), groups.__getitem__, radix),
        lambda lender: (lender,),
        lambda lender: (row for row in range(size) if row != lender),
        radix, folds=False,
    )  # fmt: skip


@algorithm("allgather")
def bcube(rank: int, size: int, radix: int = 4) -> Schedule:
    """Exchange in groups of as many ranks as a factor of p has, distant ranks first (as in gloo).

    Factors are at most `radix`, where the primes of p allow it.

    Rounds: as many as factors f, with f-1 ports; bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "bcube(radix=3)").show(0, 6)
    send(3, 0) recv(3, 3)
    send(1, 0, 3) recv(1, 1, 4) send(2, 0, 3) recv(2, 2, 5)
    """
    return far_first(rank, size, lambda row: (row,), factors(size, radix)[::-1])


@algorithm("allgather")
def sparbit(rank: int, size: int) -> Schedule:
    """Double the rows held with peers at distance ..., 4, 2, 1 (Loch and Koslovski 2021).

    Bruck's mirrored in distance: few rows travel a long way, many a short one. Any number of ranks.

    Rounds ceil(log2 p); bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "sparbit").show(0, 5)
    send(4, 0) recv(1, 1)
    send(2, 0) recv(3, 3)
    send(1, 0, 3) recv(4, 4, 2)
    """
    distance = 1 << (size - 1).bit_length() >> 1
    while distance:
        rows = range(0, size - distance, 2 * distance)
        to, source = (rank + distance) % size, (rank - distance) % size
        yield (
            send(to, *((rank - row) % size for row in rows)),
            recv(source, *((source - row) % size for row in rows)),
        )
        distance //= 2


def aggregating(aggregation: int) -> Constraint:
    """Return the numbers of ranks that `pat` serves.

    Raises:
        ArgumentError: no power of two.
    """
    below = 1 << (aggregation.bit_length() - 1)
    if aggregation == below:
        return any_size
    raise ArgumentError(
        f"aggregation of pat must be a power of two, not {aggregation}: give {below} or {2 * below}"
    )


@algorithm("allgather", needs=aggregating)
def pat(rank: int, size: int, aggregation: int = 4) -> Schedule:
    """Run parallel aggregated trees, of which every rank is a root (Jeaugey 2025, NCCL).

    First rows spread far in few long strides, then each message carries at most `aggregation`
    rows, which bounds the memory in between. With 1 it is a pipeline of trees of p-1 rounds, with
    p or more the fewest rounds, like `sparbit`.

    Rounds up to log2 A + P/A - 1 for aggregation A, P ranks up to a power of two; bytes sent
    (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "pat(aggregation=2)").show(0, 4)
    send(2, 0) recv(2, 2)
    send(3, 0, 2) recv(1, 1, 3)
    """
    whole = 1 << (size - 1).bit_length()
    near = max(1, whole // aggregation)
    far = [whole >> index for index in range(1, whole.bit_length()) if whole >> index >= near]
    backwards = [hop for index in range(1, near) for hop in mirrored(near)(index)]
    strides = [(hop, range(hop, size, 2 * hop)) for hop in far]
    strides += [(hop & -hop, range(hop, size, near)) for hop in backwards]
    for hop, rows in strides:
        if rows:
            yield (
                send((rank - hop) % size, *((rank - hop + row) % size for row in rows)),
                recv((rank + hop) % size, *((rank + row) % size for row in rows)),
            )


def in_groups(group: int) -> Constraint:
    """Return the numbers of ranks that `k_ring` serves."""
    text = f"a multiple of group={group} ranks"
    return Constraint(text, lambda size: size % group == 0 or size == 1)


@algorithm("allgather", needs=in_groups)
def k_ring(rank: int, size: int, group: int = 2) -> Schedule:
    """Pass rows around inside groups of k ranks, then to the next group (Wilkins et al. 2023).

    As many messages as in a ring, of which only one in k leaves the group: for groups that are
    joined better inside, such as nodes.

    Rounds p-1; bytes sent (p-1)/p m, (p/k-1)/p m to another group.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "k_ring").show(0, 4)
    send(1, 0) recv(1, 1)
    send(2, 0) recv(2, 2)
    send(1, 2) recv(1, 3)
    """
    if size == 1:
        return
    first, place, groups = rank - rank % group, rank % group, size // group
    successor, predecessor = first + (place + 1) % group, first + (place - 1) % group
    for step in range(groups):
        origin = (first - step * group) % size
        for turn in range(group - 1):
            leaving, arriving = (place - turn) % group, (place - turn - 1) % group
            yield send(successor, origin + leaving), recv(predecessor, origin + arriving)
        if step < groups - 1:
            came = (origin - group) % size + place
            yield send((rank + group) % size, origin + place), recv((rank - group) % size, came)


@algorithm("allgather", name="gather+broadcast", aliases=("tree",))
def gather_broadcast(rank: int, size: int) -> Schedule:
    """Gather all rows at rank 0 and broadcast them, both by the binomial tree.

    Two collectives that everybody has; rank 0 sends the whole result log2 p times.

    Rounds 2 ceil(log2 p); bytes sent m ceil(log2 p) by rank 0.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "gather+broadcast").show(0, 4)
    recv(1, 1)
    recv(2, 2, 3)
    send(2, 0, 1, 2, 3)
    send(1, 0, 1, 2, 3)
    """
    from mpicoll.algorithms import gather

    return then(
        gather.binomial(rank, size, 0), tree(rank, size, 2, lambda start, stop: range(size))
    )
