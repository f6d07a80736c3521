"""What a schedule costs, and what none can do without: rounds and bytes, and what they take.

Time is Hockney's (1994): each round costs `ALPHA` seconds and each byte that the busiest rank
sends, or receives, in it `BETA`. So a schedule is two numbers, ``R alpha + V m beta``.
"""

from __future__ import annotations

from typing import NamedTuple

from mpicoll.costs import Link, Network
from mpicoll.costs.bounds import lower_bound
from mpicoll.explain.trace import RoundTrace

ALPHA, BETA = 2e-6, 1e-10
"""Seconds to start a message, and for each byte of it: an ordinary cluster's 10 GB/s."""


class Least(NamedTuple):
    """What no schedule can do without, if a rank sends and receives one message at a time."""

    rounds: int
    volume: float


def least(trace: RoundTrace) -> Least:
    """Return the fewest rounds, and the fewest vectors m through some rank.

    >>> from mpicoll.algorithms import find
    >>> from mpicoll.explain.trace import trace_rounds
    >>> least(trace_rounds(find("allreduce", "ring"), 4))
    Least(rounds=2, volume=1.5)
    """
    bound = lower_bound(trace.collective.name, trace.size, 1, Network(Link(1.0, 1.0)))
    return Least(int(bound.latency), bound.bandwidth)


def seconds(trace: RoundTrace, nbytes: float) -> float:
    """Return the modelled time of a vector of so many bytes.

    >>> from mpicoll.algorithms import find
    >>> from mpicoll.explain.trace import trace_rounds
    >>> ring = trace_rounds(find("allreduce", "ring"), 8)
    >>> round(1e6 * seconds(ring, 0), 1), round(1e6 * seconds(ring, 1e6), 1)
    (28.0, 203.0)
    """
    return trace.rounds * ALPHA + trace.volume * nbytes * BETA


def crossover(one: RoundTrace, other: RoundTrace) -> float | None:
    """Return the bytes of a vector at which two schedules take as long, if there are such.

    >>> from mpicoll.algorithms import find
    >>> from mpicoll.explain.trace import trace_rounds
    >>> ring = trace_rounds(find("allreduce", "ring"), 8)
    >>> round(crossover(ring, trace_rounds(find("allreduce", "recursive_doubling"), 8)))
    176000
    """
    rounds, volume = one.rounds - other.rounds, other.volume - one.volume
    return rounds * ALPHA / (volume * BETA) if rounds * volume > 0 else None
