"""Trees beyond the k-nomial one: postal trees, and pairs of binary trees that share the load.

In a pair of trees every rank has children in one of them at most, so that both together keep all
links busy both ways: half of the blocks go down each (Sanders, Speck and Träff 2009).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache

from mpicoll.notation.schedule import Op, Schedule, recv, send

Parents = tuple[int | None, ...]
"""The parent of every rank in a tree; the root has none."""


def postal(size: int, latency: int) -> Iterator[tuple[int, int]]:
    """Yield the edges of a postal tree, from parent to child, in the order in which they send.

    A rank that has the message sends it to another one in every unit of time, where it arrives
    `latency` units later. So the most ranks that can be reached in a time are a generalised
    Fibonacci number (Bar-Noy and Kipnis 1992).

    >>> [*postal(5, latency=2)], [*postal(5, latency=1)]
    ([(0, 3), (3, 4), (0, 2), (0, 1)], [(0, 4), (0, 2), (2, 3), (0, 1)])
    """
    reached = [1] * latency
    while reached[-1] < size:
        reached.append(reached[-1] + reached[-latency])

    def below(start: int, stop: int) -> Iterator[tuple[int, int]]:
        while stop - start > 1:
            child = start + reached[bisect_left(reached, stop - start) - 1]
            yield start, child
            yield from below(child, stop)
            stop = child

    return below(0, size)


@lru_cache(maxsize=256)
def in_order(size: int) -> Parents:
    """Return the binary tree of rank 0 above the search tree of the others: odd ranks are leaves.

    >>> in_order(7)
    (None, 2, 4, 2, 0, 6, 4)
    """
    parents: list[int | None] = [None]
    for rank in range(1, size):
        low = rank & -rank
        above = (rank ^ low) | (low << 1)
        parents.append(above if above < size else rank ^ low)
    return tuple(parents)


@lru_cache(maxsize=256)
def pair_below(size: int) -> tuple[Parents, Parents]:
    """Return two trees below rank 0, the second one among the other ranks mirrored or shifted."""
    count = size - 1
    moved = (lambda rank: size - rank) if count % 2 == 0 else (lambda rank: rank % count + 1)
    return in_order(size), _moved(in_order(size), [0, *map(moved, range(1, size))])


@lru_cache(maxsize=256)
def pair(size: int) -> tuple[Parents, Parents]:
    """Return two trees with roots of their own, as in NCCL: the second one mirrored or shifted."""
    moved = (lambda rank: size - 1 - rank) if size % 2 == 0 else (lambda rank: (rank + 1) % size)
    return in_order(size), _moved(in_order(size), [*map(moved, range(size))])


def _moved(parents: Parents, ranks: list[int]) -> Parents:
    result: list[int | None] = [None] * len(parents)
    for rank, parent in enumerate(parents):
        result[ranks[rank]] = None if parent is None else ranks[parent]
    return tuple(result)


def down(rank: int, trees: tuple[Parents, Parents], segments: int) -> Schedule:
    """Hand even segments down the first tree and odd ones down the second, one message at a time.

    Every rank sends one message and receives one in a round at most.
    """
    events: dict[int, list[Op]] = defaultdict(list)
    for (which, child), start in _starts(trees).items():
        parent = trees[which][child]
        assert parent is not None
        if rank not in (parent, child):
            continue
        for number, segment in enumerate(range(which, segments, 2)):
            op = send(child, segment) if rank == parent else recv(parent, segment)
            events[start + 2 * number].append(op)
    for time in sorted(events):
        yield tuple(events[time])


@lru_cache(maxsize=256)
def _starts(trees: tuple[Parents, Parents]) -> dict[tuple[int, int], int]:
    """Return when the edge above each rank of each tree passes its first segment.

    An edge is used in every other round: in even ones or in odd ones, so that no rank sends twice
    or receives twice at once.
    """
    colour = _coloured(trees)
    starts: dict[tuple[int, int], int] = {}

    def start(which: int, child: int) -> int:
        if (which, child) not in starts:
            parent = trees[which][child]
            assert parent is not None
            ready = 0 if trees[which][parent] is None else start(which, parent) + 1
            starts[which, child] = ready + (ready + colour[which, child]) % 2
        return starts[which, child]

    for edge in colour:
        start(*edge)
    return starts


def _coloured(trees: Iterable[Parents]) -> dict[tuple[int, int], int]:
    """Colour edges 0 and 1, so that the two of one sender, or of one receiver, differ.

    No rank has more than two of either, so that edges form paths and even rings of alternating
    senders and receivers: following them colours all.
    """
    touching: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    ends: dict[tuple[int, int], tuple[tuple[str, int], tuple[str, int]]] = {}
    for which, parents in enumerate(trees):
        for child, parent in enumerate(parents):
            if parent is not None:
                edge = which, child
                ends[edge] = ("sends", parent), ("receives", child)
                for end in ends[edge]:
                    touching[end].append(edge)
    colour: dict[tuple[int, int], int] = {}
    for first in ends:
        colour.setdefault(first, 0)
        paths = [first]
        while paths:
            edge = paths.pop()
            for end in ends[edge]:
                for neighbour in touching[end]:
                    if neighbour not in colour:
                        colour[neighbour] = 1 - colour[edge]
                        paths.append(neighbour)
    return colour
