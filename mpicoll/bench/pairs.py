"""Measure what every pair of ranks can do: one pair at a time, the others asleep.

A message is a broadcast on the group of two that a pair forms, bound to a transport as any
schedule is: so every backend and transport is measured by the same few lines.

- *latency*: half the round trip of the smallest size.
- *one_way*: a window of messages back to back, closed by an answer, as its sender sees it.
- *both_ways*: a window of exchanges, each a message in either direction at once.
- *copy*: the diagonal, a rank's copy within its own memory.

What is timed are private arrays, on huge pages where there are any (see `pages`). Pairs are
visited in an order drawn anew for each block, so that what drifts hits all alike.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, repeat
from math import ceil
from random import Random
from time import sleep
from typing import Any, NamedTuple

import numpy as np

from mpicoll.backend import Array, Arrays, Thunk
from mpicoll.bench import clock
from mpicoll.bench.links import SELF
from mpicoll.bench.pages import huge_pages
from mpicoll.bench.rendezvous import Rendezvous
from mpicoll.bench.statistics import is_enough, median_interval
from mpicoll.bench.watchdog import Watchdog
from mpicoll.checking import Wrong, compare
from mpicoll.collectives import Collectives
from mpicoll.errors import Unavailable
from mpicoll.plan import Plan

LATENCY, ONE_WAY, BOTH_WAYS, COPY = "latency", "one_way", "both_ways", "copy"

_SAMPLE = 1_000_000
_MOST_CALLS, _MOST_REPEATS, _MOST_VISITS = 500, 4, 50
_BLOCKS, _LEAST_BLOCKS = 4, 3
_PRECISION = 0.05
_NAPS = (1e-4, 2e-3)
_PERIOD, _POISON = 251, 255


class Case(NamedTuple):
    """One number to be known."""

    backend: str
    transport: str
    quantity: str
    source: int
    target: int
    nbytes: int


@dataclass
class Found:
    """What is known of a case.

    Attributes:
        visits: the samples of each visit, microseconds of one message, or of one exchange.
        message: why it cannot be measured; empty where it can.
    """

    calls: int = 0
    visits: list[list[float]] = field(default_factory=list)
    checked: bool = False
    wrong: Wrong | None = None
    message: str = ""

    @property
    def samples(self) -> list[float]:
        """The samples of all visits."""
        return [each for visit in self.visits for each in visit]

    def add(self, other: Found) -> None:
        """Take in what another rank found, or a later visit."""
        self.calls = self.calls or other.calls
        self.visits += other.visits
        self.checked |= other.checked
        self.wrong = self.wrong or other.wrong
        self.message = self.message or other.message


Findings = dict[Case, Found]


@dataclass(frozen=True)
class Settings:
    """How to measure: `sizes` in ascending order, `budget` in seconds."""

    sizes: tuple[int, ...]
    transports: tuple[str, ...]
    device: str = "cpu"
    budget: float = 30.0
    seed: int = 0

    @property
    def large(self) -> tuple[int, ...]:
        """The sizes of which bandwidth is measured: all but the smallest, which tells latency."""
        return self.sizes[1:] or self.sizes


def buffer(world: Collectives, nbytes: int, device: str) -> Array:
    """Return bytes in the memory of the host or of this rank's GPU."""
    if device == "cpu":
        return world.transport.arrays.over(huge_pages(nbytes), "uint8", (nbytes,))
    if world.backend == "torch":
        import torch

        return torch.empty(nbytes, dtype=torch.uint8, device=device)
    import cupy

    return cupy.empty(nbytes, "uint8")


# -- one pair over one transport ----------------------------------------------------------


class Region(NamedTuple):
    """Bytes that one rank of the pair writes, and both hold in the end."""

    writer: int
    view: Array


class Exercise(NamedTuple):
    """What is run to measure a case; both ranks of the pair run all of it.

    Attributes:
        timer: the rank of the pair whose clock counts; it starts when `ready` has told it that
            the other is there, and stops when `close` has told it that all has arrived.
        trips: one-way messages that one run of `body` takes one after the other.
    """

    case: Case
    timer: int
    body: tuple[Thunk, ...]
    ready: Thunk
    close: Thunk | None
    trips: int


