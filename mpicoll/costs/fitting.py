"""Alpha, beta and gamma of a machine, from records of measurements.

Records of `mpicoll.p2p` hold fits of single messages. Those of `mpicoll.bench` hold the times of
schedules. The price of each schedule is so many alphas, betas and gammas: a non-negative least
squares fit of relative errors finds them (Lawson and Hanson 1974).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from mpicoll.algorithms.registry import Algorithm, find
from mpicoll.costs.events import simulate
from mpicoll.costs.listings import pattern_of
from mpicoll.costs.models import AlphaBeta, Hockney
from mpicoll.costs.network import measured, message_time
from mpicoll.costs.topologies import Switch
from mpicoll.errors import ArgumentError, Unsupported
from mpicoll.measurement.hockney import least_squares
from mpicoll.records.lines import CaseRecord, FitRecord, Record
from mpicoll.records.reading import only

_DOUBTFUL = 0.25
"""Median relative error beyond which a fit is called poor."""
_NEGLIGIBLE = 1e-6
"""Share of a time below which a factor does not matter."""
_TIME_LIMIT = 5.0
"""Seconds of the processor to generate the schedule of a record, and to simulate it: a file may
hold hundreds of records."""


class Fitted(NamedTuple):
    """The times of messages and folds, as fitted.

    Attributes:
        message: a message; `within`: one within a node, where these were measured too.
        gamma: seconds to fold a byte; None where the records do not tell.
        source: the records that this comes from; `doubts`: reasons not to trust it.
    """

    message: AlphaBeta
    within: AlphaBeta | None
    gamma: float | None
    source: str
    doubts: tuple[str, ...] = ()


def fitted(records: Iterable[Record], backend: str, ports: int | None = 1) -> Fitted:
    """Return the times of messages and folds on the machine of these records.

    Args:
        ports: those of the `Hockney` that will price with them.

    Raises:
        ArgumentError: too few records tell of them, or one is damaged.
    """
    loaded = [*records]
    if any(record.backend == backend for record in only(FitRecord, loaded)):
        return _of_messages(loaded, backend)
    return _of_schedules(
        [e for e in only(CaseRecord, loaded) if e.backend == backend], backend, ports
    )


def _of_messages(records: Iterable[Record], backend: str) -> Fitted:
    between, within = measured(records, backend)
    used = {"between nodes": between, "within a node": within}
    doubts = [
        f"messages {where}: {doubt}"
        for where, record in used.items()
        if record
        for doubt in _doubts(record.error, record.alpha_us, record.beta_ns_per_byte)
    ]
    if between is None:
        doubts.append("no pair on two nodes was measured: messages of one node stand for all")
    times = [message_time(record) if record else None for record in (between or within, within)]
    message, local = times
    assert message
    return Fitted(message, local, None, "fits of single messages", (*doubts,))


def _of_schedules(records: Iterable[CaseRecord], backend: str, ports: int | None) -> Fitted:
    """Solve for alpha, beta and gamma from the times of schedules, of the commonest transport."""
    schedules = [record for record in records if _is_timed(record)]
    (commonest, _), *_ = Counter(record.transport for record in schedules).most_common(1) or [
        ("", 0)
    ]
    rows, times = [], []
    for record in schedules:
        if (
            record.time_us
            and record.transport == commonest
            and any(row := _row(record, ports) or ())
        ):
            rows.append(row)
            times.append(record.time_us.median / 1e6)
    if len({*map(tuple, rows)}) < 3:
        raise ArgumentError(
            f"these records hold neither fits nor three timed schedules of {backend}: "
            "python -m mpicoll.p2p makes fits, python -m mpicoll.bench --algorithms all times"
        )
    shares = np.array(rows) / np.array(times)[:, None]
    alpha, beta, gamma = factors = least_squares(shares, np.ones(len(shares)))
    terms = shares * factors
    error = float(np.median(np.abs(terms.sum(axis=1) - 1)))
    source = f"{len(rows)} times of schedules, with a median error of {error:.0%}"
    folds = bool(shares[:, 2].any())
    doubts = (*_doubts(error, *terms.max(axis=0)[: 2 + folds]),)
    return Fitted(AlphaBeta(alpha, beta), None, gamma if folds else None, source, doubts)


def _doubts(error: float, *shares: float) -> Iterator[str]:
    """Yield the reasons not to trust a fit.

    Args:
        shares: the largest shares of a time that are due to alpha, to beta and to gamma.
    """
    for name, share in zip(("alpha", "beta", "gamma"), shares, strict=False):
        if share < _NEGLIGIBLE:
            yield f"{name} comes out as 0: these times do not separate it from the others"
    if error > _DOUBTFUL:
        yield f"half of the times are more than {error:.0%} off: the model does not describe them"


def _is_timed(record: CaseRecord) -> bool:
    """Whether a record has a time of a schedule that gave correct results."""
    ran = record.executed or "native"
    is_right = record.time_us is not None and record.correct is not False
    return is_right and record.call == "plan" and ran[:6] != "native"


def _row(record: CaseRecord, ports: int | None) -> tuple[float, ...] | None:
    """Return how many alphas, betas and gammas a schedule takes; None if that cannot be told."""
    size, algorithm = record.ranks, _find_algorithm(record)
    if algorithm is None:
        return None
    if record.nodes > 1 and algorithm.takes("nodes"):
        return None  # The record does not tell which ranks were on which node.
    try:
        return factors(algorithm, size, _root(record, algorithm), record.bytes_total, ports)
    except Unsupported:
        return None


def factors(
    algorithm: Algorithm, size: int, root: int, nbytes: int, ports: int | None
) -> tuple[float, ...]:
    """Return how many alphas, betas and gammas a schedule takes on one switch.

    Args:
        ports: of the `Hockney` that prices it.

    Raises:
        Unsupported: it cannot serve so many ranks, or takes too long.
    """
    pattern = pattern_of(algorithm, size, root, seconds=_TIME_LIMIT)
    return tuple(
        simulate(pattern, nbytes, Hockney(*unit, ports), Switch(size), _TIME_LIMIT)
        for unit in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    )


def _root(record: CaseRecord, algorithm: Algorithm) -> int:
    if not algorithm.collective.rooted:
        return 0
    if record.root is None:
        raise ArgumentError(f"a damaged record: root is None of {record.ranks} ranks")
    return record.root


def _find_algorithm(record: CaseRecord) -> Algorithm | None:
    """Return the schedule of a record; None if it is not one of ours."""
    try:
        return find(record.collective, (record.executed or "").partition("@")[0])
    except ArgumentError:
        return None
