"""Alltoall: every rank sends a row of its own to every rank."""

from __future__ import annotations

from mpicoll.algorithms import algorithm
from mpicoll.schedule import Schedule, recv, send


@algorithm("alltoall", aliases=("linear",))
def naive(rank: int, size: int) -> Schedule:
    """Send every rank its row at once.

    All p-1 messages of a rank are in flight together; the library sorts out the rest.

    Rounds 1 with p-1 ports; bytes sent (p-1)/p m.
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
    >>> for round in find("alltoall", "pairwise").rounds(0, 4):
    ...     print(*round)
    send(1, (0, 1)) recv(1, (1, 0))
    send(2, (0, 2)) recv(2, (2, 0))
    send(3, (0, 3)) recv(3, (3, 0))
    """
    paired = size & (size - 1) == 0
    for step in range(1, size):
        to, source = (
            (rank ^ step, rank ^ step) if paired else ((rank + step) % size, (rank - step) % size)
        )
        yield send(to, (rank, to)), recv(source, (source, rank))


@algorithm("alltoall")
def bruck(rank: int, size: int, radix: int = 2) -> Schedule:
    """Forward rows along the digits of their distance to go (Bruck et al. 1997).

    A row that must travel `offset` ranks to the right hops j k^i of them in phase i,
    where j is the i-th digit of `offset` to the base k. Few rounds, each row many times.

    Rounds ceil(log_k p) with k-1 ports; bytes sent about m (k-1)/k ceil(log_k p).

    >>> from mpicoll.algorithms import find
    >>> for round in find("alltoall", "bruck").rounds(0, 4):
    ...     print(*round)
    send(1, (0, 1), (0, 3)) recv(3, (3, 0), (3, 2))
    send(2, (0, 2), (3, 2)) recv(2, (2, 0), (1, 0))
    """
    distance = 1
    while distance < size:
        hops = range(distance, min(radix * distance, size), distance)
        yield (
            *(
                send((rank + hop) % size, *_moving(rank, size, hop, distance, radix))
                for hop in hops
            ),
            *(
                recv((rank - hop) % size, *_moving(rank - hop, size, hop, distance, radix))
                for hop in hops
            ),
        )
        distance *= radix


def _moving(at: int, size: int, hop: int, distance: int, radix: int) -> list[tuple[int, int]]:
    """Return the rows that leave rank `at` for `hop` ranks to its right."""
    offsets = [o for o in range(1, size) if o // distance % radix == hop // distance]
    sources = [(offset, (at - offset % distance) % size) for offset in offsets]
    return [(source, (source + offset) % size) for offset, source in sources]


@algorithm("alltoall")
def ring(rank: int, size: int) -> Schedule:
    """Forward rows around the ring until they meet their destination.

    In round i a rank passes on the rows of the i-th rank to its left that have farther
    to go. Every message goes to a neighbour, at the price of much forwarding.

    Rounds p-1; bytes sent (p-1)/2 m.

    >>> from mpicoll.algorithms import find
    >>> for round in find("alltoall", "ring").rounds(0, 4):
    ...     print(*round)
    send(1, (0, 1), (0, 2), (0, 3)) recv(3, (3, 0), (3, 1), (3, 2))
    send(1, (3, 1), (3, 2)) recv(3, (2, 0), (2, 1))
    send(1, (2, 1)) recv(3, (1, 0))
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(1, size):
        yield (
            send(right, *_travelling((rank - step + 1) % size, size, step)),
            recv(left, *_travelling((rank - step) % size, size, step)),
        )


def _travelling(source: int, size: int, step: int) -> list[tuple[int, int]]:
    return [(source, (source + offset) % size) for offset in range(step, size)]