class Lane:
    """One pair of ranks over one transport: its plans, and what is measured with them."""

    def __init__(
        self, group: Collectives, pair: tuple[int, int], transport: str, settings: Settings,
        memory: Array,
    ) -> None:  # fmt: skip
        self.group, self.pair, self.transport, self.memory = group, pair, transport, memory
        self.arrays: Arrays = group.transport.arrays
        self.on_gpu = settings.device != "cpu"
        self.plans: list[tuple[Plan, tuple[Region, ...]]] = []
        self.exercises = list(self._exercises(settings))

    def _exercises(self, settings: Settings) -> Iterator[Exercise]:
        least = settings.sizes[0]
        ping = [self._message(root, least) for root in (0, 1)]
        yield Exercise(self.case(LATENCY, 0, least), 0, (ping[0], ping[1]), ping[1], None, 2)
        for nbytes in settings.large:
            for root in (0, 1):
                body = (self._message(root, nbytes),)
                case = self.case(ONE_WAY, root, nbytes)
                yield Exercise(case, root, body, ping[1 - root], ping[1 - root], 1)
            both = (self._exchange(nbytes),)
            yield Exercise(self.case(BOTH_WAYS, 0, nbytes), 0, both, ping[1], ping[1], 1)

    def case(self, quantity: str, source: int, nbytes: int) -> Case:
        """Return the case of a quantity between the two, `source` being 0 or 1."""
        pair = self.pair[source], self.pair[1 - source]
        return Case(self.group.backend, self.transport, quantity, *pair, nbytes)

    def _message(self, root: int, nbytes: int) -> Thunk:
        x = self.memory[:nbytes]
        how = f"binomial@{self.transport}"
        plan = self.group.plan("broadcast", x, out=x, root=root, algorithm=how)
        self.plans.append((plan, (Region(root, x),)))
        return plan.run

    def _exchange(self, nbytes: int) -> Thunk:
        out = self.memory[: 2 * nbytes].reshape(2, nbytes)
        how = f"direct@{self.transport}"
        plan = self.group.plan("allgather", out[self.group.rank], out=out, algorithm=how)
        self.plans.append((plan, (Region(0, out[0]), Region(1, out[1]))))
        return plan.run

    def check(self) -> Wrong | None:
        """Run every plan on poisoned memory, and return what is wrong first."""
        own, wrong = self.group.rank, None
        for plan, regions in self.plans:
            for each in regions:
                good = pattern(self.pair[each.writer], len(each.view))
                ruined = np.full(len(each.view), _POISON, "uint8")
                self.arrays.from_host(each.view, good if each.writer == own else ruined)
            plan.run()
            for each in regions:
                good = pattern(self.pair[each.writer], len(each.view))
                got = self.arrays.to_host(each.view)
                wrong = wrong or compare(self.pair[own], got, good, "message")
        return wrong

    def sample(self, exercise: Exercise, calls: int) -> float:
        """Return the microseconds of one message, as this rank sees it."""
        exercise.ready()
        began = clock.now()
        for _ in repeat(None, calls):
            for run in exercise.body:
                run()
        if exercise.close:
            exercise.close()
        if self.on_gpu:
            self.arrays.synchronize(self.memory)
        return (clock.now() - began) / 1000 / (calls * exercise.trips)

    def calibrate(self) -> list[int]:
        """Return for each exercise how many calls make a sample long enough to be timed."""
        own = [self.sample(each, 3) for each in self.exercises]
        both = self.group.exchange(own)
        return [
            calls_for(both[each.timer][index] * each.trips)
            for index, each in enumerate(self.exercises)
        ]

    def free(self) -> None:
        """Release the plans."""
        for plan, _ in self.plans:
            plan.free()


def pattern(rank: int, count: int) -> np.ndarray[Any, Any]:
    """Return bytes that tell their sender and their place, never the poison."""
    period = ((np.arange(_PERIOD) + 97 * rank + 7) % _PERIOD).astype("uint8")
    return np.resize(period, count)


def calls_for(microseconds: float) -> int:
    """Return how many calls of this length make one sample.

    >>> calls_for(0.5), calls_for(100.0), calls_for(1e6)
    (500, 10, 1)
    """
    return min(_MOST_CALLS, max(1, ceil(_SAMPLE / 1000 / max(microseconds, 1e-3))))


# -- all pairs ----------------------------------------------------------------------------


class Survey:
    """Every pair of ranks on every backend; the first carries the control messages.

    Attributes:
        found: every case of this run, the same on all ranks.
        blocks: how often each pair was visited.
    """

    def __init__(
        self, worlds: dict[str, Collectives], settings: Settings, watchdog: Watchdog
    ) -> None:
        self.worlds, self.settings, self.watchdog = worlds, settings, watchdog
        self.control = next(iter(worlds.values()))
        self.rank, self.size = self.control.rank, self.control.size
        self.random = Random(settings.seed)
        self.gate = self.control.plan("barrier", algorithm="dissemination")
        self.meeting = Rendezvous(self.control, crowded=True)
        room = 2 * settings.sizes[-1]
        self.memory = {name: buffer(each, room, settings.device) for name, each in worlds.items()}
        self.calls: dict[Case, int] = {}
        self.found: Findings = {}
        self.fresh: Findings = {}
        self.repeats, self.blocks = 1, 0

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
            if is_over or all(map(_is_known, self.found.values())):
                break
        gc.enable()
        gc.unfreeze()
        self.watchdog.step("")
        return self.found

    def _visit(self, name: str, pair: tuple[int, int], share: float) -> None:
        """Let one pair work while the others sleep; more often where there is time for it."""
        began = self.meeting.time
        if pair[0] == pair[1]:
            if self.rank == pair[0]:
                self._copy(name)
        else:
            own = self.rank in pair
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
