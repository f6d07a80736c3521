"""Algorithms inside others: on a group of ranks, such as a node, and with blocks of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from mpicoll.algorithms.registry import Algorithm, Counts, Nodes, Pairs, find
from mpicoll.errors import ArgumentError, UnknownName, Unsupported
from mpicoll.notation.schedule import Block, Schedule, on, widened

Runs = Callable[[Any, int], Iterable[Block]]
"""Which blocks the i-th of n blocks of an algorithm inside another one stands for."""


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
    return max(size, *(algorithm.blocks(size) for algorithm in inner))


def finer(size: int, *inner: Algorithm) -> int:
    """Return the same where groups share the blocks evenly: the blocks of one rank times `size`.

    >>> finer(4, find("allreduce", "double_tree(segments=2)"), find("allgather", "ring"))
    8
    """
    return size * max(algorithm.blocks(1) for algorithm in inner)


def rows_of(ranks: Sequence[int], parts: int) -> list[Block]:
    """Return the blocks of some ranks' rows, of `parts` blocks per row."""
    return [block for rank in ranks for block in range(rank * parts, (rank + 1) * parts)]


def way_back(of: str, forward: str, back: str) -> str:
    """Return the algorithm for the way back: by default the one of the same name as `forward`.

    Raises:
        ArgumentError: none is.
    """
    if not back:
        try:
            find(of, forward)
        except UnknownName as error:
            raise ArgumentError(f"{error}; for the way back, name one by back=") from None
    return back or forward


def lane(rank: int, nodes: Nodes) -> tuple[int, int, tuple[int, ...]]:
    """Return a rank's node, its place there, and the ranks in that place on every node.

    Raises:
        Unsupported: nodes have different numbers of ranks.
    """
    if len(set(map(len, nodes))) > 1:
        counts = ", ".join(map(str, map(len, nodes)))
        raise Unsupported(f"lanes needs as many ranks on every node, not {counts}")
    number = next(index for index, node in enumerate(nodes) if rank in node)
    place = nodes[number].index(rank)
    return number, place, tuple(node[place] for node in nodes)


def leaders(nodes: Nodes, root: int | None = None) -> list[int]:
    """Return one rank of each node: the root of its own node, else the first rank."""
    return [node[0] if root is None or root not in node else root for node in nodes]


def node_of(rank: int, nodes: Nodes) -> tuple[int, ...]:
    """Return the ranks of the node that a rank is on."""
    return next(node for node in nodes if rank in node)


def rows_between(counts: Pairs) -> Callable[[Any], int]:
    """Return a function from a block of pairs to its number of rows."""
    return lambda pair: counts[pair[0]][pair[1]]
