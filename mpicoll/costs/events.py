"""The price of a schedule by simulating every message on a topology, many at a time.

A message is ready when both its ranks have come to its round, and starts as soon as a port of
either rank and all links of its path are free. Of those that could start at one time, the one
that was ready first goes first, then the one that its sender lists first, then that of the
lowest rank. What a message brings about is ready no earlier than its end: so all that can start
before any of them could end are done at once, in as many waves as have to wait for each other.
"""

from __future__ import annotations

import heapq
import time
from collections import defaultdict
from collections.abc import Sequence
from math import inf, nextafter
from typing import NamedTuple

import numpy as np

from mpicoll.costs.models import Model
from mpicoll.costs.patterns import Flags, Ints, Pattern
from mpicoll.costs.topology import NONE, Topology
from mpicoll.errors import Deadlock, Unsupported

Floats = np.ndarray
_FINISHED = -1
_MIN_WAVE = 16
_ROUNDING = 1e-9
"""By which a sum of times may be too large."""
_PER_MESSAGE, _PER_ROUND = 0.25e-6, 0.4e-3
"""Seconds to simulate on one core, where few messages wait for each other."""


class Batch(NamedTuple):
    """Messages, with the times, ports and links that each needs.

    Attributes:
        ready: when both ranks are.
        takes: seconds from start to end; busy: for which it keeps its ports; load: its links.
        ports: of the sender and of the receiver, NONE where it needs none; links: of its path.
        used: both, numbered so that ports and links differ.
    """

    ready: Floats
    source: Ints
    target: Ints
    place: Ints
    takes: Floats
    busy: Floats
    load: Floats
    ports: Ints
    links: Ints
    used: Ints

    def take(self, which: Ints | Flags) -> Batch:
        """Return some of the messages."""
        return Batch(*(column[..., which] for column in self))

    def merge(self, batch: Batch) -> Batch:
        """Return the messages of both batches."""
        return Batch(*map(_stacked, self, batch))


