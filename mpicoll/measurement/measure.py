"""Measure a group of cases: bind, check, warm up, calibrate, sample in interleaved blocks.

A sample is the time of `calls` back-to-back runs divided by `calls`, the maximum over
ranks. All ranks begin it at one deadline; a late rank spoils the sample, and so does
one that loses its core to another process, unless ranks must share cores anyway: such samples
are counted and taken again. Every block visits every candidate once, in an order of
its own, so that drift affects all alike, and ratios are taken within a block.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from itertools import repeat
from math import ceil
from random import Random
from typing import NamedTuple

from mpicoll.backend import CMA, IPC, SYMMETRIC
from mpicoll.cli.watchdog import Watchdog
from mpicoll.collectives import Collectives
from mpicoll.errors import CollectiveError, ScheduleError
from mpicoll.measurement import clock
from mpicoll.measurement.candidate import Candidate, Settings, active, level
from mpicoll.measurement.capacity import weigh_watched
from mpicoll.measurement.cases import NEW_ARRAYS, PLAN, Case
from mpicoll.measurement.checking import Wrong
from mpicoll.measurement.synchroniser import Report, StartSynchroniser
from mpicoll.measurement.workbench import Workbench

_MOST_CALLS = 1000
_STREAMED = 20
"""Calls of a sample on a GPU in a loop, one after another on the stream, as in nccl-tests."""
_CACHE_CALLS = 20
"""Calls of a sample among which it does not count what another candidate has left in the caches."""
_LONG = 3
"""Times the least length of a sample: calls that take longer are estimated by fewer of them."""
_OVERTIME = 1.3
_TRIES = 4
TIME_OVER = "the time was over"
"""The message of a case that was refused for its limit of time."""


class Pace(NamedTuple):
    """How long a sample lasts at least, how late it may begin (ns), also as a share of it."""

    sample: int
    max_delay: int
    share: float


_PACE = Pace(100_000, 3_000, 0.05)
# Ranks that wait for a core are late by a turn of the scheduler; only longer samples bear it.
_OVERSUBSCRIBED = Pace(250_000, 25_000, 0.1)


class Bench:
    """Several backends over the same ranks; the first carries the control messages.

    Attributes:
        memory: bytes that each rank may take for a group, None for all that there are.
        synchroniser: starts samples on all ranks at once; its `time` is alike on all of them.
    """

    def __init__(
        self,
        worlds: dict[str, Collectives],
        settings: Settings,
        watchdog: Watchdog,
        oversubscribed: bool = False,
        memory: int | None = None,
    ) -> None:
        self.worlds, self.settings, self.watchdog = worlds, settings, watchdog
        self.memory = memory
        self.control = next(iter(worlds.values()))
        self.rank, self.size = self.control.rank, self.control.size
        self.random = Random(settings.seed)
        self.pace = _OVERSUBSCRIBED if oversubscribed else _PACE
        self.synchroniser = StartSynchroniser(self.control, oversubscribed)

    # -- one sample -------------------------------------------------------------------

    def sample(self, candidate: Candidate, calls: int, bench: Workbench) -> list[Report]:
        """Time `calls` runs on every rank, by events of the GPU for arrays there.

        Few calls follow one that is not timed, of the same candidate.
        """
        assert candidate.plan is not None
        run = candidate.plan.run
        if calls < _CACHE_CALLS and not bench.on_gpu:
            run()
        switches = clock.switches()
        delay = self.synchroniser.wait() if self.settings.timing == "together" else 0
        if self._is_stream(bench):
            # The first event of an idle GPU would count how long the ranks, and a first call, take.
            run()
        start = clock.now()
        bench.watch.start()
        for _ in repeat(None, calls):
            run()
        bench.watch.stop()
        host = clock.now() - start
        elapsed = bench.watch.nanoseconds() or host
        lost = clock.switches() - switches
        nap = self._needs_cores(candidate.case.backend, candidate.plan.transport)
        return self.synchroniser.exchange(delay, elapsed, host, lost, nap=nap)

    def _needs_cores(self, backend: str, transport: str) -> bool:
        """Whether ranks still at work would lose their cores to ranks that poll for them."""
        foreign = self.worlds[backend] is not self.control
        threads = backend == "torch" and transport not in (SYMMETRIC, CMA, IPC)
        return foreign or threads

    # -- one group --------------------------------------------------------------------

    def measure(
        self, cases: Sequence[Case], seconds: float, limit: float | None = None
    ) -> list[Candidate]:
        """Measure cases of one group side by side, for about `seconds`.

        Args:
            limit: the `synchroniser.time` at which measuring ends. Until then every case gets its
                least number of samples, also beyond `seconds`. A case that has not begun by then
                is refused.
        """
        self.synchroniser.synchronise()
        until = self.synchroniser.time + int(seconds * 1e9)
        # Memory that was free when the run began may be gone by now.
        refusal = weigh_watched(cases, self.worlds, self.watchdog, self.memory).refusal
        candidates = [
            Candidate(case, message=refusal and f"no memory: {refusal}") for case in cases
        ]
        benches = self._workbenches(
            [candidate for candidate in candidates if not candidate.message]
        )
        self._bind(candidates, benches)
        running = [candidate for candidate in candidates if not candidate.message]
        gc.collect()
        gc.disable()
        for candidate in running:
            if self._is_past(limit):
                candidate.message = TIME_OVER
                continue
            self._check(candidate, benches[candidate.case.backend], self.settings.checks)
            self._calibrate(candidate, benches[candidate.case.backend])
        begun = [candidate for candidate in running if not candidate.message]
        level(begun)
        self._blocks(begun, benches, until, limit)
        checks = 0 if self._is_past(limit) else min(1, self.settings.checks)
        for candidate in begun:
            self._check(candidate, benches[candidate.case.backend], checks)
        for candidate in running:
            assert candidate.plan is not None
            candidate.plan.free()
        if any(candidate.case.call != PLAN for candidate in running):
            for world in self.worlds.values():
                world.plans.free()
        gc.enable()
        self.watchdog.step("")
        return candidates

    def probe(self, cases: Sequence[Case]) -> list[Candidate]:
        """Bind cases without running them: `message` is why one is refused."""
        candidates = [Candidate(case) for case in cases]
        self._bind(candidates, self._workbenches(candidates))
        for candidate in candidates:
            if candidate.plan is not None and not candidate.message:
                candidate.plan.free()
        return candidates

    def _workbenches(self, candidates: list[Candidate]) -> dict[str, Workbench]:
        """Allocate each backend's arrays; a backend without the dtype has its cases refused."""
        benches = {}
        pool = any(candidate.case.call == NEW_ARRAYS for candidate in candidates)
        for candidate in candidates:
            backend = candidate.case.backend
            try:
                if backend not in benches:
                    benches[backend] = Workbench(self.worlds[backend], candidate.case.group, pool)
            except CollectiveError as error:
                candidate.message = str(error)
            except MemoryError as error:
                candidate.message = f"no memory on rank {self.rank}: {error}"
        self._agree(candidates)
        return benches

    def _agree(self, candidates: list[Candidate]) -> None:
        """Raise on all ranks the error of any."""
        everyone = self.control.exchange([candidate.message for candidate in candidates])
        for candidate, *messages in zip(candidates, *everyone, strict=True):
            candidate.message = next(filter(None, messages), "")

    def _bind(self, candidates: list[Candidate], benches: dict[str, Workbench]) -> None:
        """Make the plans; a case that one rank refuses is refused on all."""
        for candidate in candidates:
            if candidate.message:
                continue
            self.watchdog.step(f"binding {candidate.case}")
            try:
                candidate.plan = benches[candidate.case.backend].bind(candidate.case)
            except ScheduleError:
                raise  # on all ranks: the schedule is wrong, and no other case tells so
            except CollectiveError as error:
                candidate.message = str(error)
        self._agree(candidates)
        for candidate in candidates:
            if candidate.message and candidate.plan is not None:
                candidate.plan.free()

    def _check(self, candidate: Candidate, bench: Workbench, times: int) -> None:
        """Run on poisoned outputs, and gather the wrong elements of all ranks."""
        checks = bench.checks(candidate.case)
        if not checks:
            return
        assert candidate.plan is not None
        for _ in range(times):
            self.watchdog.step(f"checking {candidate.case}")
            for check in checks:
                check.prepare()
            for _ in checks:
                candidate.plan.run()
            error = next(filter(None, [check.verify() for check in checks]), None)
            errors = self.control.exchange(error, Wrong | None)
            candidate.checked += 1
            if not candidate.wrong:
                candidate.wrong = [error for error in errors if error]
        for check in checks:
            check.zero_input()

    def _calibrate(self, candidate: Candidate, bench: Workbench) -> None:
        """Warm up, then choose how many calls make a sample long enough to be timed."""
        assert candidate.plan is not None
        self.watchdog.step(f"warming up {candidate.case}")
        for _ in range(self.settings.warmup):
            candidate.plan.run()
        self.synchroniser.exchange()
        # What a library sets up in one of its first calls is none of a usual one: MPICH's fifth.
        for calls in (1, 3, 10):
            candidate.estimate = self._estimate(candidate, calls, bench)
            if candidate.estimate > _LONG * self.pace.sample:
                candidate.estimate = min(candidate.estimate, self._estimate(candidate, 1, bench))
            if candidate.estimate > _LONG * self.pace.sample:
                break
        wanted = ceil(self.pace.sample / max(candidate.estimate, 1))
        min_calls = _STREAMED if self._is_stream(bench) else 1
        candidate.calls = min(_MOST_CALLS, max(min_calls, wanted))

    def _is_stream(self, bench: Workbench) -> bool:
        """Whether calls follow one another on a GPU's stream, and each rank begins on its own."""
        return bench.on_gpu and self.settings.timing == "loop"

    def _estimate(self, candidate: Candidate, calls: int, bench: Workbench) -> float:
        """Return the ns of a call, from a sample during which nobody lost a core, if one is."""
        estimates = []
        for _ in range(_TRIES):
            reports = self.sample(candidate, calls, bench)
            estimates.append(max(report.elapsed for report in reports) / calls)
            if not self._is_preempted(reports):
                break
        return min(estimates)

    def _is_preempted(self, reports: Sequence[Report]) -> bool:
        """Whether a rank lost its core to another process; where ranks share cores they must."""
        return not self.synchroniser.oversubscribed and any(report.switches for report in reports)

    def _is_past(self, limit: float | None) -> bool:
        return limit is not None and self.synchroniser.time > limit

    def _blocks(
        self, running: list[Candidate], benches: dict[str, Workbench], until: int,
        limit: float | None,
    ) -> None:  # fmt: skip
        began, block = self.synchroniser.time, 0
        share = max(until - began, 1)
        while unfinished := active(running, self.settings):
            if self._is_past(limit) or self._is_over(block, began, share, limit):
                break
            for candidate in self.random.sample(unfinished, len(unfinished)):
                if self._is_past(limit):
                    break
                self._visit(candidate, benches[candidate.case.backend], block)
            block += 1
        for candidate in running:
            self._top_up(candidate)

    def _is_over(self, block: int, began: int, share: int, limit: float | None) -> bool:
        """Whether time is up: the least number of blocks may take until `limit`, or a bit more."""
        if self.settings.samples is not None or not block:
            return False
        used = self.synchroniser.time - began
        if block >= self.settings.min_samples:
            return used > share
        return limit is None and used > share * _OVERTIME

    def _visit(self, candidate: Candidate, bench: Workbench, block: int) -> None:
        self.watchdog.step(f"timing {candidate.case}")
        reports = self.sample(candidate, candidate.calls, bench)
        delay = max(report.delay for report in reports)
        elapsed = [report.elapsed for report in reports]
        allowed = max(self.pace.max_delay, self.pace.share * candidate.estimate * candidate.calls)
        self.synchroniser.adapt(delay > allowed)
        samples = candidate.samples
        if delay > allowed:
            samples = candidate.late_samples
        elif self._is_preempted(reports):
            samples = candidate.preempted
        samples[block] = max(elapsed) / candidate.calls / 1000
        if bench.on_gpu:
            candidate.host[block] = max(report.host for report in reports) / candidate.calls / 1000
        candidate.slowest[elapsed.index(max(elapsed))] += 1
        candidate.lateness = max(candidate.lateness, delay)

    def _top_up(self, candidate: Candidate) -> None:
        """Take the spoilt samples too where the others cannot carry an interval."""
        if len(candidate.samples) < self.settings.min_samples:
            candidate.samples |= candidate.late_samples | candidate.preempted
