"""Measured times beside Hockney's model of the schedule and the lower bound.

Alpha and beta come from records of `mpicoll.p2p` of the same kind of machine, library and device,
and if possible of the transport that ran. Reductions count as free, since no record has their cost.
So the model's time for a reduction is slightly too short.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from mpicoll.algorithms.registry import find
from mpicoll.backend import Nodes
from mpicoll.costs import AlphaBeta, Network, price
from mpicoll.costs.bounds import lower_bound
from mpicoll.costs.topology import in_order
from mpicoll.errors import ArgumentError, Unsupported
from mpicoll.records.description import FullRun
from mpicoll.records.lines import CaseRecord, FitRecord
from mpicoll.report.curves import Panel, median_of
from mpicoll.report.loading import Records
from mpicoll.report.setups import machine_kind

MOST_RANKS = 64
"""Largest number of ranks for a price: with more ranks it takes seconds to compute."""

HOW_TO_MEASURE_PAIRS = (
    "The files have no records of pairs for these cases, so there are no alpha and beta to "
    "compare with. Measure pairs on the same machine with the same libraries, by mpirun -n 4 "
    "python -m mpicoll.p2p -o pairs.jsonl, and name that file too."
)


@dataclass(frozen=True)
class ModelComparison:
    """A record beside its model and bound.

    Attributes:
        links: the transport whose alpha and beta are used.
        model: microseconds of the schedule that ran; None for native calls, and for schedules
            that cannot be priced.
        bound: microseconds that no schedule can beat.
    """

    record: CaseRecord
    links: str
    model: float | None
    bound: float

    @property
    def over_model(self) -> float | None:
        """Measured over model."""
        return median_of(self.record) / self.model if self.model else None

    @property
    def over_bound(self) -> float | None:
        """Measured over bound."""
        return median_of(self.record) / self.bound if self.bound else None


def model_comparisons(panel: Panel, records: Records) -> list[ModelComparison]:
    """Return the comparison of each record of a panel with known alpha and beta."""
    candidates = (_compare_model(record, records) for record in panel.records() if record.ranks > 1)
    return [candidate for candidate in candidates if candidate is not None]


def _compare_model(record: CaseRecord, records: Records) -> ModelComparison | None:
    rows = [fit for fit in records.fits if _fits(fit, record, records)]
    links = _transport(record, {fit.transport for fit in rows})
    rows = [fit for fit in rows if fit.transport == links]
    nodes = ranks_by_node(records.run_of(record), record.ranks, record.nodes)
    if links is None or nodes is None:
        return None
    try:
        network = Network.fitted(rows, record.backend)
    except ArgumentError:
        return None
    fastest = _fastest(rows, network)
    bound = lower_bound(record.collective, record.ranks, record.bytes_total, fastest, nodes)
    return ModelComparison(record, links, _price(record, network, nodes), bound.seconds * 1e6)


def _fits(fit: FitRecord, record: CaseRecord, records: Records) -> bool:
    """Whether a fit is of the machine, library and device of a record."""
    is_same = (fit.backend, fit.library, fit.device) == (
        record.backend,
        record.library,
        record.device,
    )
    # A fit of one node says nothing about the network between several.
    reaches = record.nodes == 1 or fit.nodes > 1
    machines = [machine_kind(records.run_of(source)) for source in (fit, record)]
    return is_same and reaches and machines[0] == machines[1]


def _transport(record: CaseRecord, transports: Iterable[str]) -> str | None:
    """Return the transport whose alpha and beta suit a record best."""
    ways = sorted(set(transports))
    return next(
        (way for way in (record.transport, "point-to-point", "direct") if way in ways),
        ways[0] if ways else None,
    )


def _fastest(rows: Sequence[FitRecord], network: Network) -> Network:
    """Return the network with the best class of pairs, since a bound must hold for all."""
    within = [fit for fit in rows if fit.link != "network"]
    if not within:
        return network
    best = AlphaBeta(
        min(fit.alpha_us for fit in within) / 1e6,
        min(fit.beta_ns_per_byte for fit in within) / 1e9,
    )
    return Network(network.between if len(within) < len(rows) else best, best)


def ranks_by_node(run: FullRun, ranks: int, count: int) -> Nodes | None:
    """Return the ranks of each of `count` nodes, None if the records do not have them."""
    if count == 1:
        return (tuple(range(ranks)),)
    by_host: dict[str, list[int]] = {}
    for rank, host in enumerate(run.hosts):
        by_host.setdefault(host, []).append(rank)
    if len(run.hosts) == ranks and len(by_host) == count:
        return tuple(map(tuple, by_host.values()))
    return None if ranks % count else in_order(ranks, ranks // count)


def _price(record: CaseRecord, network: Network, nodes: Nodes) -> float | None:
    """Return the microseconds of the schedule that ran; None for a native call."""
    executed = record.executed
    if not executed or executed.startswith("native") or record.ranks > MOST_RANKS:
        return None
    try:
        return 1e6 * _seconds(
            record.collective, executed.partition("@")[0], record.ranks, record.bytes_total,
            network, record.root or 0, nodes,
        )  # fmt: skip
    except (ArgumentError, Unsupported):
        return None  # a schedule of a user, which is not registered here


@cache
def _seconds(
    collective: str, executed: str, size: int, nbytes: int, network: Network, root: int,
    nodes: Nodes,
) -> float:  # fmt: skip
    return price(find(collective, executed), size, nbytes, network, root=root, nodes=nodes)