def _stacked(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Concatenate arrays, the shorter columns filled up with NONE."""
    if len(first) != len(second) and first.ndim > 1:
        height = max(len(first), len(second))
        first, second = (
            np.pad(array, ((0, height - len(array)), (0, 0)), constant_values=NONE)
            for array in (first, second)
        )
    return np.concatenate([first, second], axis=-1)


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
        Unsupported: it would take longer than `seconds`, by estimate or by the clock.

    >>> from mpicoll.algorithms import find
    >>> from mpicoll.costs import Hockney, Switch, pattern_of
    >>> ring = pattern_of(find("allreduce", "ring"), 4)
    >>> simulate(ring, 400, Hockney(alpha=1.0, beta=0.01), Switch(4))
    12.0
    """
    estimate = pattern.messages * _PER_MESSAGE + pattern.rounds * _PER_ROUND
    if estimate > seconds:
        raise Unsupported(
            f"to simulate {pattern.messages:,} messages would take about {estimate:.0f} s"
        )
    return _Run(pattern, nbytes, model, topology).finish(time.process_time() + seconds)


class _Run:
    """All ranks at once.

    Attributes:
        now: the round that each rank is in; began, ends: when it began and, so far, ends.
        open: messages of that round that each rank still waits for.
        ports: when each port of each rank is free, senders first; links: when each link is.
        pending: messages that are ready and have not started.
    """

    def __init__(self, pattern: Pattern, nbytes: float, model: Model, topology: Topology) -> None:
        self.pattern, self.model, self.topology = pattern, model, topology
        size, unit = pattern.size, nbytes / pattern.vector_blocks
        self.fold = pattern.folded * (unit * model.gamma)
        self.bytes = pattern.blocks * unit
        kind = np.arange(size) % pattern.period
        self.now, self.last = pattern.base[kind], pattern.base[kind + 1]
        self.began = pattern.head[kind] * (unit * model.gamma)
        self.open, self.ends = np.zeros(size, np.int64), np.zeros(size)
        self.fresh = np.zeros(size, bool)
        servers = min(model.servers, pattern.degree)
        self.ports = np.zeros((servers, 2 * size + 1))
        self.links = np.zeros(topology.links + 1)
        self.mark = np.zeros(2 * size + topology.links + 1, np.int64)
        self.pending: Batch | None = None

    def finish(self, deadline: float) -> float:
        """Run to the end and return the time."""
        self._enter(np.arange(self.pattern.size))
        while self.pending and len(self.pending.ready):
            if time.process_time() > deadline:
                share = np.mean(self.now[self.now != _FINISHED] / self.pattern.base[-1])
                raise Unsupported(f"its simulation ran out of time after {share:.0%}")
            self._advance(self.pending)
        if (self.now != _FINISHED).any():
            raise Deadlock(f"rank {np.flatnonzero(self.now != _FINISHED)[0]} waits for ever")
        return float(self.began.max())

    def _enter(self, ranks: Ints) -> None:
        """Begin the next round of some ranks, and post its messages."""
        over = self.now[ranks] == self.last[ranks]
        if over.any():
            self.now[ranks[over]] = _FINISHED
            ranks = ranks[~over]
        first, rounds = self.pattern.first, self.now[ranks]
        begin, count = first[rounds], first[rounds + 1] - first[rounds]
        self.open[ranks] = count
        self.ends[ranks] = self.began[ranks]
        senders = np.repeat(ranks, count)
        message = np.arange(len(senders)) + np.repeat(begin - np.cumsum(count) + count, count)
        self.fresh[ranks] = True
        self._post(senders, message)
        self.fresh[ranks] = False

    def _post(self, senders: Ints, message: Ints) -> None:
        """Make the messages pending whose other side is posted already, each once."""
        pattern = self.pattern
        peer, partner = pattern.peer(senders, message), pattern.partner[message]
        sends = pattern.sends[message]
        met = (self.now[peer] == pattern.round[partner]) & (sends | ~self.fresh[peer])
        senders, peer, sends = senders[met], peer[met], sends[met]
        ready = np.maximum(self.began[senders], self.began[peer])
        source, target = np.where(sends, senders, peer), np.where(sends, peer, senders)
        new = self._batch(ready, source, target, np.where(sends, message[met], partner[met]))
        self.pending = self.pending.merge(new) if self.pending else new

    def _batch(self, ready: Floats, source: Ints, target: Ints, message: Ints) -> Batch:
        """Return a batch of messages."""
        pattern, model, topology, size = self.pattern, self.model, self.topology, self.pattern.size
        nbytes = self.bytes[message]
        load = nbytes * model.beta
        takes, busy = model.latency + load, model.hold + load
        ports = np.stack([source, size + target])
        intra = topology.is_intra_node(source, target)
        if intra is not None:
            assert topology.intra_node is not None
            quick = topology.intra_node.alpha + nbytes * topology.intra_node.beta
            takes, busy = np.where(intra, quick, takes), np.where(intra, quick, busy)
            # Where ports are not counted, memory takes any number of messages at once.
            ports[:, intra & (not model.has_port_limit)] = NONE
        links = topology.path(source, target)
        takes = takes + topology.hop * (links != NONE).sum(axis=0)
        used = np.concatenate([ports, np.where(links == NONE, NONE, 2 * size + links)])
        place = message - pattern.first[pattern.round[message]]
        return Batch(ready, source, target, place, takes, busy, load, ports, links, used)

    def _advance(self, pending: Batch) -> None:
        """Start all messages that start before any of them could end, and advance their ranks."""
        start = self._start(pending)
        # At least those that start first, where messages take no time at all.
        horizon = max((start + pending.takes).min(), nextafter(start.min(), inf))
        if len(start) > self.pattern.size:  # else few of them share a port
            horizon = max(horizon, self._soonest(pending, start))
        remaining, going = np.flatnonzero(start < horizon), np.zeros(len(start), bool)
        while len(remaining):
            wave = self._wave(pending, start, remaining)
            if going.any() and len(wave) < _MIN_WAVE + len(remaining) // 16:
                self._one_by_one(pending, start, remaining, going, horizon)
                break
            self._keep(pending, wave, start[wave])
            going[wave] = True
            remaining = remaining[~going[remaining]]
            if len(remaining):
                start[remaining] = self._start(pending.take(remaining))
                remaining = remaining[start[remaining] < horizon]
        self.pending = None if going.all() else pending.take(~going)
        self._land(pending.source[going], pending.target[going], (start + pending.takes)[going])

    def _soonest(self, pending: Batch, start: Floats) -> float:
        """Return a time before which no rank ends its round.

        Each of its messages has to end, and those of one port go through it one after the other.
        """
        ranks = np.concatenate([pending.source, pending.target])
        ends = np.full(self.pattern.size, -inf)
        np.maximum.at(ends, ranks, np.tile(start + pending.takes, 2))
        through = pending.ports != NONE
        work = np.bincount(
            pending.ports[through], np.tile(pending.busy, (2, 1))[through], 2 * len(ends)
        )
        last = self.ports.min(axis=0)[:-1] + work / len(self.ports) - pending.busy.max()
        last = np.where(work > 0, last + pending.takes.min(), -inf).reshape(2, -1).max(axis=0)
        ended = np.maximum(ends, last * (1 - _ROUNDING))
        return float(ended[ends > -inf].min())

    def _start(self, batch: Batch) -> Floats:
        """Return the time at which the ports and links of each message are free."""
        port = self.ports[:, batch.ports].min(axis=0).max(axis=0)
        link = self.links[batch.links].max(axis=0, initial=0.0)
        start: Floats = np.maximum(np.maximum(batch.ready, port), link)
        return start

    def _wave(self, batch: Batch, start: Floats, remaining: Ints) -> Ints:
        """Return the messages that are first at all their ports and links."""
        used = batch.used[:, remaining]
        if self._first(used).all():
            return remaining
        keys = (
            batch.source[remaining],
            batch.place[remaining],
            batch.ready[remaining],
            start[remaining],
        )
        order = np.lexsort(keys)
        wave: Ints = remaining[order[self._first(used[:, order])]]
        return wave

    def _first(self, used: Ints) -> Flags:
        """Return which columns share no entry with an earlier one."""
        number, flat = np.arange(used.shape[1]), used.ravel()
        self.mark[flat] = len(number)
        np.minimum.at(self.mark, flat, np.tile(number, len(used)))
        is_first: Flags = ((self.mark[used] == number) | (used == NONE)).all(axis=0)
        return is_first

    def _one_by_one(
        self, batch: Batch, start: Floats, remaining: Ints, going: Flags, horizon: float
    ) -> None:
        """Start messages one by one, where each waits for another and waves would be small.

        A message that finds a port or link busy waits for it. Of those that wait for one only the
        first in order is tried when it is free: `called` has its time and number.
        """
        keys = batch.source[remaining], batch.place[remaining], batch.ready[remaining]
        remaining = remaining[np.lexsort(keys)]
        used = batch.used[:, remaining].T.tolist()
        free = self._free(np.unique(batch.used[:, remaining]).tolist())
        waiting = defaultdict[int, list[int]](list)
        called: dict[int, tuple[float, int]] = {}
        queue = [(now, number, NONE) for number, now in enumerate(start[remaining].tolist())]
        heapq.heapify(queue)

        def call(port: int, now: float) -> None:
            if not waiting[port]:
                called.pop(port, None)
                return
            called[port] = max(now, min(free[port])), waiting[port][0]
            heapq.heappush(queue, (*called[port], port))

        while queue:
            now, number, port = heapq.heappop(queue)
            if now >= horizon:
                break
            if port != NONE and called.get(port) != (now, number):
                continue
            if port != NONE:
                heapq.heappop(waiting[port])
            until, busy = max((min(free[resource]), resource) for resource in used[number])
            if until <= now:
                index = remaining[number]
                start[index], going[index] = now, True
                ends = now + float(batch.busy[index]), now + float(batch.load[index])
                self._occupy(free, used[number], *ends)
            else:
                heapq.heappush(waiting[busy], number)
                if busy not in called or number < called[busy][1]:
                    call(busy, now)
            if port != NONE:
                call(port, now)
        self._set_free(free)

    def _free(self, used: Sequence[int]) -> dict[int, list[float]]:
        """Return the times at which ports and links are free; NONE always is."""
        first = 2 * self.pattern.size
        return {
            resource: self.ports[:, resource].tolist()
            if resource < first
            else [float(self.links[resource - first])]
            for resource in used
        }

    def _occupy(
        self, free: dict[int, list[float]], used: Sequence[int], port: float, link: float
    ) -> None:
        """Occupy ports and links until these times."""
        for resource in used:
            if resource != NONE:
                times = free[resource]
                times[times.index(min(times))] = port if resource < 2 * self.pattern.size else link

    def _set_free(self, free: dict[int, list[float]]) -> None:
        first = 2 * self.pattern.size
        for resource, times in free.items():
            if resource < first:
                self.ports[:, resource] = times
            else:
                self.links[resource - first] = times[0]

    def _keep(self, batch: Batch, wave: Ints, start: Floats) -> None:
        """Occupy the earliest free port of either rank, and all links of the path."""
        ports = batch.ports[:, wave]
        self.ports[self.ports[:, ports].argmin(axis=0), ports] = start + batch.busy[wave]
        self.links[batch.links[:, wave]] = start + batch.load[wave]
        self.ports[:, NONE] = self.links[NONE] = 0.0

    def _land(self, source: Ints, target: Ints, ends: Floats) -> None:
        """End messages, and advance the ranks whose rounds they complete."""
        ranks = np.concatenate([source, target])
        np.maximum.at(self.ends, ranks, np.concatenate([ends, ends]))
        np.subtract.at(self.open, ranks, 1)
        finished = ranks[self.open[ranks] == 0]
        self.mark[finished] = np.arange(len(finished))
        finished = finished[self.mark[finished] == np.arange(len(finished))]
        self.began[finished] = self.ends[finished] + self.fold[self.now[finished]]
        self.now[finished] += 1
        self._enter(finished)
