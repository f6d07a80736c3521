"""Allreduce: every rank ends with the fold of all ranks' vectors."""

from __future__ import annotations

from itertools import accumulate, pairwise

from mpicoll.algorithms.registry import Nodes, algorithm, even, find, power_of_three
from mpicoll.algorithms.shapes import (
    core_after_swap,
    doubling,
    far_first,
    meeting,
    mirrored,
    swapped,
    windows,
)
from mpicoll.notation.schedule import (
    Block,
    Fold,
    Receive,
    Round,
    Schedule,
    Send,
    Temp,
    copy,
    fold,
    folded,
    on,
    recv,
    reduce,
    reverse,
    send,
    side_of,
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
    >>> find("allreduce", "ring").show(0, 4)
    send(1, 0) reduce_left(3, 3)
    send(1, 3) reduce_left(3, 2)
    send(1, 2) reduce_left(3, 1)
    send(1, 1) recv(3, 0)
    send(1, 0) recv(3, 3)
    send(1, 3) recv(3, 2)
    """
    successor, predecessor = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield send(successor, (rank - step) % size), reduce(predecessor, (rank - step - 1) % size)
    for step in range(size - 1):
        yield send(successor, (rank + 1 - step) % size), recv(predecessor, (rank - step) % size)


@algorithm("allreduce", blocks=1)
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Exchange and reduce whole vectors with peers at distance 1, 2, 4, ... (Thakur et al. 2005).

    After round i each rank holds the fold of its group of 2^(i+1) neighbours. Fewest
    rounds possible, at the price of the whole vector in each.

    Rounds log2 p (+2 where p is no power of two); bytes sent and reduced m log2 p (+m).

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "recursive_doubling").show(0, 4)
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
    >>> find("allreduce", "naive").show(0, 4)
    reduce_right(1, 0)
    reduce_right(2, 0)
    reduce_right(3, 0)
    send(3, 0)
    send(2, 0)
    send(1, 0)
    """
    from mpicoll.algorithms.broadcast import naive as broadcast_naive
    from mpicoll.algorithms.reduce import naive as reduce_naive

    return then(reduce_naive(rank, size, 0), broadcast_naive(rank, size, 0))


@algorithm("allreduce", blocks=1)
def ring_unchunked(rank: int, size: int) -> Schedule:
    """Pass every rank's whole vector once around the ring, everyone reducing it.

    What the ring allreduce is without its blocks: the same rounds as a
    reduce-scatter, p times its volume.

    Rounds p-1; bytes sent and reduced (p-1) m. Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "ring_unchunked").show(0, 4)
    send(1, 0) recv(3, even[0]) fold_left(0, even[0])
    send(1, even[0]) recv(3, odd[0]) fold_left(0, odd[0])
    send(1, odd[0]) recv(3, even[0]) fold_left(0, even[0])
    """
    successor, predecessor = (rank + 1) % size, (rank - 1) % size
    leaving: Block = 0
    for step in range(size - 1):
        arriving = Temp(("even", "odd")[step % 2], 0)
        yield send(successor, leaving), recv(predecessor, arriving), fold(0, arriving)
        leaving = arriving


@algorithm("allreduce", blocks=windows)
def rabenseifner(rank: int, size: int) -> Schedule:
    """Reduce-scatter by the butterfly, then allgather back the same way (Rabenseifner 2004).

    Surplus ranks first share the work of a neighbour, half each, and get the result at
    the end. Near ranks fold first, so rank order is kept.

    Rounds 2 log2 p (+3 where p is no power of two); bytes sent 2(p-1)/p m (+3m/2),
    reduced (p-1)/p m (+m/2).

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "rabenseifner").show(0, 4)
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
    """Send the vector to everyone at once and reduce all that arrives in rank order.

    The latency of one message, for the volume of p-1. Every rank folds in the same
    order and association, so all get the same bits.

    Rounds 1 with p-1 ports; bytes sent and reduced (p-1) m.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "one_shot").show(0, 2)
    send(1, 0) recv(1, from1[0]) fold_right(0, from1[0])
    """
    yield meeting(rank, range(size))


@algorithm("allreduce")
def two_shot(rank: int, size: int) -> Schedule:
    """Reduce-scatter in one round, then allgather in one round.

    The least volume and the latency of two messages, if a rank can send p-1 at once.

    Rounds 2 with p-1 ports; bytes sent 2(p-1)/p m; reduced (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "two_shot").show(0, 2)
    send(1, 1) recv(1, from1[0]) fold_right(0, from1[0])
    send(1, 0) recv(1, 1)
    """
    from mpicoll.algorithms import allgather, reduce_scatter

    return then(reduce_scatter.direct(rank, size), allgather.direct(rank, size))


def _over(size: int, over: str, back: str) -> int:
    from mpicoll.algorithms.levels import way_back

    reduction, distribution = (
        find("reduce", over),
        find("broadcast", way_back("broadcast", over, back)),
    )
    return max(reduction.blocks(size), distribution.blocks(size))


@algorithm(
    "allreduce",
    name="reduce+broadcast",
    blocks=_over,
    aliases=(
        "tree=reduce+broadcast(over=tree)",
        "pipeline=reduce+broadcast(over=pipeline)",
    ),
)
def reduce_broadcast(
    rank: int, size: int, nodes: Nodes, over: str = "tree", back: str = ""
) -> Schedule:
    """Reduce to rank 0, then broadcast from it.

    `over` is any reduce, `back` any broadcast, by default the one that is called as `over`:
    ``tree``, ``pipeline``, ``knomial(radix=8)``, ``two_level``.

    Rounds: up to twice those of the broadcast; bytes sent: likewise.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "reduce+broadcast").show(0, 4)
    reduce_right(1, 0)
    reduce_right(2, 0)
    send(2, 0)
    send(1, 0)
    """
    from mpicoll.algorithms.levels import inside, split

    everyone, whole = range(size), split(range(_over(size, over, back)))
    return then(
        inside(everyone, rank, "reduce", over, 0, whole, nodes=nodes),
        inside(everyone, rank, "broadcast", back or over, 0, whole, nodes=nodes),
    )


@algorithm("allreduce", blocks=1, aliases=("recursive_multiplying",))
def recexch(rank: int, size: int, radix: int = 4) -> Schedule:
    """Exchange whole vectors in groups of k at distance 1, k, k^2, ... (Ruefenacht et al. 2017).

    Recursive doubling with k for 2: fewer rounds for more ports. Where p is no power of k, surplus
    ranks lend their vector to a neighbour (MPICH's recursive exchange). Rank order is kept, and
    all fold in the same association.

    Rounds floor(log_k p) with k-1 ports (+2); bytes sent and reduced (k-1) m floor(log_k p)
    (+ up to (k-1) m).

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "recexch(radix=2)").show(0, 4)
    send(1, 0) recv(1, from1[0]) fold_right(0, from1[0])
    send(2, 0) recv(2, from1[0]) fold_right(0, from1[0])
    """

    def core(me: int, count: int) -> Schedule:
        distance = 1
        while distance < count:
            digit = me // distance % radix
            first = me - digit * distance
            yield meeting(digit, range(first, first + radix * distance, distance))
            distance *= radix

    return folded(rank, size, core, 0, radix=radix)


@algorithm("allreduce", blocks=1)
def cyclic(rank: int, size: int) -> Schedule:
    """Fold whole vectors around the circulant graph: any number of ranks (Bruck and Ho 1993).

    A rank holds the fold of itself and so many ranks to its left, and that without itself: one of
    both makes as many as the next skip needs, so that every number of ranks takes as few rounds
    as the next power of two. The second value is kept only as long as it is needed.

    Rounds ceil(log2 p); bytes sent m ceil(log2 p), reduced up to (2 ceil(log2 p) - 1) m.
    Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "cyclic").show(0, 6)
    send(1, 0) recv(5, got[0]) fold_left(0, got[0]) copy(others[0], got[0])
    send(1, others[0]) recv(5, got[0]) fold_left(0, got[0])
    send(3, 0) recv(3, got[0]) fold_left(0, got[0])
    """
    from mpicoll.algorithms import circulant_graph

    with_me, without_me, got = 0, Temp("others", 0), Temp("got", 0)
    steps = [*pairwise(circulant_graph.skips(size))]
    odd = [index for index, (held, wanted) in enumerate(steps) if wanted < 2 * held]
    for index, (held, wanted) in enumerate(steps):
        distance, value = (held - 1, without_me) if wanted < 2 * held else (held, with_me)
        keep = fold if index else copy
        yield (
            send((rank + distance) % size, value),
            recv((rank - distance) % size, got),
            fold(with_me, got),
            *((keep(without_me, got),) if index < max(odd, default=0) else ()),
        )


@algorithm("allreduce", blocks=1, needs=power_of_three)
def trivance(rank: int, size: int) -> Schedule:
    """Fold whole vectors from both sides at distance 1, 3, 9, ... (Jürß et al. 2026).

    Both directions of a ring's links work at once, and what a rank knows triples in each round.
    Powers of three of ranks only.

    Rounds log3 p with 2 ports; bytes sent and reduced 2m log3 p. Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "trivance").show(0, 9)
    send(8, 0) send(1, 0) reduce_left(8, 0) reduce_right(1, 0)
    send(6, 0) send(3, 0) reduce_left(6, 0) reduce_right(3, 0)
    """
    distance = 1
    while distance < size:
        lower, upper = (rank - distance) % size, (rank + distance) % size
        yield send(lower, 0), send(upper, 0), reduce(lower, 0), reduce(upper, 0, side="right")
        distance *= 3


@algorithm("allreduce", blocks=1)
def swing_latency(rank: int, size: int) -> Schedule:
    """Exchange whole vectors with partners at distance 1, 1, 3, 5, 11, ... (De Sensi et al. 2024).

    Recursive doubling with nearer partners.

    Rounds log2 p (+2 where p is no power of two); bytes sent and reduced m log2 p (+m).
    Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "swing_latency").show(0, 8)
    send(1, 0) reduce_right(1, 0)
    send(7, 0) reduce_right(7, 0)
    send(3, 0) reduce_right(3, 0)
    """
    from mpicoll.algorithms import bine_trees

    def core(me: int, count: int) -> Schedule:
        for step in range(count.bit_length() - 1):
            peer = bine_trees.partner(me, step, count)
            yield send(peer, 0), reduce(peer, 0, side=side_of(peer, me))

    return folded(rank, size, core, 0)


@algorithm("allreduce", blocks=lambda size, segments: size * segments)
def segmented_ring(rank: int, size: int, segments: int = 2) -> Schedule:
    """Run the ring in segments, each reduced while the next one travels (as in Open MPI and gloo).

    With one segment it is the plain ring.

    Rounds 2n(p-1) for n segments; bytes sent 2(p-1)/p m; reduced (p-1)/p m. Commutative
    operators only.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "segmented_ring").show(0, 2)
    send(1, 0) recv(1, got[2])
    send(1, 1) recv(1, got[3]) fold_left(2, got[2])
    send(1, 2) recv(1, 0) fold_left(3, got[3])
    send(1, 3) recv(1, 1)
    """
    successor, predecessor = (rank + 1) % size, (rank - 1) % size
    half = (size - 1) * segments

    def part(index: int) -> int:
        """Return the block that is the index-th to be sent."""
        step, segment = divmod(index, segments)
        return (rank - step) % size * segments + segment

    def fold_in(index: int) -> Fold:
        return fold(part(index), Temp("got", part(index)))

    for now in range(2 * half):
        comes = now + segments
        into = Temp("got", part(comes)) if now < half else part(comes)
        ready = [comes] if segments == 1 else [comes - 1]
        yield (
            send(successor, part(now)),
            recv(predecessor, into),
            *(fold_in(index) for index in ready if segments <= index < half + segments),
        )


@algorithm("allreduce", blocks=windows)
def binary_blocks(rank: int, size: int) -> Schedule:
    """Halve and double inside blocks of a power of two each (Rabenseifner and Träff 2004; gloo).

    Ranks part into powers of two, largest first. Each block reduce-scatters by the butterfly, hands
    its shares to the next larger block, gets them back folded, and allgathers. No rank sits idle,
    but the smallest block's have many messages to send. Rank order is kept.

    Rounds 2 log2 p, and the hops between blocks; bytes sent about 2m, reduced about m.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "binary_blocks").show(2, 3)
    send(0, 0)
    send(1, 1)
    recv(0, 0)
    recv(1, 1)
    """
    whole, groups = windows(size), _powers(size)

    def share(number: int, index: int) -> range:
        """Return the blocks that are folded by the index-th rank of a group."""
        (place,) = mirrored(len(groups[number]))(index)
        length = whole // len(groups[number])
        return range(place * length, (place + 1) * length)

    number = next(index for index, group in enumerate(groups) if rank in group)
    group = groups[number]
    me, mine = group.index(rank), share(number, group.index(rank))

    def peers(index_of_group: int) -> list[tuple[int, range]]:
        """Return the ranks of another group that share blocks with this rank, and those blocks."""
        if not 0 <= index_of_group < len(groups):
            return []
        shares = (
            (peer, share(index_of_group, index))
            for index, peer in enumerate(groups[index_of_group])
        )
        common = ((peer, range(max(mine[0], s[0]), min(mine[-1], s[-1]) + 1)) for peer, s in shares)
        return [(peer, blocks) for peer, blocks in common if blocks]

    def spread() -> Schedule:
        return far_first(me, len(group), lambda index: share(number, index))

    smaller, larger = peers(number + 1), peers(number - 1)
    yield from on(group, reverse(spread(), me, folds=True))
    yield from (reduce(peer, *blocks, side="right") for peer, blocks in smaller)
    yield from (send(peer, *blocks) for peer, blocks in larger)
    yield from (recv(peer, *blocks) for peer, blocks in larger)
    yield from (send(peer, *blocks) for peer, blocks in smaller)
    yield from on(group, spread())


def _powers(size: int) -> list[range]:
    """Part ranks into neighbours, as many as the binary digits of their number say."""
    bits = [1 << bit for bit in reversed(range(size.bit_length())) if size >> bit & 1]
    return [range(*pair) for pair in pairwise(accumulate(bits, initial=0))]


@algorithm("allreduce")
def bcube(rank: int, size: int, radix: int = 4) -> Schedule:
    """Reduce-scatter, then allgather in groups of as many ranks as a factor of p has (as in gloo).

    Near ranks fold first, so rank order is kept.

    Rounds: twice as many as factors f, with f-1 ports; bytes sent 2(p-1)/p m, reduced (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "bcube(radix=3)").show(0, 6)
    reduce_right(1, 0, 3) send(1, 1, 4) reduce_right(2, 0, 3) send(2, 2, 5)
    reduce_right(3, 0) send(3, 3)
    send(3, 0) recv(3, 3)
    send(1, 0, 3) recv(1, 1, 4) send(2, 0, 3) recv(2, 2, 5)
    """
    from mpicoll.algorithms import allgather, reduce_scatter

    return then(reduce_scatter.bcube(rank, size, radix), allgather.bcube(rank, size, radix))


@algorithm("allreduce")
def circulant(rank: int, size: int, ports: int = 1) -> Schedule:
    """Reduce-scatter, then allgather on the circulant graph (Träff 2024).

    The least volume and the fewest folds, in no more than twice the fewest rounds, for every
    number of ranks: for operators that commute it is never worse than Rabenseifner's.

    Rounds 2 ceil(log_(k+1) p) with k ports; bytes sent 2(p-1)/p m; reduced (p-1)/p m.
    Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "circulant").show(0, 3)
    reduce_right(1, 0) send(2, 2)
    reduce_right(2, 0) send(1, 1)
    send(2, 0) recv(1, 1)
    send(1, 0) recv(2, 2)
    """
    from mpicoll.algorithms import allgather, reduce_scatter

    return then(reduce_scatter.circulant(rank, size, ports), allgather.circulant(rank, size, ports))


@algorithm("allreduce", needs=even)
def swing(rank: int, size: int) -> Schedule:
    """Reduce-scatter, then allgather with partners at distance 1, 1, 3, 5, 11, ... (De Sensi 2024).

    Large messages stay near, which spares links on a torus. Reach sets make it serve every even
    number of ranks.

    Rounds 2 ceil(log2 p); bytes sent 2(p-1)/p m; reduced (p-1)/p m. Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "swing").show(0, 4)
    reduce_right(1, 0, 3) send(1, 1, 2)
    reduce_right(3, 0) send(3, 3)
    send(3, 0) recv(3, 3)
    send(1, 0, 3) recv(1, 1, 2)
    """
    from mpicoll.algorithms import allgather, reduce_scatter

    return then(reduce_scatter.swing(rank, size), allgather.swing(rank, size))


@algorithm("allreduce", blocks="segments")
def double_tree(rank: int, size: int, segments: int = 8) -> Schedule:
    """Reduce up, then broadcast down two binary trees with half of the segments each (NCCL's Tree).

    Ranks inside one tree are leaves of the other (Sanders, Speck and Träff 2009): the volume of
    a chain in a logarithmic number of rounds. Even numbers of ranks keep rank order.

    Rounds about 2n+4 log2 p for n segments; bytes sent 2m, reduced m. Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "double_tree(segments=2)").show(1, 4)
    reduce_right(2, 1)
    send(2, 0) reduce_left(0, 1)
    send(3, 1)
    recv(3, 1)
    recv(2, 0) send(0, 1)
    send(2, 1)
    """
    from mpicoll.algorithms import trees

    def down() -> Schedule:
        return trees.down(rank, trees.pair(size), segments)

    return then(reverse(down(), rank, folds=True), down())


@algorithm("allreduce", blocks="segments")
def dual_root(rank: int, size: int, segments: int = 8) -> Schedule:
    """Reduce up and broadcast down two trees at once; the roots exchange segments (Träff 2021).

    Each half of the ranks is a binary tree, numbered such that children come before their parent.
    A rank meets its two children and its parent in turn: one segment goes up while an earlier one
    comes down. Rank order is kept.

    Rounds about 3n+4 log2 p for n segments; bytes sent 3m, reduced 3m at most.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "dual_root(segments=2)").show(1, 4)
    reduce_left(0, 0)
    send(3, 0) reduce_right(3, 0)
    reduce_left(0, 1) send(0, 0)
    send(3, 1) reduce_right(3, 1)
    send(0, 1)
    """
    if size == 1:
        return
    half = size // 2
    start, stop, other_root = (0, half, size - 1) if rank < half else (half, size, half - 1)
    parent, children, depth = _post_order(rank, start, stop)

    def exchange(upward: Send | Receive, downward: Send | Receive) -> Round:
        """Exchange a segment that goes up for one that comes down, as far as there are any."""
        return tuple(op for op in (upward, downward) if op.blocks[0] in range(segments))

    for now in range(segments + depth + 1):
        for child in children:
            yield exchange(reduce(child, now), send(child, now - depth - 1))
        if parent is None:
            yield exchange(
                send(other_root, now), reduce(other_root, now, side=side_of(other_root, rank))
            )
        else:
            yield exchange(send(parent, now), recv(parent, now - depth))


def _post_order(rank: int, start: int, stop: int) -> tuple[int | None, list[int], int]:
    """Return a rank's parent, its children and its depth in a tree below the last rank."""
    parent, depth = None, 0
    while True:
        root, middle = stop - 1, (start + stop - 1) // 2
        parts = [(middle, root), (start, middle)]
        if rank == root:
            return parent, [last - 1 for first, last in parts if first < last], depth
        start, stop = parts[rank < middle]
        parent, depth = root, depth + 1
