"""The one rule of who leads: ratios within blocks, where there are samples enough."""

from __future__ import annotations

from typing import Any

import pytest
from reporting import case, run, typed

from mpicoll.measurement.leaders import compared, fastest, leaders
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
    assert leaders([slow, fast]) == [fast, slow] and not fastest([slow, fast])
    far = record("ring", [0.1 * us for us in TWO_SPEEDS], **change)
    assert fastest([slow, far]) == [far]


def test_blocks_are_matched_by_their_numbers() -> None:
    slow = record("native", [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0])
    fast = record("ring", [us / 1.1 for us in slow.samples_us[1:]], blocks=[1, 2, 3, 4, 5, 6])
    ratio = compared(slow, fast)
    assert ratio is not None and ratio.ratio == pytest.approx(1.1) and ratio.verdict == "faster"


def test_who_is_beaten_by_somebody_else_does_not_share_the_lead() -> None:
    wide = record("swing", [5.0, 20.0] * 4)
    rows = [record("ring", [10.0] * 8), wide, record("bruck", [30.0] * 8)]
    assert [row.algorithm for row in leaders(rows)] == ["ring", "swing"]


def test_no_group_has_no_leader() -> None:
    assert leaders([]) == fastest([]) == []
    assert leaders([typed(case("ring", None))]) == []
