"""``algorithm="adaptive"``: measure the likely fastest algorithms in the first calls, and settle.

The candidates of a signature take turns in its calls, each on the caller's own arrays. The ranks
exchange their medians after a turn and decide by the same numbers. From then on the calls run the
fastest candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

from mpicoll.backend import Array
from mpicoll.calls.allocation import with_arrays
from mpicoll.calls.arguments import Arguments
from mpicoll.calls.cached_plan import CachedPlan
from mpicoll.calls.method_calls import ADAPTIVE, MethodCalls, RawArguments
from mpicoll.engine.plan import Plan
from mpicoll.errors import CollectiveError, Unavailable, Unsupported
from mpicoll.peers.calls import OtherCall

PASSES = 6
"""How often each candidate runs before the ranks settle; the first time does not count."""
SMALL, PASSES_OF_SMALL = 64 * 1024, 20
"""Up to how many bytes of a vector or row, and how often: their times vary more."""
_HOPELESS, _FEWEST = 2.0, 2
"""A candidate drops out if it takes so many times the time of the fastest, once it was timed so
often and in a quarter of all passes."""
_TIE = 0.95
"""The time over that of the first candidate below which another is chosen."""
_MAX_SIGNATURES = 64
_TRIAL_DIGEST = int.from_bytes(b"adaptive", "little")

Clock = Callable[[], int]
"""Returns nanoseconds."""


class Trials:
    """The times of candidates that take turns; all ranks make the same calls of its methods.

    Attributes:
        active: the candidates that still take turns, in the order in which they were given.
    """

    def __init__(self, candidates: Sequence[str], passes: int) -> None:
        self.active, self.passes = list(candidates), passes
        self.times: dict[str, list[int]] = {text: [] for text in candidates}
        self.passes_done, self.turn = 0, 0

    @property
    def current(self) -> str:
        """The candidate whose turn it is."""
        return self.active[self.turn]

    def record(self, nanoseconds: int) -> bool:
        """Note the time of a turn on this rank; whether the ranks are to compare times now."""
        if self.passes_done:
            self.times[self.current].append(max(1, nanoseconds))
        self.turn = (self.turn + 1) % len(self.active)
        self.passes_done += not self.turn
        return not self.turn and self.passes_done > max(_FEWEST, self.passes // 4)

    def medians(self) -> list[int]:
        """Return this rank's median time of each active candidate, in nanoseconds."""
        return [_median(self.times[text]) for text in self.active]

    def narrow(self, medians: Sequence[list[int]]) -> str | None:
        """Drop the candidates that are too slow; return the choice once it is made.

        Args:
            medians: those of each rank.
        """
        slowest = dict(zip(self.active, map(max, zip(*medians, strict=True)), strict=True))
        first, best_time = self.active[0], min(slowest.values())
        is_tie = best_time > _TIE * slowest[first]
        choice = first if is_tie else min(slowest, key=slowest.__getitem__)
        self.active = [text for text in self.active if slowest[text] <= _HOPELESS * best_time]
        return choice if self.passes_done >= self.passes or len(self.active) == 1 else None


class _Signature:
    """The state of one signature; the same on all ranks but for the times.

    Attributes:
        trials: the times of the comparison; None once the ranks have settled.
        chosen: the algorithm that the calls run; empty before that.
        stage: the number of turns until now, by which ranks know that they are in step.
    """

    def __init__(self, candidates: Sequence[str], passes: int) -> None:
        self.candidates = list(candidates)
        self.trials = Trials(candidates, passes) if len(candidates) > 1 else None
        self.chosen = "" if self.trials else candidates[0]
        self.stage = 0

    @property
    def current(self) -> str:
        """The algorithm of the next call."""
        return self.trials.current if self.trials else self.chosen


