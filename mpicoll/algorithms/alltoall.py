"""Alltoall: every rank sends a row of its own to every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mpicoll.algorithms.registry import Pairs, algorithm, even
from mpicoll.notation.schedule import Op, Round, Schedule, recv, send, then

Pair = tuple[int, int]
Chosen = Callable[[Pair], bool]


def _all(pair: Pair) -> bool:
    return True


@algorithm("alltoall", aliases=("linear",))
def naive(rank: int, size: int) -> Schedule:
    """Send every rank its row at once.

    All p-1 messages of a rank are in flight together; the library sorts out the rest.

    Rounds 1 with p-1 ports; bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("alltoall", "naive").show(0, 4)
    send(1, (0, 1)) send(2, (0, 2)) send(3, (0, 3)) recv(1, (1, 0)) recv(2, (2, 0)) recv(3, (3, 0))
    """
    peers = [(rank + step) % size for step in range(1, size)]
    yield (
        *(send(peer, (rank, peer)) for peer in peers),
        *(recv(peer, (peer, rank)) for peer in peers),
    )


@algorithm("alltoall")
def pairwise(rank: int, size: int) -> Schedule:
    """Exchange rows with one peer per round (Thakur et al. 2005).

    With a power of two of ranks the peers pair up by exclusive or; else each sends
    to the i-th rank on its right.

    Rounds p-1; bytes sent (p-1)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("alltoall", "pairwise").show(0, 4)
    send(1, (0, 1)) recv(1, (1, 0))
    send(2, (0, 2)) recv(2, (2, 0))
    send(3, (0, 3)) recv(3, (3, 0))
    """
    return _straight(rank, size, _all)


def _straight(rank: int, size: int, chosen: Chosen) -> Schedule:
    """Exchange the chosen rows with one peer per round."""
    paired = size & (size - 1) == 0
    for step in range(1, size):
        to, source = (
            (rank ^ step, rank ^ step) if paired else ((rank + step) % size, (rank - step) % size)
        )
        yield _filled(
            send(to, *filter(chosen, [(rank, to)])), recv(source, *filter(chosen, [(source, rank)]))
        )


def _filled(*messages: Op) -> Round:
    """Leave out messages without rows, which would be signals."""
    return tuple(op for op in messages if op.blocks)  # type: ignore[union-attr]


@algorithm("alltoall")
def bruck(rank: int, size: int, radix: int = 2) -> Schedule:
    """Forward rows along the digits of their distance to go (Bruck et al. 1997).

    A row that must travel `offset` ranks to the right hops j k^i of them in phase i,
    where j is the i-th digit of `offset` to the base k. Few rounds, each row many times.

    Rounds ceil(log_k p) with k-1 ports; bytes sent about m (k-1)/k ceil(log_k p).

    >>> from mpicoll.algorithms import find
    >>> find("alltoall", "bruck").show(0, 4)
    send(1, (0, 1), (0, 3)) recv(3, (3, 0), (3, 2))
    send(2, (0, 2), (3, 2)) recv(2, (2, 0), (1, 0))
    """
    return _forwarded(rank, size, _digits(size, radix))


def _digits(size: int, radix: int) -> list[list[int]]:
    """Return the hops of every offset: its digits, each times its power of the radix."""
    powers = [radix**place for place in range(size) if radix**place < size]
    return [[offset // power % radix * power for power in powers] for offset in range(size)]


def _forwarded(
    rank: int, size: int, paths: Sequence[Sequence[int]], chosen: Chosen = _all
) -> Schedule:
    """Forward the chosen rows, one that must travel `offset` by the hops of ``paths[offset]``.

    Args:
        paths: the hops of every offset, one for each round, 0 to stay.
    """
    for step in range(len(paths[0])):
        hops = sorted({path[step] for path in paths} - {0})
        yield _filled(
            *(
                send((rank + hop) % size, *filter(chosen, _hopping(rank, paths, step, hop)))
                for hop in hops
            ),
            *(
                recv((rank - hop) % size, *filter(chosen, _hopping(rank - hop, paths, step, hop)))
                for hop in hops
            ),
        )


def _hopping(at: int, paths: Sequence[Sequence[int]], step: int, hop: int) -> list[Pair]:
    """Return the rows that leave rank `at` in one round for `hop` ranks to its right."""
    size = len(paths)
    offsets = [offset for offset, path in enumerate(paths) if path[step] == hop]
    sources = [(offset, (at - sum(paths[offset][:step])) % size) for offset in offsets]
    return [(source, (source + offset) % size) for offset, source in sources]


@algorithm("alltoall", aliases=("two_phase_bruck=tuna(radix=2)",))
def tuna(rank: int, size: int, radix: int = 4) -> Schedule:
    """Forward rows digit by digit, one value of a digit per round (Fan et al. 2022, 2024).

    The Bruck algorithm for uneven counts, through one port: a larger radix sends fewer bytes
    in more rounds, up to pairwise. The papers' first phase, which tells sizes, is not needed:
    all ranks know all counts here.

    Rounds about (k-1) ceil(log_k p); bytes sent as by bruck.

    >>> from mpicoll.algorithms import find
    >>> find("alltoall", "tuna(radix=3)").show(0, 4)
    send(1, (0, 1)) recv(3, (3, 0))
    send(2, (0, 2)) recv(2, (2, 0))
    send(3, (0, 3)) recv(1, (1, 0))
    """
    paths = _digits(size, radix)
    rounds = [
        (place, hop)
        for place in range(len(paths[0]))
        for hop in sorted({path[place] for path in paths} - {0})
    ]
    return _forwarded(
        rank, size, [[hop * (path[place] == hop) for place, hop in rounds] for path in paths]
    )


@algorithm("alltoall")
def circulant(rank: int, size: int) -> Schedule:
    """Forward rows along the skips p/2, p/4, ..., 1, rounded up (Träff 2024).

    The distance to go is a sum of skips, the largest first. As few rounds as bruck, and for
    many p fewer bytes: a round carries at most half of the rows, whatever p is.

    Rounds ceil(log2 p); bytes sent up to m/2 ceil(log2 p).

    >>> from mpicoll.algorithms import find
    >>> find("alltoall", "circulant").show(0, 4)
    send(2, (0, 2), (0, 3)) recv(2, (2, 0), (2, 1))
    send(1, (0, 1), (2, 1)) recv(3, (3, 0), (1, 0))
    """
    return _forwarded(rank, size, [list(_skipping(offset, size)) for offset in range(size)])


def _skipping(offset: int, size: int) -> Iterable[int]:
    """Yield each skip that an offset takes, and 0 for those that it does not.

    >>> [*_skipping(4, 7)], [*_skipping(3, 7)]
    ([4, 0, 0], [0, 2, 1])
    """
    from mpicoll.algorithms.circulant_graph import skips

    for skip in reversed(skips(size)[:-1]):
        taken = skip * (offset >= skip)
        offset -= taken
        yield taken


@algorithm("alltoall", needs=even)
def swing(rank: int, size: int) -> Schedule:
    """Exchange rows with peers at distance 1, -1, 3, -5, 11, ... (De Sensi et al. 2024, 2025).

    Even ranks swing to the right where odd ones swing to the left, so that peers stay
    nearer than at distance 1, 2, 4, ... In every round a rank hands over all rows whose
    targets only its peer will reach.

    Rounds ceil(log2 p); bytes sent up to m/2 ceil(log2 p). Even numbers of ranks only.

    >>> from mpicoll.algorithms import find
    >>> find("alltoall", "swing").show(0, 4)
    send(1, (0, 1), (0, 2)) recv(1, (1, 0), (1, 3))
    send(3, (0, 3), (1, 3)) recv(3, (3, 0), (2, 0))
    """
    from mpicoll.algorithms import bine_trees

    held = {target: [0] for target in range(size)}
    for step, targets in enumerate(bine_trees.reach(size)):
        pairs = [(source, target) for target in targets for source in held[target]]
        peer = bine_trees.partner(rank, step, size)
        yield send(peer, *_seen_from(rank, pairs, size)), recv(peer, *_seen_from(peer, pairs, size))
        for target in targets:
            peer_of_root = bine_trees.partner(0, step, size)
            held[(peer_of_root - target) % size] += [
                (peer_of_root - source) % size for source in held[target]
            ]


def _seen_from(rank: int, pairs: Iterable[Pair], size: int) -> list[Pair]:
    """Return the rows whose distances from a rank are given, to the left where it is odd."""
    sign = -1 if rank % 2 else 1
    return [((rank + sign * s) % size, (rank + sign * t) % size) for s, t in pairs]


@algorithm("alltoall")
def hybrid(rank: int, size: int, counts: Pairs, limit: int = 64) -> Schedule:
    """Forward small rows by their offset's digits, then send large ones straight (as in UCC).

    For uneven counts: what costs latency shares messages, what costs bandwidth travels once.
    What one rank has for another is small up to `limit` rows of its array.

    Rounds up to ceil(log2 p)+p-1; bytes sent as by bruck for small rows, as by pairwise for
    large ones.

    >>> from mpicoll.algorithms import find
    >>> counts = [[1, 1, 1, 99]] * 4
    >>> find("alltoall", "hybrid").show(0, 4, counts=counts)
    send(1, (0, 1)) recv(3, (3, 0), (3, 2))
    send(2, (0, 2), (3, 2)) recv(2, (2, 0), (1, 0))
    send(3, (0, 3))
    """

    def small(pair: Pair) -> bool:
        return counts[pair[0]][pair[1]] <= limit

    return then(
        _forwarded(rank, size, _digits(size, 2), small),
        _straight(rank, size, lambda pair: not small(pair)),
    )


@algorithm("alltoall")
def ring(rank: int, size: int) -> Schedule:
    """Forward rows around the ring until they meet their destination.

    In round i a rank passes on the rows of the i-th rank to its left that have farther
    to go. Every message goes to a neighbour, at the price of much forwarding.

    Rounds p-1; bytes sent (p-1)/2 m.

    >>> from mpicoll.algorithms import find
    >>> find("alltoall", "ring").show(0, 4)
    send(1, (0, 1), (0, 2), (0, 3)) recv(3, (3, 0), (3, 1), (3, 2))
    send(1, (3, 1), (3, 2)) recv(3, (2, 0), (2, 1))
    send(1, (2, 1)) recv(3, (1, 0))
    """
    successor, predecessor = (rank + 1) % size, (rank - 1) % size
    for step in range(1, size):
        yield (
            send(successor, *_travelling((rank - step + 1) % size, size, step)),
            recv(predecessor, *_travelling((rank - step) % size, size, step)),
        )


def _travelling(source: int, size: int, step: int) -> list[Pair]:
    return [(source, (source + offset) % size) for offset in range(step, size)]
