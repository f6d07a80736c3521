"""The ping-pong of one pair of ranks over one transport: its messages, and their times.

A message is a broadcast on the group of two that the pair forms, bound to a transport as any
schedule is: the same few lines measure every backend and transport.

- *latency*: half the round trip of the smallest size.
- *one_way*: a window of messages back to back, closed by an answer, as its sender sees it.
- *both_ways*: a window of exchanges, each a message in either direction at once.
- *copy*: a rank's copy within its own memory.

The buffers are private arrays, on huge pages where there are any (see `huge_pages`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from math import ceil
from typing import NamedTuple

import numpy as np

from mpicoll.backend import Array, Arrays, Thunk
from mpicoll.collectives import Collectives
from mpicoll.engine.plan import Plan
from mpicoll.measurement import clock
from mpicoll.measurement.checking import Wrong, compare
from mpicoll.measurement.huge_pages import huge_pages
from mpicoll.measurement.patterns import Repeated, Values

LATENCY, ONE_WAY, BOTH_WAYS, COPY = "latency", "one_way", "both_ways", "copy"

_SAMPLE_US = 1000
_MOST_CALLS = 500
_PERIOD, _POISON = 251, 255
_PIECE = 4000 * _PERIOD


class PairCase(NamedTuple):
    """One number that is measured: a quantity of a pair, at one size."""

    backend: str
    transport: str
    quantity: str
    source: int
    target: int
    nbytes: int


def pair_case(
    backend: str, transport: str, pair: tuple[int, int], quantity: str, root: int, nbytes: int
) -> PairCase:
    """Return the case of a quantity; `root` is 0 or 1, the rank within the pair that sends."""
    return PairCase(backend, transport, quantity, pair[root], pair[1 - root], nbytes)


@dataclass
class PairSamples:
    """The samples of a case.

    Attributes:
        calls: of each sample.
        visits: the samples of each visit, in microseconds of one message or of one exchange.
        checked: the bytes that arrived were compared; `wrong`: what was wrong with them.
        message: why the case cannot be measured; empty where it can.
    """

    calls: int = 0
    visits: list[list[float]] = field(default_factory=list)
    checked: bool = False
    wrong: Wrong | None = None
    message: str = ""

    @property
    def samples(self) -> list[float]:
        """The samples of all visits."""
        return [sample for visit in self.visits for sample in visit]

    def add(self, samples: PairSamples) -> None:
        """Add the samples of another rank, or of a later visit."""
        self.calls = self.calls or samples.calls
        self.visits += samples.visits
        self.checked |= samples.checked
        self.wrong = self.wrong or samples.wrong
        self.message = self.message or samples.message


PairFindings = dict[PairCase, PairSamples]


@dataclass(frozen=True)
class PairSettings:
    """How to measure: `sizes` in ascending order, `budget` in seconds."""

    sizes: tuple[int, ...]
    transports: tuple[str, ...]
    device: str = "cpu"
    budget: float = 30.0
    seed: int = 0

    @property
    def large(self) -> tuple[int, ...]:
        """The sizes of which bandwidth is measured: all but the smallest, which is for latency."""
        return self.sizes[1:] or self.sizes


def quantities(settings: PairSettings) -> Iterator[tuple[str, int, int]]:
    """Yield the measurements of a pair: the quantity, which of the two sends, and the bytes."""
    yield LATENCY, 0, settings.sizes[0]
    for nbytes in settings.large:
        yield ONE_WAY, 0, nbytes
        yield ONE_WAY, 1, nbytes
        yield BOTH_WAYS, 0, nbytes


def buffer(world: Collectives, nbytes: int, device: str) -> Array:
    """Return bytes in the memory of the host or of this rank's GPU."""
    if device == "cpu":
        return world.transport.arrays.over(huge_pages(nbytes), "uint8", (nbytes,))
    return world.transport.arrays.empty((nbytes,), "uint8", world.gpu())


class Region(NamedTuple):
    """The bytes that one rank of the pair sends; both hold them in the end."""

    writer: int
    view: Array


class Trial(NamedTuple):
    """The plans that measure a case; both ranks of the pair run all of them.

    Attributes:
        timer: the rank of the pair whose clock counts. It starts after `ready`, a message from
            the other rank, and stops after `close`, the answer that all has arrived.
        trips: the one-way messages in a row that one run of `body` takes.
    """

    case: PairCase
    timer: int
    body: tuple[Thunk, ...]
    ready: Thunk
    close: Thunk | None
    trips: int


