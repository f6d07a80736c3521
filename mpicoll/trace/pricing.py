"""The price of calls by Hockney's model: of the algorithm that ran, and of the cheapest one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np

from mpicoll.algorithms.registry import Algorithm, find
from mpicoll.costs.fitting import factors, fitted
from mpicoll.costs.models import DEFAULT, AlphaBeta, Hockney
from mpicoll.costs.ranking import Scenario, candidates, curve, rank
from mpicoll.costs.topologies import Nodes, Switch
from mpicoll.costs.topology import Topology
from mpicoll.errors import ArgumentError, CollectiveError
from mpicoll.measurement.hockney import least_squares
from mpicoll.records.lines import CaseRecord, FitRecord, Record
from mpicoll.records.reading import load, only
from mpicoll.trace.reading import Kind
from mpicoll.tuning import FIRST_SHARE_RANKS, SHARES_ABOVE

_MEASURE = "run python -m mpicoll.p2p -J FILE on these nodes, and use --from FILE"
_MIN_SECONDS = 1e-12
"""Seconds of a call whose time says something."""
_SECONDS, _ALL_SECONDS = 1.0, 20.0
"""Of the processor, to price one algorithm at one size, and to fit or to price all of a trace."""

_OF_SLOTS = {
    "barrier": "direct", "broadcast": "one_shot", "gather": "naive", "scatter": "naive",
    "allgather": "direct", "alltoall": "pairwise", "reduce": "one_shot", "allreduce": "one_shot",
    "scan": "one_shot", "exscan": "one_shot", "reduce_scatter": "direct",
}  # fmt: skip
"""The schedules of a channel, in which each rank reads the slots of all ranks that it needs."""
_SHARED = ("reduce", "allreduce")
"""Collectives of which each rank folds a share, if they are long."""


class Priced(NamedTuple):
    """Prices in microseconds.

    Attributes:
        ran: of the algorithm that ran, None where that is not one of ours.
        cheapest: an algorithm, and its price.
    """

    ran: float | None
    cheapest: str
    cheapest_us: float


def schedule(kind: Kind) -> Algorithm | None:
    """Return the schedule whose messages a kind of calls makes, None where MPI's own call ran."""
    contract, name = kind.contract, kind.algorithm.partition("@")[0]
    if contract is None or kind.ranks < 2 or name.startswith("native"):
        return None
    if name == "slots":
        has_shares = kind.ranks >= FIRST_SHARE_RANKS and kind.nbytes > SHARES_ABOVE
        name = "two_shot" if has_shares and contract.name in _SHARED else _OF_SLOTS[contract.name]
    try:
        return find(contract.name, name)
    except CollectiveError:
        return None


class Fit(NamedTuple):
    """A model of messages, None where there is none, and its origin or the reason."""

    model: Hockney | None
    origin: str

    def __str__(self) -> str:
        return f"{self.model}, from {self.origin}" if self.model else f"none: {self.origin}"


class Machine(NamedTuple):
    """The models of messages within a node and between nodes."""

    local: Fit
    between: Fit

    def place(self, kind: Kind) -> tuple[Hockney, Topology] | None:
        """Return the model and the topology of a kind of calls; None without a model."""
        local, between = self.local.model, self.between.model
        if kind.is_local:
            return (local, Switch(kind.ranks)) if local else None
        if between is None:
            return None
        memory = AlphaBeta(local.alpha, local.beta) if local else None
        return between, Nodes(kind.ranks, nodes=kind.nodes, memory=memory)

    def sources(self, kinds: Iterable[Kind]) -> Iterator[str]:
        """Yield a line on each model that these kinds of calls need."""
        places = {kind.is_local for kind in kinds}
        if True in places or self.local.model:
            yield f"within a node: {self.local}"
        if False in places:
            yield f"between nodes: {self.between}"


def library_times(source: Path | None) -> dict[tuple[str, int, int, int], float]:
    """Return microseconds of MPI's own calls by collective, ranks, nodes and bytes.

    A method counts before a plan, as programs call methods.
    """
    cases = [
        record for record in (only(CaseRecord, load(source)) if source else ())
        if (record.backend, record.algorithm) == ("mpi4py", "native")
        and record.time_us is not None and record.correct is not False
    ]  # fmt: skip
    return {
        (record.collective, record.ranks, record.nodes, record.bytes_total): record.time_us.median
        for record in sorted(cases, key=lambda record: record.call == "method")
        if record.time_us is not None
    }


