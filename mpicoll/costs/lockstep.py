"""The price of a schedule in closed form, where all ranks do the same on one switch.

Then all are always in the same round, and the messages that they list in one place of a round
go from every rank to another one: nobody waits for anybody. So one rank's rounds, added up, are
the price, for a million ranks as well.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np

from mpicoll.costs.models import Model
from mpicoll.costs.programs import Program
from mpicoll.costs.topologies import Switch, Topology


def holds(program: Program, model: Model, topology: Topology) -> bool:
    """Whether `lockstep` is the price."""
    own_round = program.round[program.partner] == program.round
    # Else a port is still busy when the next round begins.
    ends_with_round = model.hold <= model.latency
    alike = program.symmetric and isinstance(topology, Switch)
    return alike and ends_with_round and bool(own_round.all())


def lockstep(program: Program, nbytes: float, model: Model) -> float:
    """Return the seconds from a common start until all ranks are done.

    Args:
        nbytes: as in `simulate`.

    >>> from mpicoll.algorithms import find
    >>> from mpicoll.costs import Hockney, compiled
    >>> lockstep(compiled(find("allreduce", "ring"), 4), 400, Hockney(alpha=1.0, beta=0.01))
    12.0
    """
    unit = nbytes / program.cut
    takes = model.beta * unit * program.blocks[program.sends]
    in_round = program.round[program.sends]
    count = np.bincount(in_round, minlength=len(program.folded))
    alone = count[in_round] == 1
    total = float(takes[alone].sum()) + int(alone.sum()) * model.latency
    for number in np.flatnonzero(count > 1):
        low, high = np.searchsorted(in_round, [number, number + 1])
        total += _round(takes[low:high].tolist(), model)
    folded = int(program.head.sum() + program.folded.sum())
    return total + folded * unit * model.gamma


def _round(takes: Iterable[float], model: Model) -> float:
    """Return when the last message of a round has arrived, each on the port that is free first."""
    free, end = [0.0] * model.servers, 0.0
    for each in takes:
        start = free[0]
        heapq.heapreplace(free, start + model.hold + each)
        end = max(end, start + model.latency + each)
    return end
