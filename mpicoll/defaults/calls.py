"""Calls as libraries see them, and the choices that they make."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

Level = Literal["local", "across"]
"""Inside nodes, or between them."""


@dataclass(frozen=True)
class Call:
    """A call as libraries see it when they decide; the same on all ranks.

    >>> call = Call(ranks=6, bytes=64, nodes=3, largest=2)
    >>> call.power_of_two, call.even, call.window, call.root_is_zero
    (False, True, 4, True)
    >>> call.several_nodes, call.one_per_node, call.part("local", limit=64).ranks
    (True, False, 2)

    Attributes:
        bytes: of the vector, or of the row of one rank or pair; the mean of uneven rows.
        total: bytes of the vector, or of all rows.
        count: elements of the vector, or of one row.
        builtin: the operator is the library's own, not a user's function.
        regular: all rows are equal.
        largest: the ranks of the largest node.
        balanced: all nodes have as many ranks.
        consecutive: ranks of a node are neighbours.
    """

    ranks: int
    bytes: int = 0
    total: int = 0
    count: int = 0
    commutative: bool = True
    builtin: bool = True
    regular: bool = True
    in_place: bool = False
    root: int = 0
    nodes: int = 1
    largest: int = 0
    balanced: bool = True
    consecutive: bool = True

    @property
    def power_of_two(self) -> bool:
        """Whether the number of ranks is a power of two."""
        return self.ranks == self.window

    @property
    def even(self) -> bool:
        """Whether the number of ranks is even."""
        return self.ranks % 2 == 0

    @property
    def root_is_zero(self) -> bool:
        """Whether the root is rank 0."""
        return self.root == 0

    @property
    def window(self) -> int:
        """The largest power of two up to the number of ranks."""
        return 1 << (self.ranks.bit_length() - 1)

    @property
    def several_nodes(self) -> bool:
        """Whether there are several nodes, some with several ranks."""
        return 1 < self.nodes < self.ranks

    @property
    def one_per_node(self) -> bool:
        """Whether there are several nodes of one rank each."""
        return 1 < self.nodes == self.ranks

    def part(self, level: Level, limit: int) -> Call:
        """Return the call inside one node (``local``) or among one rank of each (``across``).

        Args:
            limit: bytes that go at a time.
        """
        ranks, nodes = (self.largest, 1) if level == "local" else (self.nodes, self.nodes)
        has_rows, merged = self.total > self.bytes, 1 if level == "local" else self.largest
        nbytes = min(self.bytes, limit) * (merged if has_rows else 1)
        return replace(
            self, ranks=ranks, nodes=nodes, largest=ranks // nodes, root=0,
            bytes=nbytes, total=nbytes * (ranks if has_rows else 1),
            count=self.count * nbytes // self.bytes if self.bytes else self.count,
        )  # fmt: skip


class Choice(NamedTuple):
    """The algorithm that a library takes.

    >>> Choice("MPIR_Bcast_intra_binomial", "binomial", "").schedule
    'binomial'

    Attributes:
        name: as the library calls it, then what its code falls back to.
        schedule: as `mpicoll.algorithms.find` takes it.
        note: how the schedule differs from what the library does; empty where it does not.
    """

    name: str
    schedule: str
    note: str
