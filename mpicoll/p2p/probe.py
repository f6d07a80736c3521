"""Measure links between hosts in rounds of disjoint pairs, and the rates of ranks.

One rank of each host, its leader, measures the links of the host. The other ranks sleep meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from math import ceil
from time import thread_time_ns

import numpy as np

from mpicoll.backend import Thunk
from mpicoll.c_extension import _compiled
from mpicoll.cli.progress import ProgressBar
from mpicoll.collectives import Collectives
from mpicoll.errors import RankLost
from mpicoll.machine.nodes import host_identity
from mpicoll.measurement import clock
from mpicoll.measurement.huge_pages import huge_pages
from mpicoll.measurement.ping_pong import PairSettings, PingPong, Trial, buffer
from mpicoll.measurement.ranks import Ranks
from mpicoll.p2p.judging import BANDWIDTH, COMPUTE, COPY, FOLD, LATENCY, SHARE, Figures
from mpicoll.p2p.matchings import Pair
from mpicoll.p2p.smoke import wrong_results
from mpicoll.p2p.survey import wait_asleep

_SMALL, _LARGE = 8, 256 << 10
"""Bytes of the messages of latency and bandwidth."""
_MOST_BYTES, _GROWTH = 64 << 20, 8
"""The most bytes of one sample, and how many times more messages the next sample may have."""
_MOST_TRIPS = 200
_LEAST_DEADLINE = 5.0
"""Seconds in which the other end of a link must answer, however short the rounds are."""
_WINDOW = 0.05
"""Seconds of a sample of a rank's rate: many time slices of the scheduler."""
_COUNT, _CACHED, _STEPS = 1 << 20, 4096, 64
"""Elements of the arrays in memory, of those in a core's cache, and steps of a computation."""
_FACTOR, _TERM = 6364136223846793005, 1442695040888963407
"""A linear congruential generator (Knuth, MMIX): its state after n steps has a closed form."""


class Probe:
    """The measurement of links and ranks; every method is collective.

    Args:
        bar: shows each round of links and each sample of the ranks as a step.

    Attributes:
        leaders: the group of the first rank of each host; None on other ranks.
        node: the index of this rank's host.
        is_cut: a link did not answer, so that the groups of its ends cannot be freed.
        faulty: the links that did not answer or moved wrong bytes; they are not measured again.
    """

    def __init__(self, ranks: Ranks, bar: ProgressBar) -> None:
        self.world, self.watchdog, self.bar = ranks.everyone, ranks.watchdog, bar
        self.nodes, self.rank = self.world.nodes, self.world.rank
        self.node = next(index for index, members in enumerate(self.nodes) if self.rank in members)
        self.barrier = self.world.plan("barrier", algorithm="dissemination")
        is_leader = self.rank == self.nodes[self.node][0]
        self.leaders = self.world.split(0 if is_leader else None, self.rank)
        self.memory = buffer(self.world, 2 * _LARGE, "cpu")
        self.rates = Rates()
        self.is_cut, self.faulty = False, set[Pair]()
        self.has_latencies = not ranks.oversubscribed

    def assemble(self) -> None:
        """Wait for all ranks by sleeping: polling would take cores from the measured ranks."""
        self.watchdog.step("waiting for all ranks")
        wait_asleep(self.barrier.start())

    # -- links ----------------------------------------------------------------------------

    def links(self, rounds: Sequence[Sequence[Pair]], seconds: float) -> dict[Pair, Figures]:
        """Return the figures of pairs of hosts, which are disjoint within a round.

        Args:
            seconds: the time of one round. A slow link may take the time of a few messages more.
        """
        local: dict[Pair, Figures] = {}
        for number, pairs in enumerate(rounds, 1):
            self.bar.step(f"links, round {number} of {len(rounds)}")
            pair = next((pair for pair in pairs if self.node in pair), None)
            pair = None if pair in self.faulty else pair
            if self.leaders is not None:
                with ranks_of_world([members[0] for members in self.nodes]):
                    group = self.leaders.split(pair[0] if pair else None, self.rank)
                if group is not None and pair is not None:
                    local[pair] = self._link(group, pair, seconds)
            self.assemble()
        merged: dict[Pair, Figures] = {}
        for part in self.world.exchange(local, dict[Pair, Figures]):
            for pair, figures in part.items():
                if not merged.get(pair, Figures()).fault:
                    merged[pair] = figures
        self.faulty |= {pair for pair, figures in merged.items() if figures.fault}
        return merged

    def _link(self, group: Collectives, pair: Pair, seconds: float) -> Figures:
        """Return the figures of one link; it has a fault if the other end is silent."""
        group.deadline = min(group.deadline, max(_LEAST_DEADLINE, 2 * seconds))
        self.watchdog.step(f"the link of hosts {pair[0]} and {pair[1]}")
        try:
            figures = self._measure(group, pair, seconds)
        except RankLost:
            self.is_cut = True
            return Figures(fault="does not answer")
        group.free()
        return figures

    def _measure(self, group: Collectives, pair: Pair, seconds: float) -> Figures:
        settings = PairSettings((_SMALL, _LARGE), ("point-to-point",))
        ping_pong = PingPong(group, pair, "point-to-point", settings, self.memory)
        latency, forward, backward, _ = ping_pong.trials
        wrong = ping_pong.check()
        lines = [str(replace(wrong, rank=self.rank))] if wrong else []
        lines += wrong_results(group, self.rank, self.watchdog, ["allreduce"])
        trip = self._latency(ping_pong, latency, seconds)
        rates = [self._rate(ping_pong, trial, seconds) for trial in (forward, backward)]
        ping_pong.free()
        amounts = {BANDWIDTH.name: min(rates)}
        if self.has_latencies:
            amounts[LATENCY.name] = trip
        return Figures(amounts, f"wrong results: {lines[0]}" if lines else "")

    def _latency(self, ping_pong: PingPong, trial: Trial, seconds: float) -> float:
        """Return the least time of one message, in microseconds."""

        def least_time(trips: int) -> float:
            local = min(ping_pong.sample(trial, 1) for _ in range(trips))
            times: list[float] = ping_pong.group.exchange(local, float)
            return times[trial.timer]

        first = least_time(5)
        trips = int(1e6 * seconds / 10 / (2 * first))
        return min(first, least_time(min(_MOST_TRIPS, max(1, trips))))

    def _rate(self, ping_pong: PingPong, trial: Trial, seconds: float) -> float:
        """Return GB/s in one direction, of a sample that takes a share of the time."""
        window, calls, limit = 1e5 * seconds, 1, _MOST_BYTES // _LARGE
        while True:
            times: list[float] = ping_pong.group.exchange(ping_pong.sample(trial, calls), float)
            time = times[trial.timer]
            if calls == limit or calls * time >= 0.8 * window:
                return _LARGE / time / 1000
            calls = min(limit, _GROWTH * calls, max(calls + 1, ceil(window / time)))

    # -- ranks ----------------------------------------------------------------------------

    def ranks(self, turns: Sequence[Sequence[int]]) -> dict[int, Figures]:
        """Return the figures of all ranks.

        Args:
            turns: the hosts whose ranks measure at once.
        """
        figures = Figures()
        for hosts in turns:
            self.bar.step("rates of ranks")
            if self.node in hosts:
                self.watchdog.step("measuring the rates of ranks")
                figures = self.rates.measure()
            self.assemble()
        return dict(enumerate(self.world.exchange(figures, Figures)))

    def turns(self) -> list[list[int]]:
        """Return the hosts that measure at once: those that share a machine take turns.

        Emulated hosts and containers of one machine share its cores.
        """
        machines = self.world.exchange(host_identity().rpartition(" ")[2], str)
        hosts_of: dict[str, list[int]] = {}
        for index, members in enumerate(self.nodes):
            hosts_of.setdefault(machines[members[0]], []).append(index)
        turns = zip_longest(*hosts_of.values())
        return [[host for host in hosts if host is not None] for hosts in turns]


