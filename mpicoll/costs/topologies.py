"""The topologies that there are: a switch, nodes, fat trees, tori, a dragonfly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod

import numpy as np

from mpicoll.backend import Nodes as Groups
from mpicoll.costs.groups import Groups as RankGroups
from mpicoll.costs.models import AlphaBeta, check_times
from mpicoll.costs.topology import NONE, Cut, Flags, Ranks, Topology, in_order
from mpicoll.errors import ArgumentError

_ROUNDING = 1e-9
_MOST_DIMENSIONS = 20


class Switch(Topology):
    """One switch that is never the limit: only the ports of the ranks are.

    >>> print(Switch(8, hop=1e-7))
    Switch, 0.1 us a hop
    """


@dataclass(frozen=True)
class Nodes(Topology):
    """Nodes on one switch: the ranks of a node share its link, one in each direction.

    >>> network = Nodes(4, nodes=((0, 1), (2, 3)))
    >>> network.path(np.array([0, 0]), np.array([1, 2])).tolist()
    [[-1, 0], [-1, 3]]
    >>> network.links, network.groups, network.intra_node
    (4, ((0, 1), (2, 3)), None)
    >>> network.is_intra_node(np.array([0]), np.array([1])), len(list(network.cuts(root=0)))
    (None, 2)
    >>> from mpicoll.costs.groups import grouped
    >>> network.permits(grouped(network.nodes))
    True

    Attributes:
        nodes: the ranks of each node.
        memory: the time of messages within a node, which use no link; that of all others if None.

    Raises:
        ArgumentError: a rank is on no node, or on two.
    """

    nodes: Groups = ()
    memory: AlphaBeta | None = None

    def __post_init__(self) -> None:
        if sorted(rank for node in self.nodes for rank in node) != [*range(self.size)]:
            raise ArgumentError(f"these nodes do not name each of {self.size} ranks once")
        super().__post_init__()
        if self.memory:
            check_times(**self.memory._asdict())

    def __str__(self) -> str:
        widths = sorted({len(node) for node in self.nodes}, reverse=True)
        inside = f" (within: {self.memory})" if self.memory else ""
        ranks = " or ".join(map(str, widths))
        return self._with_hops(f"Nodes, {len(self.nodes)} of {ranks} ranks{inside}")

    @property
    def links(self) -> int:  # type: ignore[override]
        """An uplink and a downlink for each node."""
        return 2 * len(self.nodes)

    @property
    def groups(self) -> Groups:
        """The nodes."""
        return self.nodes

    @cached_property
    def _node_of(self) -> Ranks:
        node_of = np.empty(self.size, np.int64)
        for index, node in enumerate(self.nodes):
            node_of[list(node)] = index
        return node_of

    @property
    def intra_node(self) -> AlphaBeta | None:
        """The time of a message within a node; None where it is that of all others."""
        return self.memory

    def is_intra_node(self, sources: Ranks, targets: Ranks) -> Flags | None:
        """Return which messages stay within a node; None where `memory` is not given."""
        if self.memory is None:
            return None
        is_local: Flags = self._node_of[sources] == self._node_of[targets]
        return is_local

    def path(self, sources: Ranks, targets: Ranks) -> Ranks:
        """Up from the one node and down to the other."""
        source_nodes, target_nodes = self._node_of[sources], self._node_of[targets]
        return _links_where(
            source_nodes != target_nodes, source_nodes, len(self.nodes) + target_nodes
        )

    def permits(self, groups: RankGroups) -> bool:
        """Whether groups are the nodes."""
        return self.divides_into(groups)

    def cuts(self, root: int) -> Iterator[Cut]:
        """Yield every node."""
        if len(self.nodes) > 1:
            yield from (Cut(len(node), root in node, 1) for node in self.nodes)


@dataclass(frozen=True)
class FatTree(Topology):
    """Leaf switches below a row of spines, each joined to each leaf (Leiserson 1985).

    A leaf has fewer links up than ranks, by the factor `oversubscription`. A message goes up
    to the spine that its target's number chooses (destination modulo the number of spines).
    Messages to one rank therefore share their way, and all others may collide.

    >>> tree = FatTree(8, radix=4, oversubscription=2)
    >>> tree.leaves, tree.spines, tree.path(np.array([0, 0]), np.array([1, 5])).tolist()
    (2, 2, [[-1, 1], [-1, 7]])
    >>> tree.links, [cut.links for cut in tree.cuts(root=0)]
    (8, [2])
    >>> from mpicoll.costs.groups import grouped
    >>> tree.permits(grouped(tree.groups))
    True

    Attributes:
        radix: ranks on a leaf; the last leaf may have fewer.
        oversubscription: links down over links up of a leaf, 1 or more.

    Raises:
        ArgumentError: the leaves have no ranks, or more links up than down.
    """

    radix: int = 32
    oversubscription: float = 1.0

    def __post_init__(self) -> None:
        if self.radix < 1:
            raise ArgumentError(f"a leaf has at least one rank, not {self.radix}")
        if not 1 <= self.oversubscription <= self.radix:
            raise ArgumentError(
                f"oversubscription {self.oversubscription} is out of range: with {self.radix} "
                f"ranks on a leaf it is from 1 to {self.radix}"
            )
        if abs(self.radix / self.oversubscription - self.spines) > _ROUNDING:
            fewer = int(self.radix / self.oversubscription)
            raise ArgumentError(
                f"{self.radix} ranks on a leaf have no whole number of links up with "
                f"oversubscription {self.oversubscription:g}: with {fewer + 1} it is "
                f"{self.radix / (fewer + 1):g}, with {fewer} it is {self.radix / fewer:g}"
            )
        super().__post_init__()

    def __str__(self) -> str:
        return self._with_hops(
            f"FatTree, {self.leaves} leaves of {self.radix} ranks, {self.spines} links up of each"
        )

    @property
    def leaves(self) -> int:
        """The number of leaf switches."""
        return ceil(self.size / self.radix)

    @property
    def spines(self) -> int:
        """The number of spines, which is that of links up from a leaf."""
        return round(self.radix / self.oversubscription)

    @property
    def links(self) -> int:  # type: ignore[override]
        """Up from each leaf to each spine, then down again."""
        return 2 * self.leaves * self.spines

    @cached_property
    def groups(self) -> Groups:
        """The ranks of each leaf."""
        return in_order(self.size, self.radix)

    def path(self, sources: Ranks, targets: Ranks) -> Ranks:
        """Up to a spine and down to the other leaf."""
        source_leaf, target_leaf, spine = (
            sources // self.radix,
            targets // self.radix,
            targets % self.spines,
        )
        up, down = (
            source_leaf * self.spines + spine,
            (self.leaves + target_leaf) * self.spines + spine,
        )
        return _links_where(source_leaf != target_leaf, up, down)

    def permits(self, groups: RankGroups) -> bool:
        """Whether groups are the leaves, and all leaves choose spines alike."""
        return self.radix % self.spines == 0 and self.divides_into(groups)

    def cuts(self, root: int) -> Iterator[Cut]:
        """Yield the first leaf, and the first half of them."""
        for leaves in {1, self.leaves // 2} if self.leaves > 1 else ():
            ranks = leaves * self.radix
            yield Cut(ranks, root < ranks, leaves * self.spines)


@dataclass(frozen=True)
class Torus(Topology):
    """A grid closed in every dimension: ranks are joined to their neighbours on either side.

    Messages cross the last dimension first, each the shorter way round (dimension order).

    >>> grid = Torus(9, dims=(3, 3))
    >>> grid.path(np.array([0]), np.array([5])).tolist()
    [[3], [8]]
    >>> grid.links, [cut.links for cut in grid.cuts(root=0)]
    (36, [6, 6])

    Attributes:
        dims: ranks along each dimension; the last one's neighbours have adjacent numbers.

    Raises:
        ArgumentError: the dimensions do not multiply to the number of ranks.
    """

    dims: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.dims or min(self.dims) < 1 or prod(self.dims) != self.size:
            shape = "x".join(map(str, self.dims)) or "no dimensions"
            raise ArgumentError(
                f"a torus of {shape} does not have {self.size} ranks, but {prod(self.dims)}"
            )
        if len(self.dims) > _MOST_DIMENSIONS:
            raise ArgumentError(
                f"a torus of {len(self.dims)} dimensions: at most {_MOST_DIMENSIONS} are simulated"
            )
        super().__post_init__()

    def __str__(self) -> str:
        return self._with_hops(f"Torus, {'x'.join(map(str, self.dims))} ranks")

    @property
    def links(self) -> int:  # type: ignore[override]
        """For each rank and dimension one forwards and one back."""
        return 2 * len(self.dims) * self.size

    @cached_property
    def groups(self) -> Groups:
        """The ranks of each line along the last dimension."""
        return in_order(self.size, self.dims[-1])

    def path(self, sources: Ranks, targets: Ranks) -> Ranks:
        """Step by step along each dimension."""
        links, at = [], sources
        for dim in reversed(range(len(self.dims))):
            way, at = self._along(dim, at, targets)
            links.append(way)
        return np.concatenate(links)

    def _along(self, dim: int, at: Ranks, targets: Ranks) -> tuple[Ranks, Ranks]:
        """Return the links of one dimension, and where they lead."""
        width, stride = self.dims[dim], prod(self.dims[dim + 1 :])
        here = at // stride % width
        ahead = (targets // stride - here) % width
        back = 2 * ahead > width
        count, sign = np.where(back, width - ahead, ahead), np.where(back, -1, 1)
        steps = np.arange(count.max(initial=0))[:, None]
        ranks = at + ((here + sign * steps) % width - here) * stride
        links = 2 * (ranks * len(self.dims) + dim) + back
        links[steps >= count] = NONE
        return links, at + ((here + ahead) % width - here) * stride

    def cuts(self, root: int) -> Iterator[Cut]:
        """Yield the first half of each dimension, which is cut in two places."""
        for dim, width in enumerate(self.dims):
            if width > 1:
                half, lines = width // 2, self.size // width
                place = root // prod(self.dims[dim + 1 :]) % width
                yield Cut(half * lines, place < half, 2 * lines)


@dataclass(frozen=True)
class Dragonfly(Topology):
    """Groups of routers: all pairs of routers of a group are joined, and all pairs of groups.

    A message takes the shortest way (minimal routing; Kim, Dally, Scott and Abts 2008): to the
    router that has the link to the other group, over it, and to the target's router. The links to
    the other groups are dealt out to the routers of a group in turn.

    >>> fly = Dragonfly(8, routers=2, ports=2)
    >>> fly.path(np.array([0, 0]), np.array([2, 7])).tolist()
    [[1, -1], [-1, 9], [-1, 5]]
    >>> fly.width, fly.count, fly.links, len(list(fly.cuts(root=0))) > 0
    (4, 2, 12, True)

    Attributes:
        routers: routers of a group.
        ports: ranks on a router.

    Raises:
        ArgumentError: the ranks do not fill whole groups.
    """

    routers: int = 4
    ports: int = 4

    def __post_init__(self) -> None:
        if min(self.routers, self.ports) < 1 or self.size % self.width:
            raise ArgumentError(
                f"groups of {self.routers} routers with {self.ports} ranks each do not hold "
                f"{self.size} ranks evenly: choose a multiple of {self.routers * self.ports}"
            )
        super().__post_init__()

    def __str__(self) -> str:
        return self._with_hops(
            f"Dragonfly, {self.count} groups of {self.routers} routers of {self.ports} ranks"
        )

    @property
    def width(self) -> int:
        """Ranks of a group."""
        return self.routers * self.ports

    @property
    def count(self) -> int:
        """The number of groups."""
        return self.size // self.width

    @property
    def links(self) -> int:  # type: ignore[override]
        """Between all routers of each group, then between all groups."""
        return self.count * self.routers**2 + self.count**2

    @cached_property
    def groups(self) -> Groups:
        """The ranks of each group."""
        return in_order(self.size, self.width)

    def path(self, sources: Ranks, targets: Ranks) -> Ranks:
        """Within the group, over to the other, and within that one."""
        source_group, target_group = sources // self.width, targets // self.width
        start, stop = (ranks // self.ports % self.routers for ranks in (sources, targets))
        leaving = np.where(
            source_group == target_group, stop, self._gateway(source_group, target_group)
        )
        entering = np.where(
            source_group == target_group, stop, self._gateway(target_group, source_group)
        )
        across = self.count * self.routers**2 + source_group * self.count + target_group
        return np.stack(
            [
                self._local(source_group, start, leaving),
                np.where(source_group == target_group, NONE, across),
                self._local(target_group, entering, stop),
            ]
        )

    def _gateway(self, group: Ranks, peer_group: Ranks) -> Ranks:
        """Return the router of a group that is joined to the other one."""
        router: Ranks = (peer_group - group - 1) % self.count % self.routers
        return router

    def _local(self, group: Ranks, router: Ranks, target: Ranks) -> Ranks:
        link = (group * self.routers + router) * self.routers + target
        return np.where(router == target, NONE, link)

    def cuts(self, root: int) -> Iterator[Cut]:
        """Yield the first group, and the first half of them."""
        for groups in {1, self.count // 2} if self.count > 1 else ():
            ranks = groups * self.width
            yield Cut(ranks, root < ranks, groups * (self.count - groups))


def _links_where(crossing: Flags, *links: Ranks) -> Ranks:
    """Return paths of these links where messages cross them, and empty ones elsewhere."""
    return np.where(crossing, np.stack(links), NONE)
