"""The network of a few nodes whose links were measured, and what a schedule takes on it.

Messages take ``alpha + n beta`` and their start-ups overlap; those between nodes share the links
of their nodes, one in each direction, and wait for them in turn; those within a node have an
alpha and beta of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from mpicoll.algorithms.registry import Algorithm
from mpicoll.costs.events import simulate
from mpicoll.costs.models import Hockney, Link
from mpicoll.costs.programs import compiled
from mpicoll.costs.records import Record, number, word
from mpicoll.costs.topologies import Nodes
from mpicoll.errors import ArgumentError
from mpicoll.interfaces import Nodes as Groups


@dataclass(frozen=True)
class Network:
    """What messages and folds take.

    Attributes:
        between: messages of ranks of different nodes.
        within: messages of ranks of one node; like `between` if None.
        gamma: seconds to fold a byte.
    """

    between: Link
    within: Link | None = None
    gamma: float = 0.0

    @classmethod
    def fitted(cls, records: Iterable[Record], backend: str, gamma: float = 0.0) -> Self:
        """Return the network that `mpicoll.p2p` measured, from its records of kind ``fit``.

        Where no pair of ranks was on two nodes, those of one node stand for them.

        Raises:
            ArgumentError: no messages between ranks were measured, or a record is damaged.
        """
        between, within = measured(records, backend)
        return cls(between or within, within, gamma)  # type: ignore[arg-type]


def measured(records: Iterable[Record], backend: str) -> tuple[Link | None, Link | None]:
    """Return what messages between nodes take, and those within one; None if not measured.

    Raises:
        ArgumentError: neither was measured, or a record is damaged.
    """
    found: dict[bool, dict[str, Link]] = {True: {}, False: {}}
    for each in records:
        if each.get("kind") == "fit" and each.get("backend") == backend:
            link = Link(number(each, "alpha_us") / 1e6, number(each, "beta_ns_per_byte") / 1e9)
            found[word(each, "link") == "network"][word(each, "transport")] = link
    # What auto and plain schedules take comes first.
    ways = ("symmetric", "point-to-point", "cma")
    between, within = (
        next((found[far][way] for way in ways if way in found[far]), None) for far in (True, False)
    )
    if between is None and within is None:
        raise ArgumentError(
            f"no fits of {backend} in these records: python -m mpicoll.p2p makes them"
        )
    return between, within


def price(
    algorithm: Algorithm, size: int, nbytes: int, network: Network, *, root: int = 0,
    nodes: Groups | None = None,
) -> float:  # fmt: skip
    """Return the seconds from a common start until the last rank is done.

    Args:
        nbytes: of a vector, or of all rows of a row-wise collective.
        nodes: the ranks of each node; each rank is a node of its own by default.

    Raises:
        Unsupported: the algorithm cannot serve this number of ranks.
    """
    placed = nodes or tuple((rank,) for rank in range(size))
    program = compiled(algorithm, size, root, placed)
    model = Hockney(*network.between, network.gamma, ports=None)
    return simulate(program, nbytes, model, Nodes(size, nodes=placed, memory=network.within))