@contextmanager
def ranks_of_world(members: Sequence[int]) -> Iterator[None]:
    """Name a lost rank of a group as the world does.

    Args:
        members: the ranks of the group, as the world numbers them.
    """
    try:
        yield
    except RankLost as error:
        rank = None if error.rank is None else members[error.rank]
        raise RankLost(error.reason, rank=rank) from error


class Rates:
    """The copy, the fold and a computation of one rank, on arrays of known results."""

    def __init__(self) -> None:
        nbytes = 8 * _COUNT
        memory = np.frombuffer(huge_pages(3 * nbytes), "int64")
        self.lhs, self.rhs, self.out = memory.reshape(3, _COUNT)
        self.lhs[:] = np.arange(_COUNT)
        self.rhs[:] = 3 * self.lhs + 7
        self.state = np.arange(_CACHED, dtype="uint64")
        factor, term = 1, 0
        for _ in range(_STEPS):
            factor, term = factor * _FACTOR, term * _FACTOR + _TERM
        self.computed = [(factor * start + term) % (1 << 64) for start in range(_CACHED)]
        self.fault = self.check()

    def measure(self) -> Figures:
        """Return the rates of this rank and its share of a core, each from one sample."""
        copied, folded = 8e-9 * _COUNT, 24e-9 * _COUNT
        computed = 2e-9 * _CACHED * _STEPS
        amounts, shares = {}, []
        for name, size, run in (
            (COPY.name, copied, self.copy), (FOLD.name, folded, self.fold),
            (COMPUTE.name, computed, self.compute),
        ):  # fmt: skip
            frequency, share = _per_second(run)
            amounts[name] = size * frequency
            shares.append(share)
        return Figures(amounts | {SHARE.name: sum(shares) / len(shares)}, self.fault)

    def check(self) -> str:
        """Return what this rank has computed wrongly; empty if all is right."""
        self.fold()
        if not np.array_equal(self.out, np.arange(7, 4 * _COUNT + 7, 4)):
            return "this rank adds whole numbers wrongly"
        self.state[:] = np.arange(_CACHED)
        self.compute()
        return "" if self.state.tolist() == self.computed else "this rank computes wrongly"

    def copy(self) -> None:
        """Copy an array in memory."""
        np.copyto(self.out, self.lhs)

    def fold(self) -> None:
        """Add two arrays in memory, as schedules do."""
        _compiled.fold("sum", "int64", self.out, self.lhs, self.rhs)

    def compute(self) -> None:
        """Step a generator on an array in a core's cache."""
        for _ in range(_STEPS):
            np.multiply(self.state, np.uint64(_FACTOR), out=self.state)
            np.add(self.state, np.uint64(_TERM), out=self.state)


def _per_second(run: Thunk) -> tuple[float, float]:
    """Return how often a function runs in a second on a core, and the share of a core it gets."""
    began, began_on_core, count = clock.now(), thread_time_ns(), 0
    while (elapsed := clock.now() - began) < 1e9 * _WINDOW:
        run()
        count += 1
    on_core = max(1, thread_time_ns() - began_on_core)
    return 1e9 * count / on_core, min(1.0, on_core / elapsed)
