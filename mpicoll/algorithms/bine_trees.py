"""Bine trees and Swing: peers at distance 1, 1, 3, 5, 11, ... to the right and left in turn.

The distance of step s is |1 - (-2)^(s+1)| / 3, so that messages stay nearer than at 1, 2, 4, ...
(De Sensi et al. 2024, arXiv 2401.09356, and 2025, arXiv 2508.17311). The papers serve powers of
two and fold other ranks in. What a rank must pass on follows here from *reach sets* instead,
which cover every even number of ranks with the same rounds and the least volume.
"""

from __future__ import annotations

from functools import lru_cache

from mpicoll.notation.schedule import Schedule, recv, send


def partner(rank: int, step: int, size: int) -> int:
    """Return the rank to meet in a step: even ranks look right first, odd ones left.

    >>> [partner(0, step, 16) for step in range(4)], [partner(1, step, 16) for step in range(4)]
    ([1, 15, 3, 11], [0, 2, 14, 6])
    """
    distance: int = (1 - (-2) ** (step + 1)) // 3
    return (rank + (distance if rank % 2 == 0 else -distance)) % size


@lru_cache(maxsize=256)
def reach(size: int) -> tuple[tuple[int, ...], ...]:
    """Return for each step the distances of the rows that it brings to rank 0.

    The steps run backwards, distant peers first: what a rank has then doubles, and what step i
    brings is new. Odd ranks take the distances to the other side.

    >>> reach(8)
    ((1, 2, 5, 6), (4, 7), (3,))
    """
    held, brought = {0}, []
    for step in reversed(range((size - 1).bit_length())):
        peer_distances = {(partner(0, step, size) - distance) % size for distance in held}
        brought.append(tuple(sorted(peer_distances - held)))
        held |= peer_distances
    return tuple(reversed(brought))


def swing(rank: int, size: int) -> Schedule:
    """Allgather: exchange missing rows with partners, the most distant first."""

    def rows(at: int, distances: tuple[int, ...]) -> list[int]:
        return sorted((at + (d if at % 2 == 0 else -d)) % size for d in distances)

    sets = reach(size)
    for step in reversed(range(len(sets))):
        peer = partner(rank, step, size)
        yield send(peer, *rows(peer, sets[step])), recv(peer, *rows(rank, sets[step]))


@lru_cache(maxsize=256)
def tree(size: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the edges (sender, receiver) of each round of a broadcast by rank 0; size is even.

    >>> tree(8)
    (((0, 3),), ((0, 7), (3, 4)), ((0, 1), (3, 2), (4, 5), (7, 6)))
    """
    informed, rounds = {0}, []
    for step in reversed(range((size - 1).bit_length())):
        edges = [(rank, partner(rank, step, size)) for rank in sorted(informed)]
        fresh = tuple(edge for edge in edges if edge[1] not in informed)
        informed |= {child for _, child in fresh}
        rounds.append(fresh)
    return tuple(rounds)


@lru_cache(maxsize=256)
def subtrees(size: int) -> tuple[tuple[int, ...], ...]:
    """Return for each rank the ranks below it in the tree, and itself.

    >>> subtrees(8)[3]
    (2, 3, 4, 5)
    """
    below = [{rank} for rank in range(size)]
    for edges in reversed(tree(size)):
        for parent, child in edges:
            below[parent] |= below[child]
    return tuple(tuple(sorted(ranks)) for ranks in below)
