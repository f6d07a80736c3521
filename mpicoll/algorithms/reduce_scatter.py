"""Reduce-scatter: every rank ends with the fold of all ranks' rows for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mpicoll.algorithms import allgather
from mpicoll.algorithms.registry import algorithm, even
from mpicoll.algorithms.shapes import (
    Part,
    far_first,
    flat,
    gathering,
    in_rank_order,
    near_first,
)
from mpicoll.notation.schedule import Schedule, reduce, reverse, send, side_of, then, with_lenders


def _lending(
    rank: int, size: int, core: Callable[[int, Sequence[tuple[int, ...]]], Schedule]
) -> Schedule:
    """Serve any size with a `core` for a power of two of groups; each rank gets back its row."""
    return with_lenders(rank, size, core, lambda lender: range(size), lambda lender: (lender,))


def _halving(rank: int, size: int, spread: Callable[[int, int, Part], Schedule]) -> Schedule:
    """Run an allgather among a power of two of ranks backwards."""
    return _lending(
        rank, size,
        lambda me, groups: reverse(spread(me, len(groups), groups.__getitem__), me, folds=True),
    )  # fmt: skip


@algorithm("reduce_scatter")
def naive(rank: int, size: int) -> Schedule:
    """Reduce all rows to rank 0, one rank after the other, then scatter them.

    Two loops around rank 0, which does all of the work.

    Rounds 2(p-1); bytes sent m, reduced (p-1) m by rank 0.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "naive").show(0, 4)
    reduce_right(1, 0, 1, 2, 3)
    reduce_right(2, 0, 1, 2, 3)
    reduce_right(3, 0, 1, 2, 3)
    send(3, 3)
    send(2, 2)
    send(1, 1)
    """
    from mpicoll.algorithms import scatter

    return then(
        reverse(flat(rank, size, 0, lambda peer: range(size)), rank, folds=True),
        scatter.naive(rank, size, 0),
    )


@algorithm("reduce_scatter")
def direct(rank: int, size: int) -> Schedule:
    """Send every rank its row at once and reduce what arrives in rank order.

    All p-1 messages of a rank are in flight together: one latency, many ports.

    Rounds 1 with p-1 ports; bytes sent and reduced (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "direct").show(1, 2)
    send(0, 0) recv(0, from0[1]) fold_left(1, from0[1])
    """
    sends = (send(peer, peer) for peer in in_rank_order(rank, size))
    yield (*sends, *gathering(rank, range(size), rank))


@algorithm("reduce_scatter", aliases=("pipeline",))
def ring(rank: int, size: int) -> Schedule:
    """Pass every row once around the ring, gathering contributions (Thakur et al. 2005).

    The ring allgather backwards: a row starts next to its owner and arrives there
    complete. Every message goes to a neighbour.

    Rounds p-1; bytes sent and reduced (p-1)/p m. Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "ring").show(0, 4)
    reduce_right(1, 2) send(3, 1)
    reduce_right(1, 3) send(3, 2)
    reduce_right(1, 0) send(3, 3)
    """
    return reverse(allgather.ring(rank, size), rank, folds=True)


@algorithm("reduce_scatter", aliases=("linear",))
def pairwise(rank: int, size: int) -> Schedule:
    """Send each rank its row directly, the i-th to the left in round i (Thakur et al. 2005).

    The one-peer-per-round allgather backwards: nothing is forwarded.

    Rounds p-1; bytes sent and reduced (p-1)/p m. Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "pairwise").show(0, 4)
    reduce_right(3, 0) send(1, 1)
    reduce_right(2, 0) send(2, 2)
    reduce_right(1, 0) send(3, 3)
    """
    return reverse(allgather.naive(rank, size), rank, folds=True)


@algorithm("reduce_scatter")
def recursive_halving(rank: int, size: int) -> Schedule:
    """Exchange half of the rest with peers at distance p/2, p/4, ... (Thakur et al. 2005).

    The recursive doubling allgather backwards: the run of rows a rank works on halves
    until only its own is left. Surplus ranks lend their rows to a neighbour.

    Rounds log2 p (+2 where p is no power of two); bytes sent and reduced
    (p-1)/p m; where it is none, sent m, reduced up to about 2.4 m. Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "recursive_halving").show(0, 4)
    reduce_right(2, 0, 1) send(2, 2, 3)
    reduce_right(1, 0) send(1, 1)
    """
    return _halving(rank, size, near_first)


@algorithm("reduce_scatter")
def butterfly(rank: int, size: int) -> Schedule:
    """Exchange half of the rest with peers at distance 1, 2, 4, ... (Träff 2005).

    Near ranks fold first, so rank order is kept. Each rank works on every 2nd, 4th, ...
    row, which spares the final permutation of the paper's contiguous halves.

    Rounds log2 p (+2 where p is no power of two); bytes sent and reduced
    (p-1)/p m; where it is none, sent m, reduced up to about 2.2 m.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "butterfly").show(0, 4)
    reduce_right(1, 0, 2) send(1, 1, 3)
    reduce_right(2, 0) send(2, 2)
    """
    return _halving(rank, size, far_first)


@algorithm("reduce_scatter")
def bruck(rank: int, size: int, radix: int = 2) -> Schedule:
    """Fold shrinking runs of rows to the right at distance ..., k^2, k, 1 (Bruck et al. 1997).

    The Bruck allgather backwards: fewest rounds and least volume for any number of ranks.

    Rounds ceil(log_k p) with k-1 ports; bytes sent and reduced (p-1)/p m.
    Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "bruck").show(0, 4)
    reduce_right(2, 0, 1) send(2, 2, 3)
    reduce_right(3, 0) send(1, 1)
    """
    return reverse(allgather.bruck(rank, size, radix), rank, folds=True)


@algorithm("reduce_scatter", needs=even)
def neighbor_exchange(rank: int, size: int) -> Schedule:
    """Fold pairs of rows with the left and right neighbour in turn (Chen et al. 2005).

    The neighbor exchange allgather backwards. Even numbers of ranks only.

    Rounds p/2; bytes sent and reduced (p-1)/p m. Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "neighbor_exchange").show(0, 4)
    reduce_right(3, 0, 1) send(3, 2, 3)
    reduce_right(1, 0) send(1, 1)
    """
    return reverse(allgather.neighbor_exchange(rank, size), rank, folds=True)


@algorithm("reduce_scatter")
def circulant(rank: int, size: int, ports: int = 1) -> Schedule:
    """Fold shrinking runs of rows to the right over the skips of a circulant graph (Träff 2024).

    Fewest rounds, least volume and fewest folds at once, for every number of ranks.

    Rounds ceil(log_(k+1) p) with k ports; bytes sent and reduced (p-1)/p m.
    Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "circulant").show(0, 5)
    reduce_right(2, 0, 1) send(3, 3, 4)
    reduce_right(3, 0) send(2, 2)
    reduce_right(4, 0) send(1, 1)
    """
    return reverse(allgather.circulant(rank, size, ports), rank, folds=True)


@algorithm("reduce_scatter", blocks=lambda size, segments: size * segments, aliases=("circ_graph",))
def pipelined_circulant(rank: int, size: int, segments: int = 4) -> Schedule:
    """Fold everyone's row at once on the circulant graph, in segments (Träff 2023, backwards).

    The allgather backwards; for uneven rows.

    Rounds n-1+ceil(log2 p) for n segments; bytes sent and reduced (p-1)/p m.
    Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "pipelined_circulant(segments=1)").show(0, 4)
    reduce_right(2, 0, 3) send(2, 1, 2)
    reduce_right(1, 0) send(3, 3)
    """
    return reverse(allgather.pipelined_circulant(rank, size, segments), rank, folds=True)


@algorithm("reduce_scatter", needs=even)
def swing(rank: int, size: int) -> Schedule:
    """Fold with partners at distance 1, 1, 3, 5, 11, ... (De Sensi et al. 2024).

    Nearest where messages are largest. Even numbers of ranks only.

    Rounds ceil(log2 p); bytes sent and reduced (p-1)/p m. Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "swing").show(0, 6)
    reduce_right(1, 0, 3) send(1, 1, 4)
    reduce_right(5, 0, 3) send(5, 2, 5)
    reduce_right(3, 0) send(3, 3)
    """
    return reverse(allgather.swing(rank, size), rank, folds=True)


@algorithm("reduce_scatter")
def recexch(rank: int, size: int, radix: int = 4) -> Schedule:
    """Exchange the rest in groups of k at distance ..., k^2, k, 1 (as in MPICH).

    Rounds floor(log_k p) with k-1 ports (+2 where p is no power of k); bytes sent and reduced
    (p-1)/p m; reduced up to about 3k/2 times that where it is none. Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "recexch(radix=3)").show(1, 4)
    reduce_left(0, 1, 2, 3)
    reduce_right(2, 0, 1) send(2, 2) reduce_right(3, 0, 1) send(3, 3)
    send(0, 0)
    """
    return reverse(allgather.recexch(rank, size, radix), rank, folds=True)


@algorithm("reduce_scatter")
def bcube(rank: int, size: int, radix: int = 4) -> Schedule:
    """Exchange in groups of as many ranks as a factor of p has, close ranks first (as in gloo).

    Near ranks fold first, so rank order is kept.

    Rounds: as many as factors f, with f-1 ports; bytes sent and reduced (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "bcube(radix=3)").show(0, 6)
    reduce_right(1, 0, 3) send(1, 1, 4) reduce_right(2, 0, 3) send(2, 2, 5)
    reduce_right(3, 0) send(3, 3)
    """
    return reverse(allgather.bcube(rank, size, radix), rank, folds=True)


@algorithm("reduce_scatter")
def sparbit(rank: int, size: int) -> Schedule:
    """Halve the rows that remain with peers at distance 1, 2, 4, ... (Loch and Koslovski 2021).

    The allgather backwards. Any number of ranks.

    Rounds ceil(log2 p); bytes sent and reduced (p-1)/p m. Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "sparbit").show(0, 5)
    reduce_right(1, 0, 3) send(4, 4, 2)
    reduce_right(2, 0) send(3, 3)
    reduce_right(4, 0) send(1, 1)
    """
    return reverse(allgather.sparbit(rank, size), rank, folds=True)


@algorithm("reduce_scatter", needs=allgather.aggregating)
def pat(rank: int, size: int, aggregation: int = 4) -> Schedule:
    """Fold up parallel aggregated trees, of which every rank is a root (Jeaugey 2025, NCCL).

    The allgather backwards: at most `aggregation` rows in a message.

    Rounds up to log2 A + P/A - 1 for aggregation A, P ranks up to a power of two; bytes sent and
    reduced (p-1)/p m. Commutative operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "pat(aggregation=2)").show(0, 4)
    reduce_right(3, 0, 2) send(1, 1, 3)
    reduce_right(2, 0) send(2, 2)
    """
    return reverse(allgather.pat(rank, size, aggregation), rank, folds=True)


@algorithm("reduce_scatter", needs=allgather.in_groups)
def k_ring(rank: int, size: int, group: int = 2) -> Schedule:
    """Fold rows inside groups of k ranks before they go on to the next group (Wilkins et al. 2023).

    The allgather backwards: only one message in k leaves the group.

    Rounds p-1; bytes sent and reduced (p-1)/p m, (p/k-1)/p m to another group. Commutative
    operators only.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "k_ring").show(0, 4)
    reduce_right(1, 2) send(1, 3)
    reduce_right(2, 0) send(2, 2)
    reduce_right(1, 0) send(1, 1)
    """
    return reverse(allgather.k_ring(rank, size, group), rank, folds=True)


@algorithm("reduce_scatter")
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Exchange and reduce all rows that others still need with peers at distance 1, 2, 4, ...

    What MPICH runs for operators that do not commute: rank order is kept. A rank keeps to itself
    only the rows of those whose values it has folded already.

    Rounds log2 p (+2 where p is no power of two); bytes sent and reduced m log2 p - (p-1)/p m
    (+ about m).

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "recursive_doubling").show(0, 4)
    send(1, 1, 2, 3) reduce_right(1, 0, 2, 3)
    send(2, 2, 3) reduce_right(2, 0, 1)
    """

    def core(me: int, groups: Sequence[tuple[int, ...]]) -> Schedule:
        count, distance = len(groups), 1
        while distance < count:
            peer = me ^ distance
            my_groups, peer_groups = ({*range(first, first + distance)}
                            for first in (me & -distance, peer & -distance))  # fmt: skip
            yield (
                send(peer, *(row for i in range(count) if i not in my_groups for row in groups[i])),
                reduce(
                    peer, *(row for i in range(count) if i not in peer_groups for row in groups[i]),
                    side=side_of(peer, me),
                ),
            )  # fmt: skip
            distance *= 2

    return _lending(rank, size, core)
