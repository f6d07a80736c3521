"""The rounds, bytes and time of a schedule, and the least that any schedule needs.

Time is Hockney's (1994), with the alpha and beta that `mpicoll.costs` takes by default: each round
costs alpha, and each byte that the busiest rank sends, or receives, in it beta. Folds are free. So
a schedule is two numbers, ``R alpha + V m beta``.
"""

from __future__ import annotations

from typing import NamedTuple

from mpicoll.costs import AlphaBeta, Network
from mpicoll.costs.bounds import lower_bound
from mpicoll.costs.models import DEFAULT
from mpicoll.explain.trace import RoundTrace

ALPHA, BETA = DEFAULT.alpha, DEFAULT.beta


class Minimum(NamedTuple):
    """The least of any schedule in which a rank sends and receives one message at a time."""

    rounds: int
    volume: float


def minimum(trace: RoundTrace) -> Minimum:
    """Return the fewest rounds, and the fewest vectors m through some rank.

    >>> from mpicoll.algorithms import find
    >>> from mpicoll.explain.trace import trace_rounds
    >>> minimum(trace_rounds(find("allreduce", "ring"), 4))
    Minimum(rounds=2, volume=1.5)
    """
    bound = lower_bound(trace.collective.name, trace.size, 1, Network(AlphaBeta(1.0, 1.0)))
    return Minimum(int(bound.latency), bound.bandwidth)


def seconds(trace: RoundTrace, nbytes: float) -> float:
    """Return the modelled time of a vector of so many bytes.

    >>> from mpicoll.algorithms import find
    >>> from mpicoll.explain.trace import trace_rounds
    >>> ring = trace_rounds(find("allreduce", "ring"), 8)
    >>> round(1e6 * seconds(ring, 0), 1), round(1e6 * seconds(ring, 1e6), 1)
    (28.0, 98.0)
    """
    return trace.rounds * ALPHA + trace.volume * nbytes * BETA


def crossover(first: RoundTrace, second: RoundTrace) -> float | None:
    """Return the bytes of a vector at which two schedules take the same time, if any.

    >>> from mpicoll.algorithms import find
    >>> from mpicoll.explain.trace import trace_rounds
    >>> ring = trace_rounds(find("allreduce", "ring"), 8)
    >>> round(crossover(ring, trace_rounds(find("allreduce", "recursive_doubling"), 8)))
    440000
    """
    rounds, volume = first.rounds - second.rounds, second.volume - first.volume
    return rounds * ALPHA / (volume * BETA) if rounds * volume > 0 else None
