"""What no schedule can beat: lower bounds of a collective on a network of one-port links.

Latency: what one rank knows can reach p of them in no fewer than ceil(log2 p) rounds, where a
rank sends one message in a round. Bandwidth: what some rank, or some node, must send or receive,
over its one link. Folds: what must be folded, shared evenly. Each of them holds by itself, so the
largest does (Chan, Heimlich, Purkayastha and van de Geijn 2007). Ranks that start several
messages at once, or read the memory of several others, may beat the first of them, and hardware
that copies or folds on the way all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mpicoll.backend import Nodes
from mpicoll.contract import collective as named
from mpicoll.costs import Link, Network


class Bound(NamedTuple):
    """Seconds, each of which holds by itself."""

    latency: float
    bandwidth: float
    folds: float

    @property
    def seconds(self) -> float:
        """The largest of them."""
        return max(self)


_SHARES: dict[str, Callable[[int], float]] = {
    "barrier": lambda size: 0.0,
    "allreduce": lambda size: 2 * (size - 1) / size,
    **dict.fromkeys(
        ("gather", "scatter", "allgather", "reduce_scatter", "alltoall"),
        lambda size: (size - 1) / size,
    ),
    **dict.fromkeys(("broadcast", "reduce", "scan", "exscan"), lambda size: 1.0),
}
"""The share of all bytes that one of so many ranks must send, or must receive."""


def lower_bound(
    collective: str, size: int, nbytes: int, network: Network, nodes: Nodes | None = None
) -> Bound:
    """Return the bounds of a collective.

    Args:
        nbytes: of a vector, or of all rows of a row-wise collective, as nccl-tests counts.
        nodes: the ranks of each node; a node for each rank by default.

    Raises:
        UnknownName: there is no such collective.

    >>> bound = lower_bound("allreduce", 4, 1000, Network(Link(1.0, 0.01)))
    >>> bound.latency, bound.bandwidth, bound.seconds
    (2.0, 15.0, 15.0)
    """
    what = named(collective)
    if size == 1:
        return Bound(0.0, 0.0, 0.0)
    count = len(nodes) if nodes else size
    far, near = network.between, network.within or network.between
    quick = near if count == 1 else Link(min(far.alpha, near.alpha), min(far.beta, near.beta))
    rounds = _rounds(size) * quick.alpha
    moved = _SHARES[what.name](size) * nbytes * quick.beta
    if count > 1:
        rounds = max(rounds, _rounds(count) * far.alpha)
        moved = max(moved, _across(what.name, size, nbytes, nodes) * far.beta)
    folds = (size - 1) / size * nbytes * network.gamma if what.reduces else 0.0
    return Bound(rounds, moved, folds)


def _rounds(size: int) -> int:
    return (size - 1).bit_length()


def _across(name: str, size: int, nbytes: int, nodes: Nodes | None) -> float:
    """Return the bytes that the link of some node must carry in one direction."""
    count = len(nodes) if nodes else size
    if name != "alltoall":
        # Some node lacks at least as much as one does where all are of one size.
        return _SHARES[name](count) * nbytes
    most = max((len(each) for each in nodes), default=1) if nodes else 1
    return most * (size - most) * nbytes / size
