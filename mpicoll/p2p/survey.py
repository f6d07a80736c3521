"""Measure every pair of ranks: one pair at a time, the others asleep.

What is measured of a pair is told in `lane`. Pairs are visited in an order drawn anew for each
block, so that what drifts hits all alike, and so that no moment's noise falls on one pair alone.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from itertools import combinations, repeat
from random import Random
from time import sleep

from mpicoll.cli.watchdog import Watchdog
from mpicoll.collectives import Collectives
from mpicoll.errors import Unavailable
from mpicoll.interfaces import Array, Arrays, Thunk
from mpicoll.machine.links import SELF
from mpicoll.measurement import clock
from mpicoll.measurement.ping_pong import (
    BOTH_WAYS,
    COPY,
    LATENCY,
    ONE_WAY,
    Case,
    Findings,
    Found,
    Lane,
    Settings,
    buffer,
    calls_for,
)
from mpicoll.measurement.statistics import is_enough, median_interval
from mpicoll.measurement.synchroniser import StartSynchroniser

_MOST_REPEATS, _MOST_VISITS = 4, 50
_BLOCKS, _LEAST_BLOCKS = 4, 3
_PRECISION = 0.05
_NAPS = (1e-4, 2e-3)


class Survey:
    """Every pair of ranks on every backend; the first carries the control messages.

    Attributes:
        found: every case of this run, the same on all ranks.
        blocks: how often each pair was visited.
        is_ended: whether a signal has asked this rank to end; any rank's ends them all.
    """

    def __init__(
        self, worlds: dict[str, Collectives], settings: Settings, watchdog: Watchdog
    ) -> None:
        self.worlds, self.settings, self.watchdog = worlds, settings, watchdog
        self.control = next(iter(worlds.values()))
        self.rank, self.size = self.control.rank, self.control.size
        self.random = Random(settings.seed)
        self.gate = self.control.plan("barrier", algorithm="dissemination")
        self.meeting = StartSynchroniser(self.control, oversubscribed=True)
        room = 2 * settings.sizes[-1]
        self.memory = {name: buffer(each, room, settings.device) for name, each in worlds.items()}
        self.calls: dict[Case, int] = {}
        self.found: Findings = {}
        self.fresh: Findings = {}
        self.repeats, self.blocks = 1, 0
        self.is_ended = False

    def measure(self) -> Findings:
        """Visit all pairs, again and again, until their medians are known or time is up."""
        pairs = [*combinations(range(self.size), 2), *((rank, rank) for rank in range(self.size))]
        visits = [(name, pair) for name in self.worlds for pair in pairs]
        began = last = self.meeting.time
        budget = int(self.settings.budget * 1e9)
        gc.collect()
        gc.freeze()
        gc.disable()
        while True:
            for name, pair in self.random.sample(visits, len(visits)):
                self._visit(name, pair, budget / _BLOCKS / len(visits))
            self._gather()
            self.blocks += 1
            used, block = self.meeting.time - began, self.meeting.time - last
            last = self.meeting.time
            is_over = self.blocks >= _LEAST_BLOCKS and used + block > budget
            self.is_ended = any(self.control.exchange(self.is_ended))
            if is_over or self.is_ended or all(map(_is_known, self.found.values())):
                break
        gc.enable()
        gc.unfreeze()
        self.watchdog.step("")
        return self.found

    def end(self, *_signal: object) -> None:
        """Stop measuring after this block; a handler of signals."""
        self.is_ended = True

    def _visit(self, name: str, pair: tuple[int, int], share: float) -> None:
        """Let one pair work while the others sleep; more often where there is time for it."""
        began = self.meeting.time
        if pair[0] == pair[1]:
            if self.rank == pair[0]:
                self._copy(name)
        else:
            own = self.rank in pair
            self.watchdog.step(f"forming the group of ranks {pair[0]} and {pair[1]} ({name})")
            group = self.worlds[name].split(0 if own else None, self.rank)
            if group is not None:
                with group:
                    self._travel(group, pair)
                # What the group mapped goes with it, not with the last group of the run.
                del group
                gc.collect()
        self.assemble()
        # The first block also checks and calibrates: its length tells nothing.
        if self.blocks and pair[0] != pair[1]:
            used = (self.meeting.time - began) / share
            self.repeats = self.repeats // 2 if used > 1 else self.repeats + (used < 0.5)
            self.repeats = min(_MOST_REPEATS, max(1, self.repeats))

    def assemble(self) -> None:
        """Wait for all asleep: whoever polls takes a core from those at work."""
        self.watchdog.step("")
        pending, nap = self.gate.start(), _NAPS[0]
        while not pending.test():
            sleep(nap)
            nap = min(1.3 * nap, _NAPS[1])
        self.meeting.meet()

    def _travel(self, group: Collectives, pair: tuple[int, int]) -> None:
        ways = self.settings.transports
        # Both ranks of the pair need one order; the others must not fall behind in theirs.
        for transport in Random(f"{self.settings.seed} {self.blocks} {pair}").sample(
            ways, len(ways)
        ):
            self.watchdog.step(f"ranks {pair[0]} and {pair[1]} ({group.backend}, {transport})")
            try:
                lane = Lane(group, pair, transport, self.settings, self.memory[group.backend])
            except Unavailable as error:
                self._refuse(group, pair, transport, str(error))
                continue
            self._drive(lane)
            lane.free()

    def _refuse(
        self, group: Collectives, pair: tuple[int, int], transport: str, message: str
    ) -> None:
        """Say of every case of a lane why it has no numbers."""
        least = [(LATENCY, 0, self.settings.sizes[0])]
        wide = [(ONE_WAY, 0), (ONE_WAY, 1), (BOTH_WAYS, 0)]
        sized = [(*each, nbytes) for nbytes in self.settings.large for each in wide]
        for quantity, source, nbytes in [*least, *sized]:
            ends = pair[source], pair[1 - source]
            case = Case(group.backend, transport, quantity, *ends, nbytes)
            self.fresh[case] = Found(message=message)

    def _drive(self, lane: Lane) -> None:
        """Check a lane at its first visit, warm it up, and take samples in turns."""
        first = lane.exercises[0].case not in self.calls
        wrong = lane.check() if first else None
        for each in lane.exercises:
            lane.sample(each, 3)
        if first:
            self.calls |= dict(
                zip((each.case for each in lane.exercises), lane.calibrate(), strict=True)
            )
        for each in lane.exercises:
            timed = each.timer == lane.group.rank
            visits: list[list[float]] = [[]] if timed else []
            self.fresh[each.case] = Found(self.calls[each.case], visits, first, wrong)
        for _ in range(self.repeats):
            for each in lane.exercises:
                time = lane.sample(each, self.calls[each.case])
                for visit in self.fresh[each.case].visits:
                    visit.append(time)

    def _copy(self, name: str) -> None:
        """Measure this rank's copies within its own memory."""
        arrays, memory = self.worlds[name].transport.arrays, self.memory[name]
        self.watchdog.step(f"rank {self.rank} copies ({name})")
        for nbytes in self.settings.large:
            copy = arrays.copier(memory[:nbytes], memory[nbytes : 2 * nbytes])
            case = Case(name, SELF, COPY, self.rank, self.rank, nbytes)
            self._time_copy(copy, arrays, memory, 3)
            if case not in self.calls:
                self.calls[case] = calls_for(self._time_copy(copy, arrays, memory, 3))
            calls = self.calls[case]
            samples = [self._time_copy(copy, arrays, memory, calls) for _ in range(self.repeats)]
            self.fresh[case] = Found(calls, [samples])

    def _time_copy(self, copy: Thunk, arrays: Arrays, memory: Array, calls: int) -> float:
        began = clock.now()
        for _ in repeat(None, calls):
            copy()
        arrays.synchronize(memory)
        return (clock.now() - began) / 1000 / calls

    def _gather(self) -> None:
        """Tell all ranks what each has found in this block."""
        for part in self.control.exchange(self.fresh):
            for case, found in part.items():
                self.found.setdefault(case, Found()).add(found)
        self.fresh = {}


def _is_known(found: Found) -> bool:
    """Whether a median needs no further samples."""
    if found.message or len(found.visits) >= _MOST_VISITS:
        return True
    if len(found.visits) < _BLOCKS or not is_enough(len(found.samples)):
        return False
    return median_interval(found.samples).half_width < _PRECISION


def wrongs(found: Findings) -> Sequence[str]:
    """Return one line for each pair and transport that moved wrong bytes."""
    lines = {
        (case.backend, case.transport, *sorted((case.source, case.target))): each.wrong
        for case, each in found.items() if each.wrong
    }  # fmt: skip
    return [
        f"WRONG between ranks {low} and {high} ({backend}, {transport}): {wrong}"
        for (backend, transport, low, high), wrong in lines.items()
    ]
