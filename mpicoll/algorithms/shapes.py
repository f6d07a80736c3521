"""Shapes that several collectives share, each written once; none is an algorithm by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import cast

from mpicoll.algorithms import Nodes, find
from mpicoll.errors import ArgumentError, Unsupported
from mpicoll.schedule import (
    Block,
    Round,
    Schedule,
    on,
    recv,
    reduce,
    send,
    side_of,
    widened,
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
    """Merge two schedules, the second one round behind the first: what arrives leaves next."""
    for parts in zip_longest((*arriving, ()), ((), *leaving), fillvalue=()):
        yield tuple(op for part in parts for op in part)


def relayed(rank: int, size: int, arriving: Iterable[Block], leaving: Iterable[Block]) -> Schedule:
    """Pass blocks along the chain of ranks, each one the round after it arrived."""
    return staggered(
        [(recv(rank - 1, block),) for block in arriving if rank > 0],
        [(send(rank + 1, block),) for block in leaving if rank < size - 1],
    )


def inside(
    group: Sequence[int], rank: int, of: str, text: str, root: int,
    runs: Callable[[int, int], Iterable[Block]],
) -> Schedule:  # fmt: skip
    """Run the algorithm that `text` names on a group of ranks; the others do nothing.

    Args:
        runs: returns the blocks that block `i` of `n` of the inner algorithm stands for.

    Raises:
        ArgumentError: that algorithm has no such blocks.
    """
    if rank not in group:
        return
    inner = find(of, text)
    count = inner.blocks(len(group))
    try:
        for step in on(group, inner.rounds(group.index(rank), len(group), group.index(root))):
            ops = step if isinstance(step, tuple) else (step,)
            yield tuple(widened(op, lambda block: runs(cast(int, block), count)) for op in ops)
    except (TypeError, IndexError) as error:
        raise ArgumentError(f"{text!r} cannot run inside another algorithm: {error}") from None


def split(blocks: Sequence[Block]) -> Callable[[int, int], Iterable[Block]]:
    """Cut a run of blocks evenly, for `inside`.

    >>> [*split(range(8))(1, 3)], [*split(range(8))(0, 1)]
    ([3, 4, 5], [0, 1, 2, 3, 4, 5, 6, 7])

    Raises:
        ArgumentError: when asked for more parts than there are blocks.
    """
    size = len(blocks)

    def part(block: int, count: int) -> Iterable[Block]:
        if count > size:
            raise ArgumentError(
                f"an inner algorithm cuts the vector into {count} blocks, but there are {size}, "
                "one for each rank: choose fewer segments"
            )
        return blocks[-(-block * size // count) : -(-(block + 1) * size // count)]

    return part


def in_lanes(nodes: Nodes) -> Callable[[int, int], Iterable[Block]]:
    """Let a block of an algorithm inside a node stand for all rows of one lane, for `inside`."""
    return lambda block, _: [node[block] for node in nodes]


def lane(rank: int, nodes: Nodes) -> tuple[int, int, tuple[int, ...]]:
    """Return a rank's node, its place there, and the ranks in that place on every node.

    Raises:
        Unsupported: nodes have different numbers of ranks.
    """
    if len(set(map(len, nodes))) > 1:
        counts = ", ".join(map(str, map(len, nodes)))
        raise Unsupported(f"lanes needs as many ranks on every node, not {counts}")
    number = next(index for index, each in enumerate(nodes) if rank in each)
    place = nodes[number].index(rank)
    return number, place, tuple(each[place] for each in nodes)


def leaders(nodes: Nodes, root: int | None = None) -> list[int]:
    """Return one rank for each node: the root for its own, if there is one, else the first."""
    return [node[0] if root is None or root not in node else root for node in nodes]


def node_of(rank: int, nodes: Nodes) -> tuple[int, ...]:
    """Return the ranks of the node that a rank is on."""
    return next(node for node in nodes if rank in node)


def _exchange(peer: int, mine: range, theirs: range, part: Part) -> Round:
    def blocks(parts: range) -> list[int]:
        return sorted(block for index in parts for block in part(index))

    return send(peer, *blocks(mine)), recv(peer, *blocks(theirs))


def near_first(rank: int, size: int, part: Part) -> Schedule:
    """Exchange parts at distance 1, 2, 4, ...: each rank holds a growing run of parts."""
    distance = 1
    while distance < size:
        peer = rank ^ distance
        mine, theirs = (index // distance * distance for index in (rank, peer))
        yield _exchange(peer, range(mine, mine + distance), range(theirs, theirs + distance), part)
        distance *= 2


def far_first(rank: int, size: int, part: Part) -> Schedule:
    """Exchange parts at distance p/2, p/4, ..., 1: each rank holds every d-th part.

    Backwards, as a reduce-scatter, near ranks fold first: rank order is kept.
    """
    distance = size // 2
    while distance:
        peer, stride = rank ^ distance, 2 * distance
        yield _exchange(
            peer, range(rank % stride, size, stride), range(peer % stride, size, stride), part
        )
        distance //= 2


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
    mine, theirs = halves[rank % 2], halves[peer % 2]
    yield send(peer, *theirs), reduce(peer, *mine, side=side_of(peer, rank))
    yield recv(peer, *theirs) if rank in core else send(peer, *mine)
