"""Barrier: no rank leaves before all have entered; messages are bare signals."""

from __future__ import annotations

from mpicoll.algorithms import shapes
from mpicoll.algorithms.registry import algorithm
from mpicoll.notation.schedule import Schedule, folded, recv, reverse, send, then


def _out(rank: int, size: int) -> Schedule:
    return shapes.tree(rank, size, 2, lambda start, stop: ())


@algorithm("barrier", aliases=("linear",))
def naive(rank: int, size: int) -> Schedule:
    """Signal rank 0, which signals everyone back when all have come.

    Two loops around rank 0.

    Rounds 2(p-1).

    >>> from mpicoll.algorithms import find
    >>> find("barrier", "naive").show(0, 4)
    recv(1)
    recv(2)
    recv(3)
    send(3)
    send(2)
    send(1)
    """

    def out() -> Schedule:
        return shapes.flat(rank, size, 0, lambda peer: ())

    return then(reverse(out(), rank, folds=False), out())


@algorithm("barrier", aliases=("binomial",))
def tree(rank: int, size: int) -> Schedule:
    """Signal up the binomial tree to rank 0 and down again.

    As few signals as in the loop, in as many rounds as the tree is high.

    Rounds 2 ceil(log2 p).

    >>> from mpicoll.algorithms import find
    >>> find("barrier", "tree").show(0, 4)
    recv(1)
    recv(2)
    send(2)
    send(1)
    """
    return then(reverse(_out(rank, size), rank, folds=False), _out(rank, size))


@algorithm("barrier")
def ring(rank: int, size: int) -> Schedule:
    """Pass a token twice around the ring (the double ring of Open MPI).

    The first lap collects, the second one releases.

    Rounds 2p.

    >>> from mpicoll.algorithms import find
    >>> find("barrier", "ring").show(0, 4)
    send(1)
    recv(3)
    send(1)
    recv(3)
    """
    if size == 1:
        return
    outgoing, incoming = send((rank + 1) % size), recv((rank - 1) % size)
    for _lap in range(2):
        yield from (outgoing, incoming) if rank == 0 else (incoming, outgoing)


@algorithm("barrier", aliases=("bruck",))
def dissemination(rank: int, size: int, radix: int = 2) -> Schedule:
    """Signal the ranks at distance 1, k, k^2, ... to the right (Hensgen et al. 1988).

    After each phase a rank has heard of `radix` times as many ranks to its left.

    Rounds ceil(log_k p) with k-1 ports.

    >>> from mpicoll.algorithms import find
    >>> find("barrier", "dissemination").show(0, 4)
    send(1) recv(3)
    send(2) recv(2)
    """
    distance = 1
    while distance < size:
        hops = range(distance, min(radix * distance, size), distance)
        yield (
            *(send((rank + hop) % size) for hop in hops),
            *(recv((rank - hop) % size) for hop in hops),
        )
        distance *= radix


@algorithm("barrier")
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Exchange signals with peers at distance 1, 2, 4, ... (as in MPICH and Open MPI).

    Surplus ranks signal a neighbour before, and are signalled after.

    Rounds log2 p (+2 where p is no power of two).

    >>> from mpicoll.algorithms import find
    >>> find("barrier", "recursive_doubling").show(0, 4)
    send(1) reduce_right(1)
    send(2) reduce_right(2)
    """
    return folded(rank, size, shapes.doubling)


@algorithm("barrier")
def recexch(rank: int, size: int, radix: int = 4) -> Schedule:
    """Exchange signals in groups of k at distance 1, k, k^2, ... (as in MPICH and UCC).

    Surplus ranks signal a neighbour before, and are signalled after.

    Rounds floor(log_k p) with k-1 ports (+2 where p is no power of k).

    >>> from mpicoll.algorithms import find
    >>> find("barrier", "recexch").show(0, 4)
    send(1) recv(1) send(2) recv(2) send(3) recv(3)
    """
    return folded(
        rank, size, lambda me, count: shapes.near_first(me, count, lambda _: (), radix), radix=radix
    )


@algorithm("barrier")
def direct(rank: int, size: int) -> Schedule:
    """Signal everyone at once, and wait for everyone (as in gloo).

    Rounds 1 with p-1 ports.

    >>> from mpicoll.algorithms import find
    >>> find("barrier", "direct").show(0, 4)
    send(1) send(2) send(3) recv(1) recv(2) recv(3)
    """
    peers = [peer for peer in range(size) if peer != rank]
    yield (*(send(peer) for peer in peers), *(recv(peer) for peer in peers))
