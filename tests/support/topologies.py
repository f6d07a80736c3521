"""Topologies for tests, as narrow as can be."""

from __future__ import annotations

from collections.abc import Iterator

from mpicoll.costs import AlphaBeta, Dragonfly, FatTree, Nodes, Switch, Topology, Torus
from mpicoll.simulator import contiguous


def topologies(size: int) -> Iterator[Topology]:
    """Yield some of each kind that have so many ranks."""
    yield Switch(size)
    yield Nodes(size, nodes=contiguous(size, max(1, size // 3)), memory=AlphaBeta(1e-7, 1e-10))
    yield Nodes(size, nodes=contiguous(size, max(1, size // 2)))
    yield FatTree(size, hop=1e-7, radix=3, oversubscription=3)
    yield FatTree(size, radix=2)
    yield Torus(size, hop=1e-7, dims=(size,))
    if size % 4 == 0:
        yield Torus(size, hop=2e-7, dims=(2, size // 4, 2))
        yield Dragonfly(size, hop=1e-7, routers=2, ports=1)
