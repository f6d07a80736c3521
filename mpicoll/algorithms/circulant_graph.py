"""Circulant graphs, in which rank r is joined to r + s for a few skips s: any number of ranks.

The skips halve the number of ranks again and again, rounded up, so that what a rank knows doubles
in every round whatever that number is (Bruck et al. 1997, Träff 2024, arXiv 2410.14234). On the
same graph a broadcast of n blocks takes the fewest rounds there can be, n - 1 + ceil(log2 p)
(Träff and Ripke 2008; Träff 2023, arXiv 2312.11236); `receive_table` says who gets what when.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from mpicoll.algorithms.shapes import wrapped
from mpicoll.notation.schedule import Schedule, recv, send


@lru_cache(maxsize=256)
def skips(size: int, ports: int = 1) -> tuple[int, ...]:
    """Return 1, ..., size, each a (ports+1)-th of the next one, rounded up.

    >>> skips(11), skips(11, ports=2), skips(1)
    ((1, 2, 3, 6, 11), (1, 2, 4, 11), (1,))
    """
    steps = [size]
    while steps[-1] > 1:
        steps.append(-(-steps[-1] // (ports + 1)))
    return tuple(reversed(steps))


def widening(rank: int, size: int, steps: Sequence[int]) -> Schedule:
    """Allgather: fetch rows from the right until a run of 1, ..., size of them is held.

    Args:
        steps: how long the run is before each round, and at the end.
    """
    for held, wanted in pairwise(steps):
        runs = [(hop, min(held, wanted - hop)) for hop in range(held, wanted, held)]
        yield (
            *(send((rank - hop) % size, *wrapped(rank, n, size)) for hop, n in runs),
            *(recv((rank + hop) % size, *wrapped(rank + hop, n, size)) for hop, n in runs),
        )


class Turn(NamedTuple):
    """One rank's round of a broadcast of n blocks by rank 0.

    A block is None where there is nothing to send or to get.
    """

    to: int
    leaving: int | None
    source: int
    arriving: int | None


def turns(rank: int, size: int, blocks: int) -> Iterator[Turn]:
    """Yield the rounds of one rank in a broadcast of `blocks` blocks by rank 0."""
    skip, phase = skips(size), len(skips(size)) - 1
    if not phase:
        return
    idle = -(blocks - 1) % phase
    for now in range(idle, blocks - 1 + phase + idle):
        step, offset = now % phase, now // phase * phase - idle
        to, source = (rank + skip[step]) % size, (rank - skip[step]) % size
        leaving = receive_table(to, size)[step] + offset if to else -1
        arriving = receive_table(rank, size)[step] + offset if rank else -1
        last = blocks - 1
        yield Turn(
            to, min(leaving, last) if leaving >= 0 else None,
            source, min(arriving, last) if arriving >= 0 else None,
        )  # fmt: skip


@lru_cache(maxsize=4096)
def receive_table(rank: int, size: int) -> tuple[int, ...]:
    """Return which block a rank gets in each round of a phase; below 0, of the phase before.

    Every rank has a *base block*, the first that it gets: the index of the last skip on the
    greedy way to it from the root. In a round it gets a block that one of those has which the
    round's skip brings into reach.

    >>> [receive_table(rank, 5) for rank in range(1, 5)]
    [(0, -1, -2), (-3, 1, -1), (-2, -3, 2), (-1, -2, 0)]
    """
    base = _base_blocks(size)
    phase, base_block = base[0], base[rank]
    unused = {*range(phase + 1)} - {base_block}
    table = []
    for skip, reach in pairwise(skips(size)):
        near = {base[rank - hop] for hop in range(skip, reach)} & unused
        best = max(near or {base[rank - reach]} & unused)
        unused.discard(best)
        table.append(base_block if best == phase else best - phase)
    return tuple(table)


@lru_cache(maxsize=256)
def _base_blocks(size: int) -> tuple[int, ...]:
    """Return every rank's base block; the root has all blocks, so its own is the phase."""
    ways = skips(size)
    blocks = [len(ways) - 1]
    for rank in range(1, size):
        remaining, last = rank, 0
        for index in reversed(range(len(ways))):
            if ways[index] <= remaining:
                remaining, last = remaining - ways[index], index
        blocks.append(last)
    return tuple(blocks)
