"""The price of a schedule in closed form, where all ranks do the same on one switch.

All send as many bytes in each round, and of the messages that they list in one place of it every
rank receives one: then all are always in the same round, and no rank waits for another. So one
rank's rounds, added up, are the price, for a million ranks as well.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from mpicoll.costs.models import Model
from mpicoll.costs.patterns import Pattern
from mpicoll.costs.topologies import Switch
from mpicoll.costs.topology import Topology


def holds(pattern: Pattern, model: Model, topology: Topology) -> bool:
    """Whether `lockstep` is the price."""
    # Else a port is still busy when the next round begins.
    ends_with_round = model.hold <= model.latency
    return (
        ends_with_round
        and isinstance(topology, Switch)
        and _alike(pattern)
        and _is_in_order(pattern)
    )


def _alike(pattern: Pattern) -> bool:
    """Whether all patterns send, receive and fold as much in each round."""
    count = np.diff(pattern.first)
    parts = pattern.head, pattern.folded, count, pattern.blocks, pattern.sends
    return all(len(column) % pattern.period == 0 for column in parts) and all(
        (rows == rows[0]).all() for rows in (column.reshape(pattern.period, -1) for column in parts)
    )


def _is_in_order(pattern: Pattern) -> bool:
    """Whether a rank receives in each round one message of each place in which one is listed."""
    earlier = np.cumsum(pattern.sends) - pattern.sends
    place = earlier - earlier[pattern.first[pattern.round]] if len(earlier) else earlier
    partner = pattern.partner[~pattern.sends]
    same_round = pattern.round[partner] % pattern.rounds == pattern.round[~pattern.sends] % (
        pattern.rounds
    )
    arriving = np.lexsort((place[partner], pattern.round[~pattern.sends]))
    leaving = np.lexsort((place[pattern.sends], pattern.round[pattern.sends]))
    return bool(same_round.all()) and np.array_equal(
        place[partner][arriving], place[pattern.sends][leaving]
    )


def lockstep(pattern: Pattern, nbytes: float, model: Model) -> float:
    """Return the seconds from a common start until all ranks are done.

    Args:
        nbytes: as in `simulate`.

    >>> from mpicoll.algorithms import find
    >>> from mpicoll.costs import Hockney, pattern_of
    >>> lockstep(pattern_of(find("allreduce", "ring"), 4), 400, Hockney(alpha=1.0, beta=0.01))
    12.0
    """
    unit, end = nbytes / pattern.vector_blocks, pattern.base[1]
    first = pattern.round < end
    sends = pattern.sends & first
    takes = model.beta * unit * pattern.blocks[sends]
    in_round = pattern.round[sends]
    count = np.bincount(in_round, minlength=end)
    single = count[in_round] == 1
    total = float(takes[single].sum()) + int(single.sum()) * model.latency
    for number in np.flatnonzero(count > 1):
        low, high = np.searchsorted(in_round, [number, number + 1])
        total += _round(takes[low:high].tolist(), model)
    folded = int(pattern.head[0] + pattern.folded[:end].sum())
    return total + folded * unit * model.gamma


def _round(takes: Sequence[float], model: Model) -> float:
    """Return when the last message of a round has arrived, each on the port that is free first."""
    free, end = [0.0] * min(model.servers, len(takes)), 0.0
    for duration in takes:
        start = free[0]
        heapq.heapreplace(free, start + model.hold + duration)
        end = max(end, start + model.latency + duration)
    return end
