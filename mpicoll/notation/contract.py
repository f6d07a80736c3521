"""The contract of each collective: contents before and after, shapes, roots, factors.

This is the one place that defines what a rank holds before a collective and must hold
after it. The simulator's proof, the run-time check's expected values and the memory
layout all follow from it.

A *contribution* ``(rank, block)`` is what that rank held under that name at the start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast

from mpicoll.errors import UnknownName
from mpicoll.notation.schedule import Block

Contribution = tuple[int, Block]
Contents = dict[Block, tuple[Contribution, ...]]
Side = Literal["input", "output"]
Shape = tuple[int, ...]
Counts = Sequence[int] | Sequence[Sequence[int]]
"""Every rank's rows, or ``counts[source][target]`` rows."""


class Place(NamedTuple):
    """Which rank of how many, which root, and into how many blocks vector or rows are cut."""

    rank: int
    size: int
    root: int
    blocks: int

    @property
    def parts(self) -> int:
        """Into how many blocks each row is cut: those of row i are i * parts and following."""
        return max(1, self.blocks // self.size)


@dataclass(frozen=True, repr=False)
class Collective:
    """One collective operation.

    Attributes:
        input_blocks: blocks a rank holds at the start, in the order of its input array.
        output_contents: blocks a rank must hold at the end, in the order of its output array,
            each with the contributions that its value is folded from, in rank order.
        unit: what a block is: a piece of every rank's ``vector``, one row per rank
            (``rows``), one row per pair of ranks (``pairs``), or nothing (barrier).
        from_root: only the root gives an array; `to_root`: only the root gets one.
        stacks: the arrays whose first axis is one row per rank; with counts the rows of all
            ranks lie together there.
        synchronizes: no rank can end before all have begun, where no block is empty.
        busbw: factor from algorithm to bus bandwidth (nccl-tests' PERFORMANCE.md).
    """

    name: str
    input_blocks: Callable[[Place], list[Block]]
    output_contents: Callable[[Place], Contents]
    unit: Literal["none", "vector", "rows", "pairs"] = "vector"
    rooted: bool = False
    from_root: bool = False
    to_root: bool = False
    stacks: tuple[Side, ...] = ()
    reduces: bool = False
    synchronizes: bool = False
    busbw: Callable[[int], float] = lambda size: 1.0
    aliases: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def has_input(self, rank: int, root: int) -> bool:
        """Whether a rank gives an array to this collective."""
        return self.unit != "none" and (not self.from_root or rank == root)

    def has_output(self, rank: int, root: int) -> bool:
        """Whether a rank gets an array from this collective."""
        return self.unit != "none" and (not self.to_root or rank == root)

    def shape(
        self, side: Side, row: Shape, rank: int, size: int, counts: Counts | None = None
    ) -> Shape:
        """Return the shape of a rank's input or output.

        Args:
            row: of the vector, or of one row.
            counts: rows per rank, or per pair of ranks; one each by default.
        """
        if self.unit == "vector":
            return row
        stacked = side in self.stacks
        if counts is None:
            return (size, *row) if stacked else row
        if self.unit == "pairs":
            matrix = cast("Sequence[Sequence[int]]", counts)
            mine = matrix[rank] if side == "input" else [row[rank] for row in matrix]
            return (sum(mine), *row)
        rows = cast("Sequence[int]", counts)
        return (sum(rows) if stacked else rows[rank], *row)


def _vector(at: Place) -> list[Block]:
    return list(range(at.blocks))


def _rows(at: Place) -> list[Block]:
    return list(range(at.size * at.parts))


def _block_of_rank(at: Place) -> list[Block]:
    return list(range(at.rank * at.parts, (at.rank + 1) * at.parts))


@lru_cache(maxsize=65536)
def _fold_of(ranks: range, block: Block) -> tuple[Contribution, ...]:
    return tuple((rank, block) for rank in ranks)


def _folded(ranks: range, blocks: list[Block]) -> Contents:
    return {block: _fold_of(ranks, block) for block in blocks}


def _at_root(contents: Callable[[Place], Any]) -> Callable[[Place], Any]:
    def rooted(at: Place) -> Any:
        result = contents(at)
        return result if at.rank == at.root else type(result)()

    return rooted


def _from_root(at: Place) -> Contents:
    return {block: ((at.root, block),) for block in _vector(at)}


def _reduced(at: Place) -> Contents:
    return _folded(range(at.size), _vector(at))


def _gathered(at: Place) -> Contents:
    return {block: ((block // at.parts, block),) for block in range(at.size * at.parts)}


def _exprefix(at: Place) -> Contents:
    return _folded(range(at.rank), _vector(at)) if at.rank else {}


def _rows_factor(size: int) -> float:
    return (size - 1) / size


COLLECTIVES = {
    entry.name: entry
    for entry in (
        Collective("barrier", lambda at: [], lambda at: {}, unit="none", synchronizes=True),
        Collective(
            "broadcast", _at_root(_vector), _from_root, rooted=True, from_root=True,
            aliases=("bcast",),
        ),
        Collective(
            "reduce", _vector, _at_root(_reduced), rooted=True, to_root=True, reduces=True
        ),
        Collective(
            "allreduce", _vector, _reduced, reduces=True, synchronizes=True,
            busbw=lambda size: 2 * (size - 1) / size,
        ),
        Collective(
            "gather", _block_of_rank, _at_root(_gathered), unit="rows", rooted=True, to_root=True,
            stacks=("output",), busbw=_rows_factor,
            aliases=("gatherv",),
        ),
        Collective(
            "allgather", _block_of_rank, _gathered, unit="rows", stacks=("output",),
            synchronizes=True,
            busbw=_rows_factor,
            aliases=("allgatherv", "allgatherintotensor"),
        ),
        Collective(
            "scatter", _at_root(_rows),
            lambda at: {block: ((at.root, block),) for block in _block_of_rank(at)}, unit="rows",
            rooted=True, from_root=True, stacks=("input",), busbw=_rows_factor,
            aliases=("scatterv",),
        ),
        Collective(
            "reduce_scatter", _rows, lambda at: _folded(range(at.size), _block_of_rank(at)),
            unit="rows", reduces=True, stacks=("input",), synchronizes=True, busbw=_rows_factor,
            aliases=("reducescatterblock", "reducescattertensor"),
        ),
        Collective(
            "alltoall",
            lambda at: [(at.rank, peer) for peer in range(at.size)],
            lambda at: {(peer, at.rank): ((peer, (peer, at.rank)),) for peer in range(at.size)},
            unit="pairs", stacks=("input", "output"), synchronizes=True, busbw=_rows_factor,
            aliases=("alltoallv", "alltoallsingle"),
        ),
        Collective(
            "scan", _vector, lambda at: _folded(range(at.rank + 1), _vector(at)), reduces=True
        ),
        Collective("exscan", _vector, _exprefix, reduces=True),
    )
}  # fmt: skip


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_SPELLINGS = {
    _plain(spelling): entry
    for entry in COLLECTIVES.values()
    for spelling in (entry.name, *entry.aliases)
}


def collective(name: str) -> Collective:
    """Look a collective up by any spelling of the field.

    >>> collective("Reduce-Scatter").name, collective("all_reduce").name, collective("bcast").name
    ('reduce_scatter', 'allreduce', 'broadcast')

    Raises:
        UnknownName: there is no such collective.
    """
    match = spelled(name)
    if match is None:
        raise UnknownName("collective", name, COLLECTIVES)
    return match


def spelled(name: object) -> Collective | None:
    """Return the collective of a spelling of the field, None where there is none."""
    return _SPELLINGS.get(_plain(name)) if isinstance(name, str) else None
