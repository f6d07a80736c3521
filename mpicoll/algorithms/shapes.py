"""Communication shapes that several collectives share; none is an algorithm by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

from mpicoll.notation.schedule import (
    Block,
    Round,
    Schedule,
    Temp,
    fold,
    recv,
    reduce,
    send,
    side_of,
)

Part = Callable[[int], Iterable[int]]


def flat(rank: int, size: int, root: int, load: Callable[[int], Iterable[Block]]) -> Schedule:
    """Send each rank its load straight from the root, one message per round.

    The order is such that the reverse folds the nearest ranks first: rank order is kept.
    """
    if rank != root:
        yield recv(root, *load(rank))
        return
    for peer in (*range(size - 1, root, -1), *range(root)):
        yield send(peer, *load(peer))


def tree(rank: int, size: int, radix: int, load: Callable[[int, int], Iterable[Block]]) -> Schedule:
    """Send down the k-nomial tree from rank 0; `load(a, b)` is for the subtree of ranks a..b-1."""
    span = 1
    while span < size:
        span *= radix
    while span > 1:
        reach, span = span, span // radix
        if rank % reach == 0:
            children = range(rank + span, min(rank + reach, size), span)
            yield tuple(send(to, *load(to, min(to + span, size))) for to in children)
        elif rank % span == 0:
            yield recv(rank - rank % reach, *load(rank, min(rank + span, size)))


def staggered(arriving: Iterable[Round], leaving: Iterable[Round]) -> Schedule:
    """Merge two schedules, the second one round behind the first."""
    for parts in zip_longest((*arriving, ()), ((), *leaving), fillvalue=()):
        yield tuple(op for part in parts for op in part)


def passed_down(parent: int | None, children: Sequence[int], segments: Sequence[Block]) -> Schedule:
    """Hand segments down a tree, each to all children the round after it arrived."""
    return staggered(
        [] if parent is None else [(recv(parent, segment),) for segment in segments],
        [tuple(send(child, segment) for child in children) for segment in segments],
    )


def relayed(rank: int, size: int, arriving: Iterable[Block], leaving: Iterable[Block]) -> Schedule:
    """Pass blocks along the chain of ranks, each one the round after it arrived."""
    return staggered(
        [(recv(rank - 1, block),) for block in arriving if rank > 0],
        [(send(rank + 1, block),) for block in leaving if rank < size - 1],
    )


def _exchange(peer: int, mine: range, peer_parts: range, part: Part) -> Round:
    def blocks(parts: range) -> list[int]:
        return sorted(block for index in parts for block in part(index))

    return send(peer, *blocks(mine)), recv(peer, *blocks(peer_parts))


def near_first(rank: int, size: int, part: Part, radix: int = 2) -> Schedule:
    """Exchange parts at distance 1, k, k^2, ...: each rank holds a growing run of parts."""
    distance = 1
    while distance < size:
        mine = rank // distance * distance
        yield tuple(
            op
            for peer in alike(rank, distance, radix)
            for op in _exchange(
                peer,
                range(mine, mine + distance),
                range(peer // distance * distance, (peer // distance + 1) * distance),
                part,
            )
        )
        distance *= radix


def far_first(rank: int, size: int, part: Part, radices: Sequence[int] = ()) -> Schedule:
    """Exchange parts at distance p/2, p/4, ..., 1: each rank holds every d-th part.

    Backwards, as a reduce-scatter, close ranks fold first: rank order is kept.

    Args:
        radices: how many ranks exchange in each round, 2 by default; their product is `size`.
    """
    distance = size
    for radix in radices or [2] * (size.bit_length() - 1):
        stride, distance = distance, distance // radix
        yield tuple(
            op
            for peer in alike(rank, distance, radix)
            for op in _exchange(
                peer, range(rank % stride, size, stride), range(peer % stride, size, stride), part
            )
        )


def alike(rank: int, distance: int, radix: int) -> list[int]:
    """Return the ranks that differ only in one digit, in the order in which to fold them.

    >>> alike(5, distance=1, radix=4), alike(5, distance=4, radix=3)
    ([4, 6, 7], [1, 9])
    """
    digit = rank // distance % radix
    first = rank - digit * distance
    return [first + index * distance for index in in_rank_order(digit, radix)]


def doubling(rank: int, size: int, *blocks: Block) -> Schedule:
    """Exchange and fold whole blocks with peers at distance 1, 2, 4, ...; a power of two."""
    distance = 1
    while distance < size:
        peer = rank ^ distance
        yield send(peer, *blocks), reduce(peer, *blocks, side=side_of(peer, rank))
        distance *= 2


def in_rank_order(rank: int, size: int) -> list[int]:
    """Return the other ranks in the order in which folding them keeps rank order."""
    return [*reversed(range(rank)), *range(rank + 1, size)]


def meeting(me: int, group: Sequence[int], block: Block = 0) -> Round:
    """Exchange one block in a group of ranks, of which one is the me-th, and fold all of them.

    Everyone folds from left to right, in the same association: all get the same bits.
    """
    sends = (send(peer, block) for index, peer in enumerate(group) if index != me)
    return (*sends, *gathering(me, group, block))


def gathering(me: int, group: Sequence[int], block: Block = 0) -> Round:
    """Receive one block of each of a group of ranks, of which one is the me-th, and fold all.

    From left to right, as `meeting` does.
    """
    came = {index: Temp(f"from{index}", block) for index in range(len(group)) if index != me}
    earlier, later = list(came.values())[:me], list(came.values())[me:]
    return (
        *(recv(group[index], vector) for index, vector in came.items()),
        *(fold(earlier[0], vector, "right") for vector in earlier[1:]),
        *((fold(block, earlier[0], "left"),) if earlier else ()),
        *(fold(block, vector, "right") for vector in later),
    )


def wrapped(first: int, length: int, size: int) -> list[int]:
    """Return the ranks from `first` on, going round at `size`."""
    return [index % size for index in range(first, first + length)]


def factors(size: int, limit: int) -> list[int]:
    """Split a number into factors of at most `limit`, where primes allow it, large ones first.

    >>> factors(24, 4), factors(14, 4), factors(1, 4)
    ([4, 3, 2], [2, 7], [])
    """
    result = []
    while size > 1:
        divisors = [divisor for divisor in range(2, size + 1) if size % divisor == 0]
        result.append(
            max((divisor for divisor in divisors if divisor <= limit), default=divisors[0])
        )
        size //= result[-1]
    return result


def windows(size: int) -> int:
    """Return the largest power of two up to `size`."""
    return 1 << (size.bit_length() - 1)


def mirrored(parts: int) -> Part:
    """Name a power of two of parts by their bits read backwards: every 2^i-th become a run."""
    width = parts.bit_length() - 1
    return lambda index: (int(f"{index:0{width}b}"[::-1], 2),)


def core_after_swap(size: int, root: int = 0) -> list[int]:
    """Return the ranks that go on after `swapped`: one of each of the first pairs, the root's."""
    surplus = size - windows(size)
    firsts = [root if root in (2 * i, 2 * i + 1) else 2 * i for i in range(surplus)]
    return [*firsts, *range(2 * surplus, size)]


def swapped(rank: int, core: Sequence[int], size: int) -> Schedule:
    """Fold the surplus ranks in: neighbours fold half each, then one gets both halves.

    Half the reduction of `folded` for one more round (Rabenseifner 2004).
    """
    power = len(core)
    if rank >= 2 * (size - power):
        return
    peer, halves = rank ^ 1, (range(power // 2), range(power // 2, power))
    half, peer_half = halves[rank % 2], halves[peer % 2]
    yield send(peer, *peer_half), reduce(peer, *half, side=side_of(peer, rank))
    yield recv(peer, *peer_half) if rank in core else send(peer, *half)