class PingPong:
    """The plans of one pair of ranks over one transport, and how to check and time them."""

    def __init__(
        self, group: Collectives, pair: tuple[int, int], transport: str, settings: PairSettings,
        memory: Array,
    ) -> None:  # fmt: skip
        self.group, self.pair, self.transport, self.memory = group, pair, transport, memory
        self.arrays: Arrays = group.transport.arrays
        self.on_gpu = settings.device != "cpu"
        self.plans: list[tuple[Plan, tuple[Region, ...]]] = []
        self.trials = list(self._trials(settings))

    def _trials(self, settings: PairSettings) -> Iterator[Trial]:
        ping = [self._message(root, settings.sizes[0]) for root in (0, 1)]
        for quantity, root, nbytes in quantities(settings):
            case = pair_case(self.group.backend, self.transport, self.pair, quantity, root, nbytes)
            if quantity == LATENCY:
                yield Trial(case, 0, (ping[0], ping[1]), ping[1], None, 2)
                continue
            body = (self._message if quantity == ONE_WAY else self._exchange)(root, nbytes)
            yield Trial(case, root, (body,), ping[1 - root], ping[1 - root], 1)

    def _message(self, root: int, nbytes: int) -> Thunk:
        x = self.memory[:nbytes]
        how = f"binomial@{self.transport}"
        plan = self.group.plan("broadcast", x, out=x, root=root, algorithm=how)
        self.plans.append((plan, (Region(root, x),)))
        return plan.run

    def _exchange(self, _root: int, nbytes: int) -> Thunk:
        out = self.memory[: 2 * nbytes].reshape(2, nbytes)
        how = f"direct@{self.transport}"
        plan = self.group.plan("allgather", out[self.group.rank], out=out, algorithm=how)
        self.plans.append((plan, (Region(0, out[0]), Region(1, out[1]))))
        return plan.run

    def check(self) -> Wrong | None:
        """Run every plan on poisoned memory; return the first wrong element, None without any."""
        rank, wrong = self.group.rank, None
        for plan, regions in self.plans:
            for region in regions:
                for part, good in self._parts(region):
                    self.arrays.from_host(part, good if region.writer == rank else _POISON)
            plan.run()
            for region in regions:
                read = ((self.arrays.to_host(part), good) for part, good in self._parts(region))
                wrong = wrong or compare(self.pair[rank], read, "message")
        return wrong

    def _parts(self, region: Region) -> Iterator[tuple[Array, Values]]:
        """Yield each part of a region with the bytes that its writer sends."""
        start = 0
        for piece in pattern(self.pair[region.writer], len(region.view)).pieces():
            yield region.view[start : start + piece.size], piece
            start += piece.size

    def sample(self, trial: Trial, calls: int) -> float:
        """Return the microseconds of one message, by this rank's clock."""
        trial.ready()
        began = clock.now()
        for _ in repeat(None, calls):
            for run in trial.body:
                run()
        if trial.close:
            trial.close()
        if self.on_gpu:
            self.arrays.synchronize(self.memory)
        return (clock.now() - began) / 1000 / (calls * trial.trips)

    def calibrate(self) -> list[int]:
        """Return for each trial how many calls make a sample long enough to time."""
        times = [self.sample(trial, 3) for trial in self.trials]
        all_times = self.group.exchange(times)
        return [
            calls_for(all_times[trial.timer][index] * trial.trips)
            for index, trial in enumerate(self.trials)
        ]

    def free(self) -> None:
        """Release the plans."""
        for plan, _ in self.plans:
            plan.free()


def pattern(rank: int, count: int) -> Repeated:
    """Return bytes that differ by sender and position, and never equal the poison."""
    period = (np.arange(min(count, _PIECE)) + 97 * rank + 7) % _PERIOD
    return Repeated(period.astype("uint8"), count)


def calls_for(microseconds: float) -> int:
    """Return how many calls of this length make one sample.

    >>> calls_for(0.5), calls_for(100.0), calls_for(1e6)
    (500, 10, 1)
    """
    return min(_MOST_CALLS, max(1, ceil(_SAMPLE_US / max(microseconds, 1e-3))))
