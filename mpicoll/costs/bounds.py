"""Lower bounds of a collective under a model and a topology, which no schedule can beat.

Latency: how fast what one rank knows can reach all others (Karp, Sahay, Santos and Schauser 1993).
Bandwidth: what some rank must send or receive over its ports, and what must cross a cut of the
topology over its links. Folds: what must be folded, shared evenly. Bytes and folds come on top of
the latency of one message. Each of them holds by itself, so the largest does (Chan, Heimlich,
Purkayastha and van de Geijn 2007).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import lru_cache
from math import sqrt
from typing import NamedTuple

from mpicoll.backend import Nodes as Groups
from mpicoll.costs import Hockney, Model, Network, Nodes, Topology
from mpicoll.costs.topology import in_order
from mpicoll.notation.contract import Collective
from mpicoll.notation.contract import collective as named


class Bound(NamedTuple):
    """Seconds, each of which holds by itself.

    Attributes:
        start: of one message, which comes before all of `bandwidth` and of `folds`.
        pipelined: of a broadcast on one port, latency and bandwidth together.
    """

    latency: float
    bandwidth: float
    folds: float
    start: float = 0.0
    pipelined: float = 0.0

    @property
    def limits(self) -> dict[str, float]:
        """The seconds of each limit, by its name."""
        return {
            "latency": self.latency, "bandwidth": self.start + self.bandwidth,
            "folds": self.start + self.folds, "pipelined": self.pipelined,
        }  # fmt: skip

    @property
    def seconds(self) -> float:
        """The largest of the limits."""
        return max(self.limits.values())


_CROSSING: dict[str, Callable[[int, int, bool], float]] = {
    "barrier": lambda inside, outside, rooted: 0.0,
    "alltoall": lambda inside, outside, rooted: inside * outside / (inside + outside),
    **dict.fromkeys(
        ("allgather", "reduce_scatter"),
        lambda inside, outside, rooted: max(inside, outside) / (inside + outside),
    ),
    **dict.fromkeys(
        ("gather", "scatter"),
        lambda inside, outside, rooted: (outside if rooted else inside) / (inside + outside),
    ),
    **dict.fromkeys(
        ("broadcast", "reduce", "allreduce", "scan", "exscan"), lambda inside, outside, rooted: 1.0
    ),
}
"""The share of all bytes that must cross between these ranks and the others, in one direction."""


def _share(contract: Collective, size: int) -> float:
    """Return the share of all bytes that some rank must send, or must receive.

    That is nccl-tests' factor of bus bandwidth.
    """
    return 0.0 if contract.unit == "none" else contract.busbw(size)


def bound(collective: str, nbytes: float, model: Model, topology: Topology, root: int = 0) -> Bound:
    """Return the bounds of a collective.

    Args:
        nbytes: of a vector, or of all rows of a row-wise collective, as nccl-tests counts.

    Raises:
        UnknownName: there is no such collective.

    >>> from mpicoll.costs import Switch
    >>> bound("broadcast", 1000, Hockney(alpha=1.0, beta=0.01), Switch(8))
    Bound(latency=3.0, bandwidth=10.0, folds=0.0, start=1.0, pipelined=20.944271909999163)
    >>> bound("allreduce", 1000, Hockney(alpha=1.0, beta=0.01, ports=2), Switch(8)).seconds
    9.75
    """
    contract, size = named(collective), topology.size
    if size == 1:
        return Bound(0.0, 0.0, 0.0)
    quick = _quickest(model, topology)
    latency = max(_spread(size, quick.alpha, quick.hold, model.servers), _across(model, topology))
    bandwidth = _share(contract, size) * quick.beta / model.servers
    for cut in topology.cuts(root):
        crossing = _CROSSING[contract.name](cut.ranks, size - cut.ranks, cut.rooted)
        bandwidth = max(bandwidth, crossing * model.beta / cut.links)
    if contract.name == "allreduce" and isinstance(topology, Nodes):
        bandwidth = max(bandwidth, _share(contract, len(topology.nodes)) * model.beta)
    # The first rank of an exscan gets nothing, so one vector need not be folded.
    folded = max(0, size - 1 - (contract.name == "exscan")) / size if contract.reduces else 0.0
    result = Bound(latency, bandwidth * nbytes, folded * nbytes * model.gamma, quick.alpha)
    one_port = model.has_port_limit and model.servers == 1
    if contract.name == "broadcast" and one_port and model.hold == model.latency:
        return result._replace(pipelined=_pipelined(size, quick, nbytes))
    return result


def lower_bound(
    collective: str, size: int, nbytes: int, network: Network, nodes: Groups | None = None
) -> Bound:
    """Return the bounds of a collective on a network of nodes whose ranks have one port.

    Ranks that start several messages at once, or read the memory of several others, may beat
    the bound of latency, and hardware that copies or folds on the way all of them.

    Args:
        nbytes: as in `bound`.
        nodes: the ranks of each node; a node for each rank by default.

    Raises:
        UnknownName: there is no such collective.

    >>> from mpicoll.costs import AlphaBeta
    >>> found = lower_bound("allreduce", 4, 1000, Network(AlphaBeta(1.0, 0.01)))
    >>> found.latency, found.bandwidth, found.seconds
    (2.0, 15.0, 16.0)
    """
    placed = nodes or in_order(size, 1)
    model = Hockney(*network.between, network.gamma)
    topology = Nodes(size, nodes=placed, memory=network.within)
    return bound(collective, nbytes, model, topology)._replace(pipelined=0.0)


class _Quickest(NamedTuple):
    """The least time of a message and of a byte, and for how long it keeps a port busy."""

    alpha: float
    beta: float
    hold: float


def _quickest(model: Model, topology: Topology) -> _Quickest:
    between, inside = _Quickest(model.latency, model.beta, model.hold), topology.intra_node
    if inside is None or len(topology.groups) == topology.size:
        return between
    if model.has_port_limit:
        within = _Quickest(*inside, inside.alpha)
    else:  # messages within a node do not wait for each other
        within = _Quickest(inside.alpha, 0.0, 0.0)
    return within if len(topology.groups) == 1 else _Quickest(*map(min, between, within))


@lru_cache(maxsize=None, typed=True)  # 1 and 1.0 are equal
def _spread(size: int, latency: float, hold: float, servers: int) -> float:
    """Return the least time in which the data of one rank reaches `size` ranks.

    A rank that has it starts a message on each of its servers, and another one whenever a
    server becomes free. (Karp, Sahay, Santos and Schauser 1993)
    """
    if size == 1 or not hold:
        return latency if size > 1 else 0.0
    informed, arriving, times = 1, {latency: servers}, [latency]
    while True:
        now = heapq.heappop(times)
        count = arriving.pop(now)
        informed += count
        if informed >= size:
            return now
        for time, more in ((now + hold, count), (now + latency, count * servers)):
            if time not in arriving:
                heapq.heappush(times, time)
            arriving[time] = arriving.get(time, 0) + more


def _across(model: Model, topology: Topology) -> float:
    """Return the same for nodes, all of whose ranks may send."""
    if not isinstance(topology, Nodes):
        return 0.0
    servers = model.servers * max(map(len, topology.nodes))
    return _spread(len(topology.nodes), model.latency, model.hold, servers)


def _pipelined(size: int, link: _Quickest, nbytes: float) -> float:
    """Return the least time of a broadcast in n equal segments, for the best n.

    That is the least of (n - 1 + q)(alpha + m beta / n) over n, where q = ceil(log2 p).
    """
    steps = (size - 1).bit_length() - 1
    return (sqrt(steps * link.alpha) + sqrt(nbytes * link.beta)) ** 2
