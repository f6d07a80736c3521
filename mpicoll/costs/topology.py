"""The description of a topology: the links that messages share, and which of them each one takes.

A topology numbers its inner links, one for each direction, and says which of them a message
takes; a rank's own ports belong to the model. All links are as fast as a port. A message holds
those of its path together, from its start until its bytes have passed (cut-through), and each of
them adds `hop` seconds to its latency.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mpicoll.backend import Nodes
from mpicoll.costs.groups import Groups, grouped
from mpicoll.costs.models import AlphaBeta, check_times
from mpicoll.errors import ArgumentError

Ranks = np.ndarray
Flags = np.ndarray
NONE = -1
"""Stands in a path where there is no further link."""
_MOST_LINKS = 1 << 26


class Cut(NamedTuple):
    """A cut of the network: two sides, and the links between them.

    Attributes:
        ranks: how many are on one side; `rooted`: whether the root is one of them.
        links: how many lead to the other side, and as many back.
    """

    ranks: int
    rooted: bool
    links: int


@dataclass(frozen=True)
class Topology:
    """The base of all topologies; by itself, ranks that share no link.

    >>> ports = Topology(4)
    >>> print(ports), ports.links, ports.groups, ports.intra_node
    Topology
    (None, 0, ((0,), (1,), (2,), (3,)), None)
    >>> ranks = np.array([0]), np.array([1])
    >>> ports.path(*ranks).size, ports.is_intra_node(*ranks), list(ports.cuts(root=0))
    (0, None, [])
    >>> nodes = grouped(ports.groups)
    >>> ports.permits(nodes), ports.divides_into(nodes)
    (True, True)

    Attributes:
        size: number of ranks.
        hop: seconds for each inner link of a message's path.
    """

    size: int
    hop: float = 0.0

    links = 0
    """The number of inner links."""

    def __post_init__(self) -> None:
        check_times(hop=self.hop)
        if self.links > _MOST_LINKS:
            raise ArgumentError(
                f"{self} has {self.links:,} links: at most {_MOST_LINKS:,} can be simulated"
            )

    def __str__(self) -> str:
        return self._with_hops(f"{type(self).__name__}")

    def _with_hops(self, text: str) -> str:
        return f"{text}, {1e6 * self.hop:g} us a hop" if self.hop else text

    @cached_property
    def groups(self) -> Nodes:
        """The ranks of each node or its like, for node-aware algorithms."""
        return in_order(self.size, 1)

    @property
    def intra_node(self) -> AlphaBeta | None:
        """The time of messages that use no network; None where it is that of all others."""
        return None

    def is_intra_node(self, sources: Ranks, targets: Ranks) -> Flags | None:
        """Return which messages take the time `intra_node`; None where none do."""
        return None

    def path(self, sources: Ranks, targets: Ranks) -> Ranks:
        """Return the inner links of each message in a column, filled up with NONE."""
        return np.empty((0, len(sources)), np.int64)

    def permits(self, groups: Groups) -> bool:
        """Whether any two of these groups, if as wide, use links that are alike.

        Then they are the topology's `groups`, and each has as many links up and as many down:
        these are numbered by direction, then by group.
        """
        return not self.links

    def divides_into(self, groups: Groups) -> bool:
        """Whether these groups are this topology's `groups`."""
        units = grouped(self.groups)
        return np.array_equal(groups.ranks, units.ranks) and np.array_equal(
            groups.first, units.first
        )

    def cuts(self, root: int) -> Iterator[Cut]:
        """Yield cuts that bound the traffic of the topology."""
        return iter(())


def in_order(size: int, width: int) -> Nodes:
    """Return groups of `width` ranks in their order; the last one may have fewer.

    >>> in_order(5, 3)
    ((0, 1, 2), (3, 4))
    """
    return tuple(tuple(range(at, min(at + width, size))) for at in range(0, size, width))