class Adaptive:
    """Measures for the methods and plans of one group of ranks.

    Attributes:
        clock: returns nanoseconds.
    """

    def __init__(self, plans: MethodCalls) -> None:
        self.plans, self.clock = plans, perf_counter_ns
        self._signatures: dict[Any, _Signature] = {}

    def choice(self, arguments: Arguments) -> str:
        """Return the algorithm that calls of these arguments have settled on; empty before."""
        signature = self._signatures.get(arguments.key)
        return signature.chosen if signature else ""

    # -- methods ----------------------------------------------------------------------

    def run(
        self, checked: Arguments, raw_arguments: RawArguments = (), *, differs: bool = False
    ) -> Array | None:
        """Run a call, and return its result; collective. As `MethodCalls.run`."""
        if not checked.is_complete:
            return self.plans.run(checked, raw_arguments, differs=differs)
        try:
            return self._run(checked, raw_arguments, differs=differs)
        except OtherCall as error:
            self._fail(checked.key, error)
            return self.plans.run_uncached(checked)
        except BaseException as error:
            # The other ranks may have come further: they find out by the digest.
            self._fail(checked.key, error)
            raise

    def _run(
        self, checked: Arguments, raw_arguments: RawArguments, *, differs: bool
    ) -> Array | None:
        plans, key, call_start = self.plans, checked.key, self.clock()
        signature = self._signatures.get(key)
        plan = plans.get((key, signature.current)) if signature else None
        digest = self._digest(checked, signature, plan)
        compared = self.clock()
        if plan is None and plans.calls is not None:
            self._drop(key)
            signature = None
            checked, is_new = plans.settle(checked)
            if not is_new:
                return plans.run_once(checked)
        elif differs or not plans.matches(digest, plan):
            self._drop(key)
            return plans.run_uncached(checked)
        call_start += self.clock() - compared
        signature = signature or self._begin(checked)
        runs, cached = replace(checked, algorithm=signature.current), (key, signature.current)
        plan = plans.get(cached) or plans.make(cached, runs)
        if signature.trials is None:
            return plans.run_cached(
                plan, runs, self._digest(checked, signature, plan), raw_arguments
            )
        return self._measure(signature, signature.trials, plan, runs, key, call_start)

    @staticmethod
    def _digest(checked: Arguments, signature: _Signature | None, plan: CachedPlan | None) -> int:
        return checked.digest((plan and plan.number, signature and signature.stage))

    def _begin(self, checked: Arguments) -> _Signature:
        """Make the plans of the candidates; collective."""
        if len(self._signatures) >= _MAX_SIGNATURES:
            self._drop(next(iter(self._signatures)))
        key, candidates = checked.key, []
        for text in self._candidates(checked):
            try:
                self.plans.make((key, text), replace(checked, algorithm=text))
            except (Unavailable, Unsupported):
                continue
            candidates.append(text)
        self._signatures[key] = _Signature(candidates or ["auto"], _passes(checked))
        return self._signatures[key]

    def _candidates(self, arguments: Arguments) -> list[str]:
        """Return the candidates that this rank can run, the same on all ranks; collective."""
        planner, candidates = self.plans.planner, []
        for text in planner.chooser.candidates(arguments):
            try:
                planner.check(replace(arguments, algorithm=text))
            except CollectiveError:
                continue
            candidates.append(text)
        return candidates

    def _measure(
        self, signature: _Signature, trials: Trials, plan: CachedPlan, runs: Arguments, key: Any,
        call_start: int,
    ) -> Array | None:  # fmt: skip
        """Run and time a turn, and settle where the times suffice; collective.

        Args:
            call_start: when the call began, but for its wait for the other ranks.
        """
        # What Python runs costs Python in every call, what the executor finds by itself does not.
        start = call_start if plan.program is None else self.clock()
        out = self.plans.run_cached(plan, runs, _TRIAL_DIGEST, ())
        is_complete = trials.record(self.clock() - start)
        signature.stage += 1
        if is_complete:
            active = list(trials.active)
            choice = trials.narrow(self.plans.transport.exchange(trials.medians(), list[int]))
            if choice is not None:
                signature.trials, signature.chosen, trials.active = None, choice, [choice]
            self.plans.drop([(key, text) for text in active if text not in trials.active])
        return out

    def _fail(self, key: Any, error: BaseException) -> None:
        if key in self._signatures:
            self.plans.fail((key, self._signatures[key].current), error)
        self._drop(key)

    def _drop(self, key: Any) -> None:
        """Begin again with a signature: all ranks do once one of them does, for digests differ."""
        signature = self._signatures.pop(key, None)
        self.plans.drop([(key, text) for text in signature.candidates] if signature else [])

    # -- plans ------------------------------------------------------------------------

    def plan(self, arguments: Arguments) -> Plan:
        """Make a plan of the fastest candidate on arrays of its own; collective."""
        with self.plans.poison_on_error():
            plan = self.plans.planner.build(replace(arguments, algorithm=self._fastest(arguments)))
        plan.note = ADAPTIVE
        return plan

    def _fastest(self, arguments: Arguments) -> str:
        """Return the fastest candidate on arrays like the caller's; collective."""
        plans, transport = self.plans, self.plans.transport
        copies, arrays = with_arrays(transport, arguments, copies=True), transport.arrays
        if copies.x is not None:
            arrays.copier(arrays.flat(copies.x), arrays.flat(arguments.x))()
        trial_plans: dict[str, Plan] = {}
        for text in self._candidates(arguments):
            try:
                trial_plans[text] = plans.planner.build(replace(copies, algorithm=text))
            except (Unavailable, Unsupported):
                continue
        choice = "" if len(trial_plans) > 1 else next(iter(trial_plans), "auto")
        trials = Trials(list(trial_plans), _passes(arguments))
        while not choice:
            plans.matches(_TRIAL_DIGEST)
            start = self.clock()
            trial_plans[trials.current].run()
            if trials.record(self.clock() - start):
                choice = trials.narrow(transport.exchange(trials.medians(), list[int])) or ""
        for plan in trial_plans.values():
            plan.free()
        return choice


def _passes(arguments: Arguments) -> int:
    return PASSES if arguments.bytes_per_row > SMALL else PASSES_OF_SMALL


def _median(times: Sequence[int]) -> int:
    """Return the median, the lower one of two."""
    return sorted(times)[(len(times) - 1) // 2]
