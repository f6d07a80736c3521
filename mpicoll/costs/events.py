"""The price of a schedule by simulating every message on a topology, many at a time.

A message is ready when both its ranks have come to its round. Messages start in the order in
which they are ready (of those ready together, in the order in which their senders list them,
lower ranks first), each as soon as a port of either rank and all links of its path are free.
What a message that is ready at time t brings about is ready no earlier than t plus the least
time that a message takes: so all that are ready before the first of these are done at once, and
where they meet on a link or a port, in as many waves as have to wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mpicoll.costs.models import Link, Model
from mpicoll.costs.programs import Flags, Ints, Program
from mpicoll.costs.topologies import NONE, Topology
from mpicoll.errors import Deadlock

Floats = np.ndarray
_AT_ONCE = 1 << 14
_DONE = -1


class Batch(NamedTuple):
    """Messages, each with the time at which both its ranks are ready."""

    ready: Floats
    source: Ints
    target: Ints
    message: Ints

    def take(self, which: Flags | slice) -> Batch:
        """Return some of them."""
        return Batch(*(each[which] for each in self))


def simulate(program: Program, nbytes: float, model: Model, topology: Topology) -> float:
    """Return the seconds from a common start until the last rank is done.

    Args:
        nbytes: of a vector, or of all rows of a row-wise collective; it is cut evenly, into
            fractions of bytes where need be.

    Raises:
        Deadlock: ranks wait for each other.

    >>> from mpicoll.algorithms import find
    >>> from mpicoll.costs import Hockney, Switch, compiled
    >>> ring = compiled(find("allreduce", "ring"), 4)
    >>> simulate(ring, 400, Hockney(alpha=1.0, beta=0.01), Switch(4))
    12.0
    """
    return _Run(program, nbytes, model, topology).finish()


class _Run:
    """All ranks at once.

    Attributes:
        now: the round that each rank is in; began, ends: when it began and, so far, ends.
        open: messages of that round that each rank still waits for.
        ports: when each port of each rank is free, senders first; links: when each link is.
    """

    def __init__(self, program: Program, nbytes: float, model: Model, topology: Topology) -> None:
        self.program, self.model, self.topology = program, model, topology
        size, self.unit = program.size, nbytes / program.cut
        self.fold = program.folded * (self.unit * model.gamma)
        self.bytes = program.blocks * self.unit
        far = Link(model.latency, model.beta)
        self.inside = topology.inside(far) or far
        # Rounded as in `_lasting`: no message may end before it could.
        self.least = min(far.alpha, self.inside.alpha) + self.bytes * min(
            far.beta, self.inside.beta
        )
        kind = np.arange(size) % program.period
        self.now, self.last = program.base[kind], program.base[kind + 1]
        self.began = program.head[kind] * (self.unit * model.gamma)
        self.open = np.zeros(size, np.int64)
        self.ends = np.zeros(size)
        self.fresh = np.zeros(size, bool)
        self.ports = np.zeros((2 * size + 1, model.servers))
        self.links = np.zeros(topology.links + 1)
        self.mark = np.zeros(2 * size + topology.links + 2, np.int64)
        self.pending = Batch(np.empty(0), *(np.empty(0, np.int64) for _ in range(3)))

    def finish(self) -> float:
        """Run to the end and return when that is."""
        self._enter(np.arange(self.program.size))
        while len(self.pending.ready):
            self._land(self._next())
        if (self.now != _DONE).any():
            raise Deadlock(f"rank {np.flatnonzero(self.now != _DONE)[0]} waits for ever")
        return float(self.began.max())

    def _next(self) -> Batch:
        """Take out what nothing that is still to come can precede."""
        ready = self.pending.ready
        horizon = (ready + self.least[self.pending.message]).min()
        chosen = ready < horizon
        if not chosen.any():
            chosen = ready == ready.min()
        found = self.pending
        if chosen.all():
            self.pending = found.take(slice(0))
            return found
        self.pending = found.take(~chosen)
        return found.take(chosen)

    def _enter(self, ranks: Ints) -> None:
        """Let ranks begin their next round, and find the messages that become ready."""
        over = self.now[ranks] == self.last[ranks]
        if over.any():
            self.now[ranks[over]] = _DONE
            ranks = ranks[~over]
        first = self.program.first
        rounds = self.now[ranks]
        begin, count = first[rounds], first[rounds + 1] - first[rounds]
        self.open[ranks] = count
        self.ends[ranks] = self.began[ranks]
        own = np.repeat(ranks, count)
        message = np.arange(len(own)) + np.repeat(begin - np.cumsum(count) + count, count)
        self.fresh[ranks] = True
        self._post(own, message)
        self.fresh[ranks] = False

    def _post(self, own: Ints, message: Ints) -> None:
        """Add those messages whose other side is there already; of two new sides, the sender's."""
        program = self.program
        peer, partner = program.peer(own, message), program.partner[message]
        sends = program.sends[message]
        met = (self.now[peer] == program.round[partner]) & (sends | ~self.fresh[peer])
        own, peer, sends = own[met], peer[met], sends[met]
        new = Batch(
            np.maximum(self.began[own], self.began[peer]),
            np.where(sends, own, peer),
            np.where(sends, peer, own),
            np.where(sends, message[met], partner[met]),
        )
        if len(self.pending.ready):
            new = Batch(*map(np.concatenate, zip(self.pending, new, strict=True)))
        self.pending = new

    def _land(self, batch: Batch) -> None:
        """Carry messages, and let the ranks go on whose last ones these were."""
        ends = self._carry(batch)
        both = np.concatenate([batch.source, batch.target])
        np.maximum.at(self.ends, both, np.concatenate([ends, ends]))
        np.subtract.at(self.open, both, 1)
        done = both[self.open[both] == 0]
        self.mark[done] = np.arange(len(done))
        done = done[self.mark[done] == np.arange(len(done))]
        self.began[done] = self.ends[done] + self.fold[self.now[done]]
        self.now[done] += 1
        self._enter(done)

    def _carry(self, batch: Batch) -> Floats:
        """Return when messages arrive, and keep their ports and links busy."""
        size, nbytes = self.program.size, self.bytes[batch.message]
        takes, busy = self._lasting(batch, nbytes)
        ports = np.stack([batch.source, size + batch.target], axis=1)
        ports[busy < 0] = NONE
        links = self.topology.path(batch.source, batch.target)
        takes += self.topology.hop * (links != NONE).sum(axis=1)
        load, start = nbytes * self.model.beta, np.empty(len(nbytes))
        used = np.concatenate([ports, np.where(links == NONE, NONE, 2 * size + links)], axis=1)
        for wave in self._waves(batch, used):
            begin = self._begin(batch.ready[wave], ports[wave], links[wave])
            start[wave] = begin
            self._keep(ports[wave], begin + busy[wave], links[wave], begin + load[wave])
        ends: Floats = start + takes
        return ends

    def _lasting(self, batch: Batch, nbytes: Floats) -> tuple[Floats, Floats]:
        """Return how long messages take, and keep their ports busy; -1 where they need none."""
        model, inside = self.model, self.inside
        takes = model.latency + nbytes * model.beta
        busy = model.hold + nbytes * model.beta
        near = self.topology.near(batch.source, batch.target)
        if near is not None:
            quick = inside.alpha + nbytes * inside.beta
            takes = np.where(near, quick, takes)
            busy = np.where(near, quick if model.hold else -1.0, busy)
        return takes, busy

    def _begin(self, ready: Floats, ports: Ints, links: Ints) -> Floats:
        """Return when each message finds all that it needs free."""
        port = self.ports[ports].min(axis=2).max(axis=1)
        start: Floats = np.maximum(
            np.maximum(ready, port), self.links[links].max(axis=1, initial=0)
        )
        return start

    def _keep(self, ports: Ints, until: Floats, links: Ints, passed: Floats) -> None:
        """Keep the port of either rank that was free first busy, and all links of the path."""
        self.ports[ports, self.ports[ports].argmin(axis=2)] = until[:, None]
        self.links[links] = passed[:, None]
        self.ports[NONE] = self.links[NONE] = 0.0

    def _waves(self, batch: Batch, used: Ints) -> Iterator[Ints]:
        """Yield messages that share nothing, those that come first before the others."""
        if self._free(used).all():
            yield np.arange(len(used))
            return
        place = batch.message - self.program.first[self.program.round[batch.message]]
        order = np.lexsort((batch.source, place, batch.ready))
        for at in range(0, len(order), _AT_ONCE):
            left = order[at : at + _AT_ONCE]
            while len(left):
                free = self._free(used[left])
                yield left[free]
                left = left[~free]

    def _free(self, used: Ints) -> Flags:
        """Return which rows share nothing with an earlier one."""
        number, flat = np.arange(len(used)), used.ravel()
        self.mark[flat] = len(used)
        np.minimum.at(self.mark, flat, np.repeat(number, used.shape[1]))
        first = (self.mark[used] == number[:, None]) | (used == NONE)
        alone: Flags = first.all(axis=1)
        return alone