def machine_of(kinds: Iterable[Kind], source: Path | None) -> Machine:
    """Return the models of the machine that a trace is of.

    Args:
        source: records of `mpicoll.p2p` or `mpicoll.bench`. Without records of one node, the model
            within a node is fitted to the trace itself, to the times that a tenth of the calls of
            a kind stay below.

    Raises:
        ArgumentError: the records tell nothing.
    """
    machine = _read_machine(source) if source else Machine(Fit(None, ""), Fit(None, _MEASURE))
    if machine.local.model is None:
        local_kinds = [kind for kind in kinds if kind.is_local]
        return machine._replace(local=_fit_to_trace(local_kinds))
    return machine


def _read_machine(source: Path) -> Machine:
    """Return the models that records tell."""
    records = load(source)
    cases, fits = only(CaseRecord, records), only(FitRecord, records)
    local: list[Record] = [fit for fit in fits if fit.link != "network"]
    between: list[Record] = [fit for fit in fits if fit.link == "network"]
    local += [case for case in cases if case.nodes == 1]
    between += [case for case in cases if case.nodes == case.ranks > 1]
    machine = Machine(_fit(local, source), _fit(between, source))
    if machine.local.model is None and machine.between.model is None:
        raise ArgumentError(f"{source}: {_fit(records, source).origin}")
    return machine


def _fit(records: Sequence[Record], source: Path) -> Fit:
    """Return the model that records tell."""
    try:
        fit = fitted(records, "mpi4py", None)
    except ArgumentError as error:
        return Fit(None, str(error))
    gamma = DEFAULT.gamma if fit.gamma is None else fit.gamma
    return Fit(Hockney(*fit.message, gamma, ports=None), f"{source}: {fit.source}")


def _fit_to_trace(kinds: Iterable[Kind]) -> Fit:
    """Return the model that fits the calls of a trace."""
    rows, times = [], []
    for kind in within(_ALL_SECONDS, kinds):
        time = kind.quantile_us(0.1) / 1e6
        if time > _MIN_SECONDS and (row := _row(kind)):
            rows.append(row)
            times.append(time)
    if len({*rows}) < 3:
        return Fit(None, "mpicoll ran too few kinds of calls there: use --from")
    shares = np.array(rows) / np.array(times)[:, None]
    alpha, beta, gamma = least_squares(shares, np.ones(len(shares)))
    error = float(np.median(np.abs(shares @ [alpha, beta, gamma] - 1)))
    text = f"{len(rows)} kinds of calls of this trace, with a median error of {error:.0%}"
    return Fit(Hockney(alpha, beta, gamma, ports=None), text)


def _row(kind: Kind) -> tuple[float, ...] | None:
    """Return how many alphas, betas and gammas the schedule of a kind of calls takes."""
    algorithm = schedule(kind)
    if algorithm is None:
        return None
    try:
        return factors(algorithm, kind.ranks, 0, kind.nbytes, None)
    except CollectiveError:
        return None


def within(seconds: float, kinds: Iterable[Kind]) -> Iterator[Kind]:
    """Yield kinds of calls until so many seconds of the processor are used."""
    until = process_time() + seconds
    return takewhile(lambda _: process_time() < until, kinds)


def prices(kinds: Iterable[Kind], machine: Machine) -> Iterator[Priced | None]:
    """Yield the prices of kinds of calls, the first ones' where there are too many."""
    return (price(kind, machine) for kind in within(_ALL_SECONDS, kinds))


def price(kind: Kind, machine: Machine) -> Priced | None:
    """Price a kind of calls on its nodes, None where it has no price."""
    contract, place = kind.contract, machine.place(kind)
    is_sized = contract is not None and (kind.nbytes > 0 or contract.unit == "none")
    if contract is None or kind.ranks < 2 or place is None or not is_sized:
        return None
    scenario = Scenario(contract.name, *place, time_limit=_SECONDS)
    curves = rank(scenario, candidates(contract.name), [kind.nbytes]).at(kind.nbytes)
    if not curves:
        return None
    return Priced(
        _ran(kind, scenario), str(curves[0].algorithm), 1e6 * curves[0].seconds(kind.nbytes)
    )


def _ran(kind: Kind, scenario: Scenario) -> float | None:
    algorithm = schedule(kind)
    if algorithm is None:
        return None
    try:
        return 1e6 * curve(algorithm, scenario, [kind.nbytes]).seconds(kind.nbytes)
    except CollectiveError:
        return None
