"""Exscan: rank i ends with the fold of the vectors of ranks 0..i-1; rank 0 with nothing."""

from __future__ import annotations

from mpicoll.algorithms import algorithm, scan
from mpicoll.algorithms.shapes import staggered
from mpicoll.schedule import Schedule, Temp, copy, fold, on, recv, send


@algorithm("exscan", blocks=1, aliases=("naive",))
def linear(rank: int, size: int) -> Schedule:
    """Pass the prefix from rank to rank, each forwarding it with its own vector folded in.

    Least work, but everyone waits for everyone before.

    Rounds p-1; bytes sent and reduced m.

    >>> from mpicoll.algorithms import find
    >>> for round in find("exscan", "linear").rounds(3, 4):
    ...     print(*round)
    recv(2, 0)
    """
    return chain(rank, size, segments=1)


@algorithm("exscan", blocks="segments", aliases=("pipeline",))
def chain(rank: int, size: int, segments: int = 8) -> Schedule:
    """Pass the prefix from rank to rank in segments.

    A rank keeps each segment as it came, and forwards it one round later with its own
    folded in.

    Rounds p-2+n for n segments; bytes sent and reduced m.
    """
    first, last = rank == 0, rank == size - 1
    came = [Temp("prefix", segment) for segment in range(segments)]
    arriving = [
        (recv(rank - 1, here),) if last else (recv(rank - 1, came[here]), fold(here, came[here]))
        for here in range(segments)
    ]
    leaving = [
        (send(rank + 1, here), *(() if first else (copy(here, came[here]),)))
        for here in range(segments)
    ]
    return staggered([] if first else arriving, [] if last else leaving)


@algorithm("exscan", blocks=1)
def hillis_steele(rank: int, size: int) -> Schedule:
    """Shift all vectors one rank to the right, then scan them (Hillis and Steele 1986).

    After the shift rank i holds its left neighbour's vector, and the inclusive scan
    among ranks 1..p-1 is the exclusive one.

    Rounds 1+ceil(log2(p-1)); bytes sent m(1+ceil(log2(p-1))), reduced m ceil(log2(p-1)).

    >>> from mpicoll.algorithms import find
    >>> for round in find("exscan", "hillis_steele").rounds(3, 4):
    ...     print(*round)
    recv(2, 0)
    reduce_left(2, 0)
    reduce_left(1, 0)
    """
    yield (
        *((send(rank + 1, 0),) if rank < size - 1 else ()),
        *((recv(rank - 1, 0),) if rank > 0 else ()),
    )
    if rank > 0:
        yield from on(range(1, size), scan.hillis_steele(rank - 1, size - 1))


@algorithm("exscan", blocks=1)
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Exchange group totals with peers at distance 1, 2, 4, ... (as in MPICH and Open MPI).

    Each rank keeps the total of its group; those from the left make up the prefix.

    Rounds ceil(log2 p); bytes sent m ceil(log2 p), reduced up to 2m ceil(log2 p).
    """
    return scan.doubling(rank, size, inclusive=False)
