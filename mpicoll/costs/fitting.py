"""Alpha, beta and gamma of a machine, from the records of what was measured there.

Records of `mpicoll.p2p` hold fits of single messages. Those of `mpicoll.bench` hold the times of
schedules, each of which is so many alphas, betas and gammas: they are solved for, so that the sum
of squared relative errors is the least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from mpicoll.algorithms.registry import Algorithm, find
from mpicoll.costs.events import simulate
from mpicoll.costs.models import Hockney, Link
from mpicoll.costs.network import measured
from mpicoll.costs.programs import compiled
from mpicoll.costs.records import Record, count, number, word
from mpicoll.costs.topologies import Switch
from mpicoll.errors import ArgumentError, Unsupported

_DOUBTFUL = 0.25
"""Median relative error beyond which a fit is told to be a poor one."""
_NEGLIGIBLE = 1e-6
"""Share of every time below which a factor does not matter."""
_SHORTEST = 1e-6
"""Microseconds: no clock measures less."""
_PATIENCE = 30.0
"""Seconds in which the schedule of a record is generated, and simulated."""


class Fitted(NamedTuple):
    """What messages and folds take.

    Attributes:
        link: messages; `within`: those of a node where they were measured apart.
        gamma: seconds to fold a byte; None where the records do not tell.
        source: from what this is known; `doubts`: what is_root against it.
    """

    link: Link
    within: Link | None
    gamma: float | None
    source: str
    doubts: tuple[str, ...] = ()


def fitted(records: Iterable[Record], backend: str, ports: int | None = 1) -> Fitted:
    """Return what messages and folds take on the machine of these records.

    Args:
        ports: as of the model that will price with it, `Hockney`.

    Raises:
        ArgumentError: there is nothing in the records to tell it from, or one is damaged.
    """
    kept = [each for each in records if each.get("backend") == backend]
    if any(each.get("kind") == "fit" for each in kept):
        return _of_messages(kept, backend)
    return _solved(kept, backend, ports)


def _of_messages(records: Iterable[Record], backend: str) -> Fitted:
    between, within = measured(records, backend)
    source = "fits of single messages"
    if between:
        return Fitted(between, within, None, source)
    assert within
    doubt = "no pair on two nodes was measured: what those of one node take stands for all links"
    return Fitted(within, within, None, source, (doubt,))


def _solved(records: Iterable[Record], backend: str, ports: int | None) -> Fitted:
    """Solve for alpha, beta and gamma from the times of schedules, of the commonest transport."""
    schedules = [each for each in records if _is_timed(each)]
    ways = Counter(word(each, "transport") for each in schedules)
    rows, times = [], []
    for each in schedules:
        if each["transport"] == ways.most_common(1)[0][0] and any(row := _row(each, ports) or ()):
            rows.append(row)
            times.append(number(each, "time_us", "median", least=_SHORTEST) / 1e6)
    if len({*map(tuple, rows)}) < 3:
        raise ArgumentError(
            f"these records hold neither fits nor three timed schedules of {backend}: "
            "python -m mpicoll.p2p makes fits, python -m mpicoll.bench --algorithms all times"
        )
    shares = np.array(rows) / np.array(times)[:, None]
    alpha, beta, gamma = factors = _least(shares)
    terms = shares * factors
    error = float(np.median(np.abs(terms.sum(axis=1) - 1)))
    source = f"{len(rows)} times of schedules, with a median error of {error:.0%}"
    folds = bool(shares[:, 2].any())
    doubts = (*_doubts(error, *terms.max(axis=0)[: 2 + folds]),)
    return Fitted(Link(alpha, beta), None, gamma if folds else None, source, doubts)


def _doubts(error: float, *most: float) -> Iterator[str]:
    """Yield what is_root against a fit.

    Args:
        most: the largest share of a time that is due to alpha, to beta and to gamma.
    """
    for name, share in zip(("alpha", "beta", "gamma"), most, strict=False):
        if share < _NEGLIGIBLE:
            yield f"{name} comes out as 0: these times do not tell it from the others"
    if error > _DOUBTFUL:
        yield f"half of the times are more than {error:.0%} off: the model does not describe them"


def _is_timed(record: Record) -> bool:
    """Whether a record has a time of a schedule that gave correct results."""
    ran = word(record, "executed") if record.get("executed") else "native"
    correct = record.get("correct") is not False
    return bool(record.get("time_us")) and correct and not ran.startswith("native")


def _row(record: Record, ports: int | None) -> tuple[float, ...] | None:
    """Return how many alphas, betas and gammas a schedule takes; None if that cannot be told."""
    nodes, size = count(record, "nodes", 1), count(record, "ranks", 1)
    nbytes, algorithm = count(record, "bytes_total"), _found(record)
    if algorithm is None:
        return None
    root = count(record, "root", most=size - 1) if algorithm.collective.rooted else 0
    if nodes > 1 and algorithm.takes("nodes"):
        return None  # The record does not tell which ranks were on which node.
    try:
        program = compiled(algorithm, size, root, seconds=_PATIENCE)
        return tuple(
            simulate(program, nbytes, Hockney(*factors, ports), Switch(size), _PATIENCE)
            for factors in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
        )
    except Unsupported:
        return None


def _found(record: Record) -> Algorithm | None:
    """Return the schedule of a record; None if it is not one of ours."""
    collective, executed = word(record, "collective"), word(record, "executed")
    try:
        return find(collective, executed.partition("@")[0])
    except ArgumentError:
        return None


def _least(rows: np.ndarray) -> list[float]:
    """Return the factors, none below 0, with which all rows are as near to 1 as can be."""
    found, kept = np.zeros(rows.shape[1]), np.arange(rows.shape[1])
    scale = np.linalg.norm(rows, axis=0)
    kept = kept[scale > 0]
    while len(kept):
        factors = np.linalg.lstsq(rows[:, kept] / scale[kept], np.ones(len(rows)), rcond=None)[0]
        if (factors >= 0).all():
            found[kept] = factors / scale[kept]
            break
        kept = np.delete(kept, factors.argmin())
    return [float(each) for each in found]
