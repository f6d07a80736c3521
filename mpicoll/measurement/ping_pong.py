"""One pair of ranks over one transport: what is run between the two, and timed.

A message is a broadcast on the group of two that a pair forms, bound to a transport as any
schedule is: so every backend and transport is measured by the same few lines.

- *latency*: half the round trip of the smallest size.
- *one_way*: a window of messages back to back, closed by an answer, as its sender sees it.
- *both_ways*: a window of exchanges, each a message in either direction at once.
- *copy*: the diagonal, a rank's copy within its own memory.

What is timed are private arrays, on huge pages where there are any (see `pages`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from mpicoll.collectives import Collectives
from mpicoll.interfaces import Array, Arrays, Thunk
from mpicoll.measurement import clock
from mpicoll.measurement.checking import Wrong, compare
from mpicoll.measurement.huge_pages import huge_pages
from mpicoll.runtime.plan import Plan

LATENCY, ONE_WAY, BOTH_WAYS, COPY = "latency", "one_way", "both_ways", "copy"

_SAMPLE = 1_000_000
_MOST_CALLS = 500
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
    return world.transport.arrays.empty((nbytes,), "uint8", world.gpu())


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
