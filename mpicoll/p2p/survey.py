"""Measure every pair of ranks by ping-pongs: one pair at a time, while the others sleep.

Each block visits the pairs in a new random order. Drift then affects all pairs alike, and short
noise does not affect a single pair only.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from itertools import combinations, repeat
from random import Random
from time import sleep

from mpicoll.backend import Array, Arrays, Request, Thunk
from mpicoll.cli.progress import ProgressBar
from mpicoll.cli.watchdog import Watchdog
from mpicoll.collectives import Collectives
from mpicoll.errors import Unavailable
from mpicoll.machine.links import SELF
from mpicoll.measurement import clock
from mpicoll.measurement.ping_pong import (
    COPY,
    PairCase,
    PairFindings,
    PairSamples,
    PairSettings,
    PingPong,
    buffer,
    calls_for,
    pair_case,
    quantities,
)
from mpicoll.measurement.statistics import is_enough, median_interval
from mpicoll.measurement.synchroniser import StartSynchroniser

_MOST_REPEATS, _MOST_VISITS = 4, 50
_MOST_KEPT = 16
"""Largest number of ranks for which a rank keeps the groups of all its pairs."""
_BLOCKS, _LEAST_BLOCKS = 4, 3
_PRECISION = 0.05
_NAPS = (1e-4, 2e-3)
Visit = tuple[str, tuple[int, int]]
"""A backend, and a pair of ranks."""


class Survey:
    """The measurement of every pair on every backend; the first carries the control messages.

    Attributes:
        samples: of every case of this run, equal on all ranks.
        blocks: number of visits of each pair.
        is_ended: whether a rank has received a signal that ends the run.
    """

    def __init__(
        self, worlds: dict[str, Collectives], settings: PairSettings, watchdog: Watchdog
    ) -> None:
        self.worlds, self.settings, self.watchdog = worlds, settings, watchdog
        self.control = next(iter(worlds.values()))
        self.rank, self.size = self.control.rank, self.control.size
        self.random = Random(settings.seed)
        self.barrier = self.control.plan("barrier", algorithm="dissemination")
        self.synchroniser = StartSynchroniser(self.control, oversubscribed=True)
        room = 2 * settings.sizes[-1]
        self.memory = {name: buffer(world, room, settings.device) for name, world in worlds.items()}
        self.groups: dict[tuple[str, tuple[int, int]], Collectives | None] = {}
        self.calls: dict[PairCase, int] = {}
        self.samples: PairFindings = {}
        self.latest: PairFindings = {}
        self.repeats, self.blocks = 1, 0
        self.is_ended = False

    def measure(self) -> PairFindings:
        """Visit all pairs in blocks until their medians are known or the budget is spent."""
        pairs = [*combinations(range(self.size), 2), *((rank, rank) for rank in range(self.size))]
        visits = [(name, pair) for name in self.worlds for pair in pairs]
        gc.collect()
        gc.freeze()
        gc.disable()
        with ProgressBar(_LEAST_BLOCKS * len(visits), has_thread=False) as bar:
            self._measure_blocks(visits, bar)
        for group in filter(None, self.groups.values()):
            group.free()
        self.groups.clear()
        gc.enable()
        gc.unfreeze()
        self.watchdog.step("")
        return self.samples

    def end(self, *_signal: object) -> None:
        """Stop after this block; a signal handler."""
        self.is_ended = True

    def _measure_blocks(self, visits: Sequence[Visit], bar: ProgressBar) -> None:
        began = last = self.synchroniser.time
        budget = int(self.settings.budget * 1e9)
        is_over = False
        while not is_over:
            for name, pair in self.random.sample(visits, len(visits)):
                spent = self.synchroniser.time - began
                # The first blocks are measured whatever the budget is.
                remaining = (budget - spent) / 1e9 if self.blocks >= _LEAST_BLOCKS else None
                bar.step(f"ranks {pair[0]} and {pair[1]} ({name})", remaining=remaining)
                self._visit(name, pair, budget / _BLOCKS / len(visits))
            self._gather()
            self.blocks += 1
            bar.total = max(_LEAST_BLOCKS, self.blocks + 1) * len(visits)
            used, block = self.synchroniser.time - began, self.synchroniser.time - last
            last = self.synchroniser.time
            self.is_ended = any(self.control.exchange(self.is_ended))
            is_over = (
                (self.blocks >= _LEAST_BLOCKS and used + block > budget)
                or self.is_ended
                or all(map(_is_known, self.samples.values()))
            )

    def _visit(self, name: str, pair: tuple[int, int], share: float) -> None:
        """Measure one pair while the other ranks sleep; take more samples if time remains."""
        began = self.synchroniser.time
        if pair[0] == pair[1]:
            if self.rank == pair[0]:
                self._copy(name)
        else:
            group = self._group(name, pair)
            if group is not None:
                self._measure(group, pair)
            if group is not None and not self._keeps_groups(name):
                group.free()
                # Release the memory of the group now, not at the end of the run.
                del group
                gc.collect()
        self.assemble()
        # The first block also checks and calibrates, so its duration does not count.
        if self.blocks and pair[0] != pair[1]:
            used = (self.synchroniser.time - began) / share
            self.repeats = self.repeats // 2 if used > 1 else self.repeats + (used < 0.5)
            self.repeats = min(_MOST_REPEATS, max(1, self.repeats))

    def _group(self, name: str, pair: tuple[int, int]) -> Collectives | None:
        """Return the group of a pair, None on other ranks; collective."""
        if (name, pair) in self.groups:
            return self.groups[name, pair]
        self.watchdog.step(f"forming the group of ranks {pair[0]} and {pair[1]} ({name})")
        group = self.worlds[name].split(0 if self.rank in pair else None, self.rank)
        if self._keeps_groups(name):
            self.groups[name, pair] = group
        return group

    def _keeps_groups(self, name: str) -> bool:
        """Whether pairs keep their groups: NCCL needs a second and GPU memory to form one."""
        by_nccl = self.settings.device != "cpu" and self.worlds[name].transport.matches_by_order
        return by_nccl and self.size <= _MOST_KEPT

    def assemble(self) -> None:
        """Wait for all ranks by sleeping: polling would take a core from the measured ranks."""
        self.watchdog.step("")
        wait_asleep(self.barrier.start())
        self.synchroniser.exchange()

    def _measure(self, group: Collectives, pair: tuple[int, int]) -> None:
        names, memory = self.settings.transports, self.memory[group.backend]
        # A separate generator gives both ranks the same order, as all ranks share `self.random`.
        order = Random(f"{self.settings.seed} {self.blocks} {pair}")
        for transport in order.sample(names, len(names)):
            self.watchdog.step(f"ranks {pair[0]} and {pair[1]} ({group.backend}, {transport})")
            try:
                ping_pong = PingPong(group, pair, transport, self.settings, memory)
            except Unavailable as error:
                self._refuse(group, pair, transport, str(error))
                continue
            self._sample(ping_pong)
            ping_pong.free()

    def _refuse(
        self, group: Collectives, pair: tuple[int, int], transport: str, message: str
    ) -> None:
        """Record the reason why the cases of a pair over a transport have no numbers."""
        for quantity in quantities(self.settings):
            case = pair_case(group.backend, transport, pair, *quantity)
            self.latest[case] = PairSamples(message=message)

    def _sample(self, ping_pong: PingPong) -> None:
        """Check a ping-pong at its first visit, warm it up, and sample its trials in turns."""
        trials, rank = ping_pong.trials, ping_pong.group.rank
        is_first = trials[0].case not in self.calls
        wrong = ping_pong.check() if is_first else None
        for trial in trials:
            ping_pong.sample(trial, 3)
        if is_first:
            for trial, calls in zip(trials, ping_pong.calibrate(), strict=True):
                self.calls[trial.case] = calls
        times: list[list[float]] = [[] for _ in trials]
        for _ in range(self.repeats):
            for trial, samples in zip(trials, times, strict=True):
                samples.append(ping_pong.sample(trial, self.calls[trial.case]))
        for trial, samples in zip(trials, times, strict=True):
            visits = [samples] if trial.timer == rank else []
            self.latest[trial.case] = PairSamples(self.calls[trial.case], visits, is_first, wrong)

    def _copy(self, name: str) -> None:
        """Time copies within this rank's own memory."""
        arrays, memory = self.worlds[name].transport.arrays, self.memory[name]
        self.watchdog.step(f"rank {self.rank} copies ({name})")
        for nbytes in self.settings.large:
            copy = arrays.copier(memory[:nbytes], memory[nbytes : 2 * nbytes])
            case = PairCase(name, SELF, COPY, self.rank, self.rank, nbytes)
            self._time_copy(copy, arrays, memory, 3)
            if case not in self.calls:
                self.calls[case] = calls_for(self._time_copy(copy, arrays, memory, 3))
            calls = self.calls[case]
            samples = [self._time_copy(copy, arrays, memory, calls) for _ in range(self.repeats)]
            self.latest[case] = PairSamples(calls, [samples])

    def _time_copy(self, copy: Thunk, arrays: Arrays, memory: Array, calls: int) -> float:
        began = clock.now()
        for _ in repeat(None, calls):
            copy()
        arrays.synchronize(memory)
        return (clock.now() - began) / 1000 / calls

    def _gather(self) -> None:
        """Merge the samples of this block from all ranks."""
        for part in self.control.exchange(self.latest, PairFindings):
            for case, samples in part.items():
                self.samples.setdefault(case, PairSamples()).add(samples)
        self.latest = {}


def wait_asleep(pending: Request) -> None:
    """Return when a call is complete; sleep between tests, ever longer."""
    nap = _NAPS[0]
    while not pending.test():
        sleep(nap)
        nap = min(1.3 * nap, _NAPS[1])


def _is_known(samples: PairSamples) -> bool:
    """Whether the median is known well enough."""
    if samples.message or len(samples.visits) >= _MOST_VISITS:
        return True
    if len(samples.visits) < _BLOCKS or not is_enough(len(samples.samples)):
        return False
    return median_interval(samples.samples).half_width < _PRECISION


def wrongs(findings: PairFindings) -> Sequence[str]:
    """Return one line for each pair and transport that moved wrong bytes."""
    lines = {
        (case.backend, case.transport, *sorted((case.source, case.target))): samples.wrong
        for case, samples in findings.items() if samples.wrong
    }  # fmt: skip
    return [
        f"WRONG between ranks {low} and {high} ({backend}, {transport}): {wrong}"
        for (backend, transport, low, high), wrong in lines.items()
    ]
