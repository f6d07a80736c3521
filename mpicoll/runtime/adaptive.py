"""``algorithm="adaptive"``: measure the likely fastest algorithms in the first calls, and settle.

The candidates of a signature take turns in its calls, each on the caller's own arrays. Ranks
exchange their medians after each turn and decide by the same numbers. Then the calls run what they
have settled on, until they have taken so long that comparing it with another one is a small share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from time import perf_counter_ns
from typing import Any

from mpicoll.backend import Array
from mpicoll.errors import CollectiveError, Unavailable, Unsupported
from mpicoll.execution.plan import Plan
from mpicoll.peers.calls import OtherCall
from mpicoll.runtime.allocation import with_arrays
from mpicoll.runtime.arguments import Arguments
from mpicoll.runtime.cached_plan import CachedPlan
from mpicoll.runtime.method_calls import ADAPTIVE, FOR_EVER, Given, MethodCalls

PASSES = 6
"""How often each candidate runs before the ranks settle; the first time does not count."""
SMALL, PASSES_OF_SMALL = 64 * 1024, 20
"""Up to how many bytes of a vector or row, and how often: their times vary more."""
SHARE = 0.02
"""The share of the time of calls that measuring again may take."""
_HOPELESS, _TIMED = 2.0, 2
"""How many times slower than the fastest a candidate is left out, once it was timed so often, or
in a quarter of all passes."""
_TIE, _CLEARLY = 0.95, 0.85
"""The time over that of the likeliest, or of what runs, below which another is taken."""
_MOST = 64
_TOGETHER = int.from_bytes(b"adaptive", "little")

Clock = Callable[[], int]
"""Returns nanoseconds."""


class Trials:
    """The times of candidates that take turns; all ranks make the same calls of its methods.

    Attributes:
        left: the candidates that take turns still, in the order in which they were given.
        lead: the time over that of the first candidate below which another is taken.
        fastest: the shortest time that any candidate took on any rank, in nanoseconds.
    """

    def __init__(self, candidates: Sequence[str], passes: int, lead: float = _TIE) -> None:
        self.left, self.passes, self.lead = list(candidates), passes, lead
        self.times: dict[str, list[int]] = {each: [] for each in candidates}
        self.done, self.turn, self.fastest = 0, 0, 0

    @property
    def current(self) -> str:
        """Whose turn it is."""
        return self.left[self.turn]

    def record(self, nanoseconds: int) -> bool:
        """Note the time of a turn on this rank; whether the ranks are to compare theirs now."""
        if self.done:
            self.times[self.current].append(max(1, nanoseconds))
        self.turn = (self.turn + 1) % len(self.left)
        self.done += not self.turn
        return not self.turn and self.done > max(_TIMED, self.passes // 4)

    def given(self) -> list[list[int]]:
        """Return this rank's median and shortest time of each candidate, in nanoseconds."""
        return [[_median(self.times[each]), min(self.times[each])] for each in self.left]

    def narrow(self, everyone: Sequence[list[list[int]]]) -> str | None:
        """Leave out the candidates that are too slow; return the choice once it is made.

        Args:
            everyone: what `given` returned on each rank.
        """
        slowest = [max(each[0] for each in ranks) for ranks in zip(*everyone, strict=True)]
        self.fastest = min(each[1] for rank in everyone for each in rank)
        taken = dict(zip(self.left, slowest, strict=True))
        least = min(slowest)
        first = taken[self.left[0]]
        choice = self.left[0] if least > self.lead * first else min(taken, key=taken.__getitem__)
        self.left = [each for each in self.left if taken[each] <= _HOPELESS * least]
        return choice if self.done >= self.passes or len(self.left) == 1 else None


