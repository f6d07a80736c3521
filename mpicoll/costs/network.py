"""The network of a few nodes whose links were measured, and the price of a schedule on it.

Messages take ``alpha + n beta``, and their start-ups overlap. Messages between nodes share the
links of their nodes, one in each direction, and wait for them in turn. Messages within a node have
an alpha and beta of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from mpicoll.algorithms.registry import Algorithm
from mpicoll.backend import Nodes as Groups
from mpicoll.costs.events import simulate
from mpicoll.costs.listings import pattern_of
from mpicoll.costs.models import AlphaBeta, Hockney
from mpicoll.costs.topologies import Nodes
from mpicoll.costs.topology import in_order
from mpicoll.errors import ArgumentError
from mpicoll.records.lines import FitRecord, Record
from mpicoll.records.reading import only


@dataclass(frozen=True)
class Network:
    """The times of messages and folds.

    >>> Network(AlphaBeta(2e-6, 1e-10)).between.alpha
    2e-06

    Attributes:
        between: messages of ranks of different nodes.
        within: messages of ranks of one node; like `between` if None.
        gamma: seconds to fold a byte.
    """

    between: AlphaBeta
    within: AlphaBeta | None = None
    gamma: float = 0.0

    @classmethod
    def fitted(cls, records: Iterable[Record], backend: str, gamma: float = 0.0) -> Self:
        """Return the network that `mpicoll.p2p` measured, from its records of kind ``fit``.

        If no pair of ranks was on two nodes, those of one node stand for them.

        >>> Network.fitted([], "mpi4py")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        mpicoll.errors.ArgumentError: no fits of mpi4py in these records: python -m mpicoll.p2p...

        Args:
            records: the lines of a file, as `mpicoll.records.reading.load` returns them.
            backend: ``mpi4py`` or ``torch``.
            gamma: seconds to fold a byte.

        Raises:
            ArgumentError: no messages between ranks were measured.
        """
        between, within = (record and message_time(record) for record in measured(records, backend))
        return cls(between or within, within, gamma)  # type: ignore[arg-type]


def message_time(record: FitRecord) -> AlphaBeta:
    """Return the time of a message, in seconds."""
    return AlphaBeta(record.alpha_us / 1e6, record.beta_ns_per_byte / 1e9)


def measured(records: Iterable[Record], backend: str) -> tuple[FitRecord | None, FitRecord | None]:
    """Return the fits of messages between nodes and within one; None if not measured.

    Raises:
        ArgumentError: neither was measured.
    """
    lines: dict[bool, dict[str, FitRecord]] = {True: {}, False: {}}
    for record in only(FitRecord, records):
        if record.backend == backend:
            lines[record.link == "network"][record.transport] = record
    # The transports of auto and of plain schedules come first.
    ways = ("symmetric", "point-to-point", "cma")
    between, within = (
        next((lines[is_network][way] for way in ways if way in lines[is_network]), None)
        for is_network in (True, False)
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

    >>> from mpicoll.algorithms import find
    >>> ring = find("allreduce", "ring")
    >>> f"{price(ring, 4, 1 << 20, Network(AlphaBeta(2e-6, 1e-10))):.2e} s"
    '1.69e-04 s'

    Args:
        nbytes: of a vector, or of all rows of a row-wise collective.
        nodes: the ranks of each node; each rank is a node of its own by default.

    Raises:
        Unsupported: the algorithm cannot serve this number of ranks.
    """
    placed = nodes or in_order(size, 1)
    pattern = pattern_of(algorithm, size, root, placed)
    model = Hockney(*network.between, network.gamma, ports=None)
    return simulate(pattern, nbytes, model, Nodes(size, nodes=placed, memory=network.within))
