"""The verdicts on the cases of two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from two_runs import RUN, compare_files, record, times, write

from mpicoll.compare.comparison import load
from mpicoll.records.description import FullRun


@pytest.mark.parametrize(
    ("us", "verdict"), [(2.0, "faster"), (4.0, "tie"), (3.95, "tie"), (8.0, "slower")]
)
def test_verdicts(us: float, verdict: str, tmp_path: Path) -> None:
    comparison = compare_files(
        tmp_path, [record("ring", times(4.0))], [record("ring", times(us, 1))]
    )
    assert [row.verdict for row in comparison.rows] == [verdict]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"correct": False}, "wrong in B"),
        (
            {"time_us": None, "samples": 0, "samples_us": [], "message": "no such thing"},
            "refused in B: no such thing",
        ),
        ({"undisturbed": False}, "too few undisturbed samples in B"),
        ({"timing": "loop"}, "timed together in A, loop in B"),
        ({"samples": 1, "samples_us": [1.0]}, "too few samples: 12 and 1"),
        ({"samples": 5, "samples_us": [1.0] * 5}, "too few samples: 12 and 5"),
    ],
)
def test_cases_that_cannot_be_compared_have_no_verdict(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    comparison = compare_files(
        tmp_path, [record("ring", times(4.0))], [record("ring", times(1.0)) | change]
    )
    assert [(row.verdict, row.reason) for row in comparison.rows] == [("no verdict", reason)]


def test_a_case_of_one_run_has_no_verdict(tmp_path: Path) -> None:
    a, b = record("ring", times(4.0)), record("bruck", times(4.0))
    comparison = compare_files(tmp_path, [a], [b])
    assert [row.reason for row in comparison.rows] == ["only in A", "only in B"]


def natives(factor: float) -> list[dict[str, Any]]:
    return [
        record("native", times(factor * 4.0, size, 12), bytes_total=4 << size) for size in range(12)
    ]


def test_a_slower_machine_does_not_make_a_schedule_slower(tmp_path: Path) -> None:
    """All native calls are slower by a third, and so is the schedule: it is not called slower."""
    a = [*natives(1.0), record("ring", times(4.0, 90))]
    b = [*natives(1.33), record("ring", times(5.3, 91))]
    comparison = compare_files(tmp_path, a, b)
    assert comparison.controls == 12 and 1.25 < comparison.factor < 1.4
    assert not comparison.counts()["slower"]


def test_natives_of_another_library_are_no_controls(tmp_path: Path) -> None:
    comparison = compare_files(
        tmp_path, natives(1.0), natives(1.33), libraries={"mpi4py": "Open MPI"}
    )
    assert (comparison.controls, comparison.factor) == (0, 1.0)
    assert comparison.counts()["slower"] == 12
    assert any("libraries.mpi4py was 'MPICH 5'" in remark for remark in comparison.remarks)


def test_the_latest_record_of_a_case_counts(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [record("ring", times(4.0)), record("ring", times(2.0, 1))])
    (only,) = load(path).values()
    assert only.time_us and only.time_us.median == pytest.approx(2.0, rel=0.1)
    assert isinstance(only.run, FullRun) and only.run.versions == RUN["versions"]


@pytest.mark.parametrize("change", [{"late_starts": 90}, {"preempted": 90}, {"late_share": 0.8}])
def test_mostly_disturbed_samples_have_no_verdict(change: dict[str, Any], tmp_path: Path) -> None:
    comparison = compare_files(
        tmp_path, [record("ring", times(4.0)) | change], [record("ring", times(1.0))]
    )
    (row,) = comparison.rows
    assert (row.verdict, row.reason) == ("no verdict", "too few undisturbed samples in A")


def test_a_native_that_contradicts_itself_is_neither_faster_nor_a_control(tmp_path: Path) -> None:
    calm = [record("native", times(3.0)), record("native", times(3.0, 1), call="method")]
    wrong = [record("native", times(142.0)), calm[1]]
    comparison = compare_files(tmp_path, calm, wrong)
    assert [row.verdict for row in comparison.rows] == ["no verdict"] * 2
    assert comparison.rows[0].reason.startswith("in B, native on mpi4py takes 1")
    assert comparison.controls == 0
