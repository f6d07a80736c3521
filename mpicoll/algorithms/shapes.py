"""Communication shapes that several collectives share; none is an algorithm by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, zip_longest
from typing import Any

from mpicoll.algorithms.registry import Algorithm, Counts, Nodes, find
from mpicoll.errors import ArgumentError, UnknownName, Unsupported
from mpicoll.notation.schedule import (
    Block,
    Round,
    Schedule,
    Temp,
    fold,
    on,
    recv,
    reduce,
    send,
    side_of,
    widened,
)

Part = Callable[[int], Iterable[int]]
Runs = Callable[[Any, int], Iterable[Block]]
"""Which blocks the i-th of n blocks of an algorithm inside another one stands for."""


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


def inside(
    group: Sequence[int], rank: int, of: str, text: str, root: int, runs: Runs, *,
    nodes: Nodes | None = None, rows: Callable[[Any], int] | None = None,
) -> Schedule:  # fmt: skip
    """Run the algorithm that `text` names on a group of ranks; the others do nothing.

    Args:
        runs: returns the blocks that block `i` of `n` of the inner algorithm stands for.
        nodes: which of them are on a node, for node-aware algorithms; all on one by default.
        rows: returns how many rows a block has, for size-aware algorithms; one by default.
    """
    if rank not in group:
        return
    inner = find(of, text)
    place, size, count = group.index(rank), len(group), inner.blocks(len(group))
    counts = _counts(inner, size, runs, rows) if rows and inner.takes("counts") else None
    for step in inner.rounds(place, size, group.index(root), nodes, counts):
        wide = (widened(op, lambda block: runs(block, count)) for op in step)
        yield from on(group, [tuple(chain.from_iterable(wide))])


def _counts(inner: Algorithm, size: int, runs: Runs, rows: Callable[[Any], int]) -> Counts:
    def total(name: Block) -> int:
        return sum(map(rows, runs(name, size)))

    if inner.collective.unit == "pairs":
        return [[total((source, target)) for target in range(size)] for source in range(size)]
    return [total(rank) for rank in range(size)]


def split(blocks: Sequence[Block]) -> Runs:
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
                f"an inner algorithm cuts what it is given into {count} blocks, but there are "
                f"{size}: choose fewer segments"
            )
        return blocks[-(-block * size // count) : -(-(block + 1) * size // count)]

    return part


def by_rows(runs: Sequence[Sequence[Block]]) -> Runs:
    """Let each row of an algorithm on a group stand for a run of blocks, for `inside`.

    >>> [*by_rows([[0, 1], [4, 5]])(1, 2)], [*by_rows([[0, 1], [4, 5]])(3, 4)]
    ([4, 5], [5])

    Raises:
        ArgumentError: when a row is cut into more parts than there are blocks in its run.
    """

    def part(block: int, count: int) -> Iterable[Block]:
        parts = count // len(runs)
        return split(runs[block // parts])(block % parts, parts)

    return part


def fine(size: int, *inner: Algorithm) -> int:
    """Return into how many blocks to cut, one for each rank at least, so that others fit inside.

    >>> fine(4, find("broadcast", "chain(segments=9)"), find("allreduce", "ring"))
    9
    """
    return max(size, *(each.blocks(size) for each in inner))


def finer(size: int, *inner: Algorithm) -> int:
    """Return the same where groups share the blocks evenly: the blocks of one rank times `size`.

    >>> finer(4, find("allreduce", "double_tree(segments=2)"), find("allgather", "ring"))
    8
    """
    return size * max(each.blocks(1) for each in inner)


def rows_of(ranks: Sequence[int], each: int) -> list[Block]:
    """Return the blocks of some ranks' rows, of `each` blocks per row."""
    return [block for rank in ranks for block in range(rank * each, (rank + 1) * each)]


def way_back(of: str, there: str, back: str) -> str:
    """Return the algorithm for the way back: by default the one of the same name as `there`.

    Raises:
        ArgumentError: none is.
    """
    if not back:
        try:
            find(of, there)
        except UnknownName as error:
            raise ArgumentError(f"{error}; for the way back, name one by back=") from None
    return back or there


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
    """Return one rank of each node: the root of its own node, else the first rank."""
    return [node[0] if root is None or root not in node else root for node in nodes]


def node_of(rank: int, nodes: Nodes) -> tuple[int, ...]:
    """Return the ranks of the node that a rank is on."""
    return next(node for node in nodes if rank in node)


def _exchange(peer: int, mine: range, theirs: range, part: Part) -> Round:
    def blocks(parts: range) -> list[int]:
        return sorted(block for index in parts for block in part(index))

    return send(peer, *blocks(mine)), recv(peer, *blocks(theirs))


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
    return [first + other * distance for other in in_rank_order(digit, radix)]


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


def factors(size: int, most: int) -> list[int]:
    """Split a number into factors of at most `most`, where primes allow it, large ones first.

    >>> factors(24, 4), factors(14, 4), factors(1, 4)
    ([4, 3, 2], [2, 7], [])
    """
    found = []
    while size > 1:
        divisors = [each for each in range(2, size + 1) if size % each == 0]
        found.append(max((each for each in divisors if each <= most), default=divisors[0]))
        size //= found[-1]
    return found


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