class _Signature:
    """The state of one signature; the same on all ranks but for the times.

    Attributes:
        trials: the times of a comparison that is under way.
        chosen: what the calls run; empty before the first comparison ends.
        until: the run of the chosen plan from which to compare again.
        stage: how many decisions and turns there were, by which ranks know that they are in step.
        spent: nanoseconds of the calls of this comparison.
        runs: how many calls ran what was chosen where no compiled program counts them.
    """

    def __init__(self, candidates: Sequence[str], passes: int) -> None:
        self.candidates, self.passes = list(candidates), passes
        self.trials = Trials(candidates, passes) if len(candidates) > 1 else None
        self.chosen = "" if self.trials else candidates[0]
        self.until, self.stage, self.spent, self.runs, self.rival = FOR_EVER, 0, 0, 0, 0

    @property
    def current(self) -> str:
        """The plan that the next call runs."""
        return self.trials.current if self.trials else self.chosen

    def watch(self, kept: CachedPlan | None) -> None:
        """Begin to compare the choice with the next of the others once it has run long enough."""
        if self.trials or self.count(kept) < self.until:
            return
        others = [each for each in self.candidates if each != self.chosen]
        self.rival += 1
        rival = others[self.rival % len(others)]
        self.trials, self.spent = Trials([self.chosen, rival], self.passes, _CLEARLY), 0
        self.stage += 1

    def count(self, kept: CachedPlan | None) -> int:
        """Return how often the chosen plan has run, the same on all ranks."""
        program = kept.plan.program if kept else None
        return program.sequence if program else self.runs


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
        found = self._signatures.get(arguments.key)
        return found.chosen if found else ""

    # -- methods ----------------------------------------------------------------------

    def run(self, checked: Arguments, given: Given = (), *, differs: bool = False) -> Array | None:
        """Run a call, and return its result; collective. As `MethodCalls.run`."""
        plans, key = self.plans, checked.key
        if not checked.is_complete:
            return plans.run(checked, given, differs=differs)
        begun = self.clock()
        found = self._signatures.get(key)
        if found:
            found.watch(plans.get((key, found.current)))
        kept = plans.get((key, found.current)) if found else None
        digest = self._digest(checked, found, kept)
        try:
            asked = self.clock()
            if kept is None and plans.calls is not None:
                self._drop(key)
                found = None
                checked, is_new = plans.settle(checked)
                if not is_new:
                    return plans.run_once(checked)
            elif differs or not plans.matches(digest, kept):
                self._drop(key)
                return plans.run_uncached(checked)
            waited = self.clock() - asked
            found = found or self._begin(checked)
            runs = replace(checked, algorithm=found.current)
            kept = plans.get((key, found.current)) or plans.make((key, found.current), runs)
            return self._run_kept(found, kept, runs, given, begun, waited)
        except OtherCall as error:
            if key in self._signatures:
                plans.fail((key, self._signatures[key].current), error)
            self._drop(key)
            return plans.run_uncached(checked)
        except BaseException as error:
            # The other ranks may have come further: they find out by the digest.
            if key in self._signatures:
                plans.fail((key, self._signatures[key].current), error)
            self._drop(key)
            raise

    def _digest(self, checked: Arguments, found: _Signature | None, kept: CachedPlan | None) -> int:
        return checked.digest((kept and kept.number, found and found.stage))

    def _begin(self, checked: Arguments) -> _Signature:
        """Make the plans of the candidates; collective."""
        if len(self._signatures) >= _MOST:
            self._drop(next(iter(self._signatures)))
        key = checked.key
        candidates = []
        for each in self._candidates(checked):
            try:
                self.plans.make((key, each), replace(checked, algorithm=each))
            except (Unavailable, Unsupported):
                continue
            candidates.append(each)
        found = _Signature(candidates or ["auto"], _passes(checked))
        self._signatures[key] = found
        return found

    def _candidates(self, arguments: Arguments) -> list[str]:
        planner, found = self.plans.planner, []
        for each in planner.chooser.candidates(arguments):
            try:
                planner.check(replace(arguments, algorithm=each))
            except CollectiveError:
                continue
            found.append(each)
        return found

    def _run_kept(
        self, found: _Signature, kept: CachedPlan, runs: Arguments, given: Given, begun: int,
        waited: int,
    ) -> Array | None:  # fmt: skip
        trials = found.trials
        if trials is None:
            found.runs += 1
            asked = replace(runs, algorithm=ADAPTIVE)
            digest = self._digest(asked, found, kept)
            return self.plans.run_cached(kept, runs, digest, given, found.until)
        # What Python runs costs Python in every call, what the executor finds by itself does not.
        is_found = kept.plan.program is not None
        start = self.clock() if is_found else begun + waited
        out = self.plans.run_cached(kept, runs, _TOGETHER, ())
        whole = trials.record(self.clock() - start)
        found.stage += 1
        found.spent += self.clock() - begun
        if whole:
            self._decide(found, trials, replace(runs, algorithm=ADAPTIVE).key)
        return out

    def _decide(self, found: _Signature, trials: Trials, key: Any) -> None:
        """Settle where the times suffice; collective."""
        before = [(key, each) for each in trials.left]
        everyone = self.plans.transport.exchange((found.spent, trials.given()), _TIMES)
        choice = trials.narrow([times for _, times in everyone])
        if choice is None:
            left = trials.left
        else:
            left, found.trials, found.chosen, found.runs = [choice], None, choice, 0
            spent = max(spent for spent, _ in everyone)
            calls = ceil(spent / (SHARE * max(1, trials.fastest)))
            found.until = found.count(self.plans.get((key, choice))) + calls
        self.plans.drop([each for each in before if each[1] not in left])

    def _drop(self, key: Any) -> None:
        """Begin again with a signature: all ranks do once one of them does, for digests differ."""
        found = self._signatures.pop(key, None)
        self.plans.drop([(key, each) for each in found.candidates] if found else [])

    # -- plans ------------------------------------------------------------------------

    def plan(self, arguments: Arguments) -> Plan:
        """Make a plan of the fastest candidate on arrays of its own; collective."""
        with self.plans.together():
            plan = self.plans.planner.build(replace(arguments, algorithm=self._fastest(arguments)))
        plan.note = ADAPTIVE
        return plan

    def _fastest(self, arguments: Arguments) -> str:
        plans, transport = self.plans, self.plans.transport
        own, arrays = with_arrays(transport, arguments, copies=True), transport.arrays
        if own.x is not None:
            arrays.copier(arrays.flat(own.x), arrays.flat(arguments.x))()
        made: dict[str, Plan] = {}
        for each in self._candidates(arguments):
            try:
                made[each] = plans.planner.build(replace(own, algorithm=each))
            except (Unavailable, Unsupported):
                continue
        choice = "" if len(made) > 1 else next(iter(made), "auto")
        trials = Trials(list(made), _passes(arguments))
        while not choice:
            plans.matches(_TOGETHER)
            start = self.clock()
            made[trials.current].run()
            if trials.record(self.clock() - start):
                everyone = transport.exchange(trials.given(), list[list[int]])
                choice = trials.narrow(everyone) or ""
        for plan in made.values():
            plan.free()
        return choice


_TIMES = tuple[int, list[list[int]]]


def _passes(arguments: Arguments) -> int:
    return PASSES if arguments.bytes_per_row > SMALL else PASSES_OF_SMALL


def _median(times: Sequence[int]) -> int:
    """Return the median, the lower one of two."""
    return sorted(times)[(len(times) - 1) // 2]
