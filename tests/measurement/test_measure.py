"""How many calls make a sample."""

from __future__ import annotations

from time import sleep
from typing import Any

import pytest

from mpicoll import Collectives
from mpicoll.cli.watchdog import Watchdog
from mpicoll.measurement.candidate import Call, Candidate, Settings
from mpicoll.measurement.cases import Case, Wanted, groups
from mpicoll.measurement.measure import TIME_OVER, Bench
from mpicoll.measurement.workbench import Workbench

pytestmark = pytest.mark.threads_only


class _SetUpLate(Bench):
    """A benchmark of calls of which the fifth takes 5 ms."""

    def _bind(self, candidates: list[Candidate], benches: dict[str, Workbench]) -> None:
        (candidate,) = candidates
        plan = benches[candidate.case.backend].bind(candidate.case)
        candidate.plan = Call(plan, self.run, [plan])

    runs = 0

    def run(self) -> None:
        self.runs += 1
        if self.runs == 5:
            sleep(0.005)


@pytest.mark.ranks(1)
def test_what_a_library_sets_up_in_a_first_call_does_not_make_samples_short(
    c: Collectives,
) -> None:
    bench = _SetUpLate({c.backend: c}, Settings(samples=6), Watchdog(60.0))
    (group,) = groups(Wanted(collectives=("barrier",)), 1)
    (candidate,) = bench.measure([Case(group, c.backend, "native")], 1.0)
    assert candidate.calls > 20


class _CountingBench(_SetUpLate):
    """A benchmark that notes how many calls there were when a sample begins to be timed."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.first_calls: list[int] = []
        wait = self.synchroniser.wait

        def noted() -> int:
            self.first_calls.append(self.runs)
            return wait()

        self.synchroniser.wait = noted  # type: ignore[method-assign]


@pytest.mark.ranks(1)
@pytest.mark.parametrize(("calls", "calls_ahead"), [(1, 1), (19, 1), (20, 0)])
def test_few_calls_follow_one_of_the_same_candidate(
    c: Collectives, calls: int, calls_ahead: int
) -> None:
    bench = _CountingBench({c.backend: c}, Settings(), Watchdog(0))
    (group,) = groups(Wanted(collectives=("barrier",)), 1)
    case = Case(group, c.backend, "native")
    benches = {c.backend: Workbench(c, group)}
    candidate = Candidate(case)
    bench._bind([candidate], benches)
    bench.sample(candidate, calls, benches[c.backend])
    assert (bench.first_calls, bench.runs) == ([calls_ahead], calls_ahead + calls)


def test_no_case_begins_after_the_limit(c: Collectives) -> None:
    """Cases that have begun before end at once."""
    bench = Bench({c.backend: c}, Settings(), Watchdog(60.0))
    (group,) = groups(Wanted(collectives=("allreduce",), sizes=(64,)), c.size)
    cases = [Case(group, c.backend, name) for name in ("native", "ring")]
    late = bench.measure(cases, 60.0, bench.synchroniser.time)
    assert {(case.message, len(case.samples)) for case in late} == {(TIME_OVER, 0)}
