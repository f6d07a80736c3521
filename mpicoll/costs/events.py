"""The price of a schedule by simulating every message on a topology (`events.c`).

A message is ready when both its ranks have come to its round. It starts as soon as a port of
either rank and all links of its path are free. Of the messages that can start at one time, the
one that was ready first goes first, then the one that its sender lists first, then that of the
lowest rank.
"""

from __future__ import annotations

import time
from math import inf

import numpy as np

from mpicoll.c_extension import _compiled
from mpicoll.costs.classes import classes_of
from mpicoll.costs.models import AlphaBeta, Hockney, Model
from mpicoll.costs.patterns import OutOfTime, Pattern
from mpicoll.costs.topology import Topology
from mpicoll.errors import Deadlock
from mpicoll.text.numbers import number

_PER_MESSAGE = 0.4e-6
"""Seconds to simulate one on one core."""


def simulate(
    pattern: Pattern, nbytes: float, model: Model, topology: Topology, seconds: float = inf
) -> float:
    """Return the seconds from a common start until the last rank is done.

    Args:
        nbytes: of a vector, or of all rows of a row-wise collective; it is cut evenly, into
            fractions of bytes where need be.
        seconds: of the processor, how many the simulation may take.

    Raises:
        Deadlock: ranks wait for each other.
        ScheduleError: some message is not sent and received.
        Unsupported: there are too many messages.
        OutOfTime: it would take longer than `seconds`, by estimate or by the clock.

    >>> from mpicoll.algorithms import find
    >>> from mpicoll.costs import Hockney, Switch, pattern_of
    >>> ring = pattern_of(find("allreduce", "ring"), 4)
    >>> simulate(ring, 400, Hockney(alpha=1.0, beta=0.01), Switch(4))
    12.0
    """
    return _last_end(pattern, nbytes, model, topology, topology.hop, topology.intra_node, seconds)


_PER_ROUND = Hockney(alpha=1.0, beta=0.0, ports=None)


def chain_length(pattern: Pattern, topology: Topology) -> int:
    """Return the length of the longest chain of rounds: each waits for the one before it.

    `mpicoll.simulator` counts the same: a rank enters a round after the last
    message of its round before, and a message takes both of its ranks on by one.

    Raises:
        Deadlock, ScheduleError, Unsupported: as `simulate`.

    >>> from mpicoll.algorithms import find
    >>> from mpicoll.costs import Switch, pattern_of
    >>> chain_length(pattern_of(find("allreduce", "ring"), 4), Switch(4))
    6
    """
    within = AlphaBeta(_PER_ROUND.alpha, 0.0)
    return round(_last_end(pattern, 0.0, _PER_ROUND, topology, 0.0, within, inf))


def _last_end(
    pattern: Pattern, nbytes: float, model: Model, topology: Topology, hop: float,
    within: AlphaBeta | None, seconds: float,
) -> float:  # fmt: skip
    classes = classes_of(pattern, topology)
    messages, unit = len(classes.sends) // 2, nbytes / pattern.vector_blocks
    if (estimate := messages * _PER_MESSAGE) > seconds:
        raise OutOfTime(
            f"to simulate {messages:,} messages would take about {number(estimate, 2)} s, "
            f"and {number(seconds, 2)} s remain"
        )
    fold = unit * model.gamma
    columns = (
        classes.base, classes.first, classes.round, classes.peer, classes.partner, classes.path,
        classes.links, classes.folded * fold, classes.blocks * unit, np.ones(len(classes.sends)),
        classes.sends, classes.intra_node,
    )  # fmt: skip
    price, stuck, started, is_late = _compiled.simulate_messages(
        columns, classes.head * fold, classes.link_count, min(model.servers, pattern.degree),
        model.latency, model.hold, model.beta, *(within or AlphaBeta(0.0, 0.0)), hop,
        model.has_port_limit, min(time.process_time() + seconds, 1e300),
    )  # fmt: skip
    if is_late:
        raise OutOfTime(f"its simulation ran out of time after {started / messages:.0%}")
    if stuck >= 0:
        raise Deadlock(f"rank {classes.rank[stuck]} waits for ever")
    return float(price)
