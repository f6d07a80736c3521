"""The first lines of a benchmark: what is fastest, what is not sure, what disturbs."""

from __future__ import annotations

from typing import Any

import pytest
from reporting import case, typed

from mpicoll.bench.summary import first_lines
from mpicoll.measurement.statistics import summary
from mpicoll.records.lines import CaseRecord


def steady(algorithm: str, us: float, size: int = 4096, count: int = 9, **more: Any) -> CaseRecord:
    samples = [us * (0.99 + 0.02 * index / 8) for index in range(count)]
    fields = {
        "executed": algorithm, "samples": count, "samples_us": samples, "count": size // 4,
        "blocks": list(range(count)), "time_us": summary(samples),
    }  # fmt: skip
    return typed(case(**{"algorithm": algorithm, "size": size, **fields, **more}))


def test_the_first_lines_name_the_fastest_with_both_times() -> None:
    records = [
        steady("native", 10.0), steady("ring", 5.0), steady("bruck", 7.0),
        steady("native", 40.0, 65536), steady("ring", 10.0, 65536),
        steady("native", 10.0, 1 << 20), steady("ring", 20.0, 1 << 20),
        steady("native", 10.0, 64), steady("ring", 10.0, 64),
        steady("native", 10.0, 8, 3), steady("ring", 5.0, 8, 3),
    ]  # fmt: skip
    fastest, largest, not_sure, disturbed, right = first_lines(records)
    assert fastest == (
        "# fastest here: mpicoll in 2 of 5 cases, 2.00 to 4.00 times as fast; the library in 1"
    )
    assert largest == (
        "# largest lead: allreduce 64K: ring on mpi4py takes 10.0 us, native on mpi4py 40.0 us "
        "(4.00 times)"
    )
    assert not_sure.startswith("# not sure: 1 of 5 cases undecided, 0 disturbed, 1 ties; a longer")
    assert disturbed.startswith("# disturbed: 0 of 11 rows")
    assert right == "# right: 11 of 11 checked results"


def test_a_native_that_contradicts_itself_gives_no_factor() -> None:
    """The plan took 142 us and the method 3.26 us: one of both is wrong."""
    records = [
        steady("native", 142.0), steady("native", 3.26, call="method"), steady("ring", 0.26),
        steady("ring", 0.3, call="method"),
    ]  # fmt: skip
    text = "\n".join(first_lines(records))
    assert "fastest here: nothing is decided" in text and "largest lead: none is decided" in text
    assert "1 disturbed" in text and "times" not in text


@pytest.mark.parametrize("side", ["native", "ring"])
def test_disturbed_rows_decide_nothing_and_are_counted(side: str) -> None:
    records = [
        steady(name, us, undisturbed=name != side) for name, us in (("native", 10.0), ("ring", 5.0))
    ]
    fastest, _, not_sure, disturbed, _ = first_lines(records)
    assert "nothing is decided" in fastest and "1 disturbed" in not_sure
    assert disturbed.startswith("# disturbed: 1 of 2 rows")


def test_a_wrong_result_is_counted_and_never_leads() -> None:
    records = [steady("native", 10.0), steady("ring", 5.0, correct=False, wrong=3)]
    assert first_lines(records)[0].endswith("no case has both a library call and an algorithm")
    assert first_lines(records)[-1] == "# right: 1 of 2 checked results"


@pytest.mark.parametrize("records", [[], [steady("ring", 5.0)], [steady("native", 5.0)]])
def test_five_lines_stand_there_whatever_was_measured(records: list[CaseRecord]) -> None:
    assert len(first_lines(records)) == 5


def test_one_rank_is_told_that_nothing_moves() -> None:
    records = [steady("native", 10.0, ranks=1), steady("ring", 5.0, ranks=1)]
    assert "one rank sends no messages" in first_lines(records)[0]
