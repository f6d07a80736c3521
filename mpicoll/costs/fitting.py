"""Alpha, beta and gamma of a machine, from the records of what was measured there.

Records of `mpicoll.p2p` hold fits of single messages. Those of `mpicoll.bench` hold the times of
schedules, each of which is so many alphas, betas and gammas: they are solved for, so that the sum
of squared relative errors is the least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from mpicoll.algorithms import find
from mpicoll.costs.events import simulate
from mpicoll.costs.models import Hockney, Link
from mpicoll.costs.network import Network
from mpicoll.costs.programs import compiled
from mpicoll.costs.topologies import Switch
from mpicoll.errors import ArgumentError, CollectiveError

Record = Mapping[str, Any]


class Fitted(NamedTuple):
    """What messages and folds take.

    Attributes:
        link: messages; `within`: those of a node where they were measured apart.
        gamma: seconds to fold a byte.
        source: from what this is known.
    """

    link: Link
    within: Link | None
    gamma: float
    source: str


def fitted(records: Iterable[Record], backend: str) -> Fitted:
    """Return what messages and folds take on the machine of these records.

    Raises:
        ArgumentError: there is nothing in the records to tell it from.
    """
    kept = [each for each in records if each.get("backend") == backend]
    if any(each.get("kind") == "fit" for each in kept):
        network = Network.fitted(kept, backend)
        return Fitted(network.between, network.within, network.gamma, "fits of single messages")
    return _solved(kept, backend)


def _solved(records: Iterable[Record], backend: str) -> Fitted:
    """Solve for alpha, beta and gamma from the times of schedules, of the commonest transport."""
    timed = [each for each in records if each.get("time_us") and each.get("correct") is not False]
    schedules = [
        each for each in timed if not (each.get("executed") or "native").startswith("native")
    ]
    ways = Counter(each.get("transport") for each in schedules)
    rows, times = [], []
    for each in schedules:
        if each.get("transport") == ways.most_common(1)[0][0] and (row := _row(each)):
            rows.append(row)
            times.append(each["time_us"]["median"] / 1e6)
    if len({*map(tuple, rows)}) < 3:
        raise ArgumentError(
            f"these records hold neither fits nor three timed schedules of {backend}: "
            "python -m mpicoll.p2p makes fits, python -m mpicoll.bench --algorithms all times"
        )
    shares = np.array(rows) / np.array(times)[:, None]
    alpha, beta, gamma = factors = _least(shares)
    error = np.median(np.abs(shares @ factors - 1))
    source = f"{len(rows)} times of schedules, with a median error of {error:.0%}"
    return Fitted(Link(alpha, beta), None, gamma, source)


def _row(record: Record) -> tuple[float, ...] | None:
    """Return how many alphas, betas and gammas a schedule takes; None if it is not one of ours."""
    size = record["ranks"]
    try:
        algorithm = find(record["collective"], record["executed"].partition("@")[0])
        program = compiled(algorithm, size, record["root"] or 0)
    except CollectiveError:
        return None
    if record["nodes"] > 1 and algorithm.takes("nodes"):
        return None  # The record does not tell which ranks were on which node.
    return tuple(
        simulate(
            program, record["bytes_total"] or 0, Hockney(alpha, beta, gamma, None), Switch(size)
        )
        for alpha, beta, gamma in np.eye(3).tolist()
    )


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
