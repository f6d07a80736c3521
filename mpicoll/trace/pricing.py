"""The price of calls by Hockney's model: of the algorithm that ran, and of the cheapest one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np

from mpicoll.algorithms.registry import find
from mpicoll.costs.fitting import factors, fitted
from mpicoll.costs.models import DEFAULT, Hockney, Model
from mpicoll.costs.ranking import Scenario, candidates, curve, rank
from mpicoll.costs.topologies import Switch
from mpicoll.errors import CollectiveError, UnknownName
from mpicoll.measurement.hockney import least_squares
from mpicoll.notation.contract import Collective, collective
from mpicoll.records.reading import load
from mpicoll.trace.reading import Kind

_MIN_SECONDS = 1e-12
"""Seconds of a call whose time says something."""
_SECONDS, _ALL_SECONDS = 1.0, 20.0
"""Of the processor, to price one algorithm at one size, and to fit or to price all of a trace."""


class Priced(NamedTuple):
    """Prices in microseconds.

    Attributes:
        ran: of the algorithm that ran, None where that is not one of ours.
        cheapest: an algorithm, and its price.
    """

    ran: float | None
    cheapest: str
    cheapest_us: float


def of_call(kind: Kind) -> Collective | None:
    """Return our collective of a kind of calls, None for calls of objects and others."""
    if kind.call.islower():
        return None
    try:
        return collective(kind.call)
    except UnknownName:
        return None


def total(contract: Collective, kind: Kind) -> int:
    """Return the bytes by which the benchmark and prices count: those of all rows."""
    return kind.bytes_per_rank * (kind.ranks if contract.unit == "rows" else 1)


def model_of(kinds: Iterable[Kind], source: Path | None) -> tuple[Model, str]:
    """Return a model of this machine, and its source.

    Args:
        source: records of `mpicoll.p2p` or `mpicoll.bench`; by default it is fitted to the trace
            itself, to the times that a tenth of the calls of a kind stay below.

    Raises:
        ArgumentError: the records tell nothing.
    """
    if source is not None:
        fit = fitted(load(source), "mpi4py", None)
        gamma = DEFAULT.gamma if fit.gamma is None else fit.gamma
        return Hockney(*fit.message, gamma, ports=None), f"{source}: {fit.source}"
    rows, times = [], []
    for kind in within(_ALL_SECONDS, kinds):
        time = kind.quantile_us(0.1) / 1e6
        if time > _MIN_SECONDS and (row := _row(kind)):
            rows.append(row)
            times.append(time)
    if len({*rows}) < 3:
        text = "the defaults of mpicoll.costs: too few calls of ours to fit them, use --from"
        return Hockney(DEFAULT.alpha, DEFAULT.beta, DEFAULT.gamma, ports=None), text
    shares = np.array(rows) / np.array(times)[:, None]
    alpha, beta, gamma = least_squares(shares, np.ones(len(shares)))
    error = float(np.median(np.abs(shares @ [alpha, beta, gamma] - 1)))
    text = f"{len(rows)} kinds of calls of this trace, with a median error of {error:.0%}"
    return Hockney(alpha, beta, gamma, ports=None), text


def _row(kind: Kind) -> tuple[float, ...] | None:
    """Return how many alphas, betas and gammas the schedule of a kind of calls takes."""
    contract = of_call(kind)
    if contract is None or kind.ranks < 2 or kind.algorithm == "mpi":
        return None
    try:
        return factors(
            find(contract.name, kind.algorithm), kind.ranks, 0, total(contract, kind), None
        )
    except CollectiveError:
        return None


def within(seconds: float, kinds: Iterable[Kind]) -> Iterator[Kind]:
    """Yield kinds of calls until so many seconds of the processor are used."""
    until = process_time() + seconds
    return takewhile(lambda _: process_time() < until, kinds)


def prices(kinds: Iterable[Kind], model: Model) -> Iterator[Priced | None]:
    """Yield the prices of kinds of calls, the first ones' where there are too many."""
    return (price(kind, model) for kind in within(_ALL_SECONDS, kinds))


def price(kind: Kind, model: Model) -> Priced | None:
    """Price a kind of calls, None where it has no price."""
    contract = of_call(kind)
    if contract is None or kind.ranks < 2:
        return None
    scenario = Scenario(contract.name, model, Switch(kind.ranks), time_limit=_SECONDS)
    nbytes = total(contract, kind)
    curves = rank(scenario, candidates(contract.name), [nbytes]).at(nbytes)
    if not curves:
        return None
    return Priced(
        _ran(kind, scenario, nbytes), str(curves[0].algorithm), 1e6 * curves[0].seconds(nbytes)
    )


def _ran(kind: Kind, scenario: Scenario, nbytes: int) -> float | None:
    try:
        algorithm = find(scenario.collective, kind.algorithm)
        return 1e6 * curve(algorithm, scenario, [nbytes]).seconds(nbytes)
    except CollectiveError:
        return None
