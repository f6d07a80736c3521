"""The one judgement of who wins: ratios within blocks, calm samples, and native's ways."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from reporting import case, run, typed

from mpicoll.measurement.judgement import (
    contest,
    contradictions,
    fastest,
    judge,
    lead,
    strongest_native,
    way,
)
from mpicoll.measurement.statistics import summary
from mpicoll.records.lines import CaseRecord

TWO_SPEEDS = [10.0, 30.0] * 6


def record(algorithm: str, samples: list[float], **more: Any) -> CaseRecord:
    fields = {"samples": len(samples), "samples_us": samples, "time_us": summary(samples),
              "blocks": list(range(len(samples)))}  # fmt: skip
    return typed(case(algorithm, **{**fields, **more}))


def test_a_drift_that_hits_both_sides_hides_no_difference() -> None:
    slow = record("native", TWO_SPEEDS)
    fast = record("ring", [0.9 * us for us in TWO_SPEEDS])
    assert fastest([slow, fast]) == [fast]


@pytest.mark.parametrize("change", [{"run": run("other")}, {"blocks": []}])
def test_without_common_blocks_both_intervals_must_not_overlap(change: dict[str, Any]) -> None:
    slow = record("native", TWO_SPEEDS)
    fast = record("ring", [0.9 * us for us in TWO_SPEEDS], **change)
    assert lead([slow, fast]).leaders == [fast, slow] and not fastest([slow, fast])
    far = record("ring", [0.1 * us for us in TWO_SPEEDS], **change)
    assert fastest([slow, far]) == [far]


def test_blocks_are_matched_by_their_numbers() -> None:
    slow = record("native", [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0])
    fast = record("ring", [us / 1.1 for us in slow.samples_us[1:]], blocks=[1, 2, 3, 4, 5, 6])
    ratio = judge(slow, fast)
    assert ratio is not None and ratio.ratio == pytest.approx(1.1) and ratio.decision == "faster"


def test_who_is_beaten_by_somebody_else_does_not_share_the_lead() -> None:
    wide = record("swing", [5.0, 20.0] * 4)
    rows = [record("ring", [10.0] * 8), wide, record("bruck", [30.0] * 8)]
    assert [row.algorithm for row in lead(rows).leaders] == ["ring", "swing"]


def test_no_group_has_no_leader() -> None:
    assert lead([]).leaders == fastest([]) == []
    assert lead([typed(case("ring", None))]).leaders == []


# -- disturbed samples --------------------------------------------------------------------

PLANTED: dict[str, dict[str, Any]] = {
    "counted": {"undisturbed": False},
    "late": {"late_starts": 40},
    "late share": {"late_share": 0.9},
    "preempted": {"preempted": 40},
    "both": {"late_starts": 10, "preempted": 10},
}
planted = pytest.mark.parametrize("disturbance", PLANTED.values(), ids=PLANTED)


def steady(algorithm: str, us: float, **more: Any) -> CaseRecord:
    """Return a record of twelve samples within a per cent."""
    return record(algorithm, [us * (0.99 + 0.02 * index / 11) for index in range(12)], **more)


def decision(group: list[CaseRecord]) -> str:
    return lead(group).decision


@planted
def test_a_disturbed_case_neither_leads_nor_is_beaten(disturbance: dict[str, Any]) -> None:
    slow, fast = steady("native", 10.0), steady("ring", 5.0, **disturbance)
    assert lead([slow, fast]) == ([], "disturbed") and not fastest([slow, fast])
    for judgement in (judge(slow, fast), judge(fast, slow)):
        assert judgement is not None and judgement.decision == "disturbed"


@planted
def test_nothing_wins_against_a_disturbed_native(disturbance: dict[str, Any]) -> None:
    assert decision([steady("native", 142.0, **disturbance), steady("ring", 0.26)]) == "disturbed"


@planted
def test_a_disturbed_schedule_that_is_surely_slower_hides_no_winner(
    disturbance: dict[str, Any],
) -> None:
    """A disturbance makes a call longer: its shortest sample bounds the undisturbed time."""
    slow = steady("naive", 40.0, **disturbance)
    winner, native = steady("ring", 5.0), steady("native", 10.0)
    assert fastest([slow, winner, native]) == [winner]
    perhaps = record("naive", [4.0] + [40.0] * 11, **disturbance)
    assert decision([perhaps, winner, native]) == "disturbed"


@pytest.mark.parametrize("share", [{"late_starts": 3}, {"preempted": 11}, {"late_share": 0.5}])
def test_a_minority_of_disturbed_samples_is_left_out(share: dict[str, Any]) -> None:
    fast = steady("ring", 5.0, **share)
    assert fastest([steady("native", 10.0), fast]) == [fast]


# -- native's ways ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "algorithm"),
    [
        ("method", "native"), ("method, new arrays", "native"), ("plan", "native_persistent"),
        ("plan", "native(algorithm=ring)"),
    ],
)  # fmt: skip
def test_the_strongest_way_of_native_is_the_yardstick(call: str, algorithm: str) -> None:
    other = steady(algorithm, 8.0, call=call)
    group = [steady("native", 10.0), other, steady("ring", 5.0)]
    assert strongest_native(contest(group, "plan")) == other
    assert strongest_native(contest(group[::-1], "method")) == other


@pytest.mark.parametrize("call", ["plan", "method"])
def test_a_schedule_must_beat_native_in_all_its_ways(call: str) -> None:
    group = [steady("native", 6.0, call="plan"), steady("native", 4.5, call="method"),
             steady("ring", 5.0, call=call)]  # fmt: skip
    assert {row.algorithm for row in fastest(contest(group, call))} == {"native"}


@pytest.mark.parametrize(("plan", "method"), [(142.0, 3.26), (3.26, 142.0), (10.0, 5.0)])
def test_ways_of_one_native_that_exclude_each_other_are_told_and_decide_nothing(
    plan: float, method: float
) -> None:
    group = [steady("native", plan), steady("native", method, call="method"), steady("ring", 0.26)]
    (contradiction,) = contradictions(group)
    first, second = ("plan", "method") if plan < method else ("method", "plan")
    assert [contradiction.faster.call, contradiction.slower.call] == [first, second]
    assert contradiction.times.endswith(f" us as a {first}")
    assert decision(group) == "disturbed"
    judgement = judge(group[0], group[2], group)
    assert judgement is not None and judgement.decision == "disturbed"


@pytest.mark.parametrize(
    ("plan", "other", "more"),
    [
        (10.0, 9.0, {"call": "method"}),
        (0.3, 2.0, {"call": "method"}),  # the cost of a method's arguments
        (10.0, 90.0, {"call": "method, new arrays"}),
        (10.0, 90.0, {"algorithm": "native_persistent"}),
        (10.0, 90.0, {"call": "method", "backend": "torch"}),
        (10.0, 90.0, {"call": "method", "correct": False}),
    ],
)
def test_differences_that_are_explained_are_no_contradiction(
    plan: float, other: float, more: dict[str, Any]
) -> None:
    fields = {"algorithm": "native", **more}
    assert not contradictions([steady("native", plan), steady(us=other, **fields)])


def test_wide_intervals_explain_a_difference() -> None:
    wide = record("native", [4.0, 200.0] * 6)
    assert not contradictions([wide, steady("native", 5.0, call="method")])


times_us = some.floats(0.1, 1000.0)
groups = some.lists(
    some.builds(
        steady, some.sampled_from(("native", "ring", "bruck", "native_persistent")), times_us,
        call=some.sampled_from(("plan", "method")), undisturbed=some.booleans(),
    ),
    min_size=1, max_size=6,
)  # fmt: skip


@given(groups)
def test_a_winner_is_calm_right_and_faster_than_the_strongest_native(
    group: list[CaseRecord],
) -> None:
    for winner in fastest(group):
        native = strongest_native(group)
        assert winner.undisturbed and not contradictions(group)
        assert native is None or native.undisturbed
        assert native is None or way(native) == way(winner) or is_faster(winner, native)


@given(groups, some.floats(1.1, 100.0))
def test_no_slower_way_of_native_raises_a_ratio(group: list[CaseRecord], factor: float) -> None:
    native = strongest_native(group)
    if native is not None and native.time_us is not None:
        slower = steady("native_persistent", factor * native.time_us.median)
        assert strongest_native([slower, *group]) == native


def is_faster(winner: CaseRecord, native: CaseRecord) -> bool:
    judgement = judge(native, winner)
    return judgement is not None and judgement.decision == "faster"
