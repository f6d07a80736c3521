"""The layouts in which records are printed."""

from __future__ import annotations

import io
from typing import Any

import pytest
from reporting import case, typed

from mpicoll.bench import render
from mpicoll.bench.record import mark_best
from mpicoll.measurement.statistics import speedup, summary
from mpicoll.records.lines import CaseRecord
from mpicoll.text.sizes import size_text


def record(**changes: Any) -> CaseRecord:
    time = dict.fromkeys(("median", "low", "high", "mean", "min", "max", "p95", "p99"), 10.0)
    ratio = {"ratio": 1.5, "low": 1.4, "high": 1.6, "verdict": "faster"}
    fields = {
        "executed": changes.get("algorithm", "ring"), "bytes_per_rank": 4096, "count": 1024,
        "samples": 9, "calls_per_sample": 3,
        "time_us": time, "speedup_vs_native": ratio, "best": True, "transport": "symmetric",
        "speedup_vs_other": {**ratio, "against": "torch native"}, "run": {}, "samples_us": [10.0],
    }  # fmt: skip
    return typed(case(**{"algorithm": "ring", "size": 4096, **fields, **changes}))


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print for no terminal of a known width, whatever this session has."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_piped_table_is_plain_text(encoding: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding)
    slower = timed_record([12.0] * 9, algorithm="bruck")
    render.print_tables([record(), slower], stream)
    stream.flush()
    text = raw.getvalue().decode(encoding)
    assert "\x1b" not in text and "allreduce, float32, sum, 4 ranks" in text
    (best,) = [line for line in text.splitlines() if " ring " in line]
    assert best.rstrip().endswith("★" if encoding == "utf-8" else "*")
    assert "1.50x +" in best and "10.0 .. 10.0" in best and "(n)" in best


@pytest.mark.parametrize("columns", [100, 120, 170])
def test_a_narrow_table_leaves_columns_out_and_cuts_no_number(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    render.print_tables([record(), record(algorithm="native", transport="point-to-point")], stream)
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= columns
    assert "vs native" in text and "1.50x +" in text and "10.0" in text
    assert ("0.410" in text) is (columns == 170)


@pytest.mark.parametrize("columns", [1, 40])
def test_where_there_is_no_room_lines_are_longer(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    render.print_tables([record()], stream)
    text = stream.getvalue()
    for cell in (size_text(4096), "mpi4py", "ring", "10.0", "1.50x +", "yes"):
        assert cell in text


def test_a_dumb_terminal_is_as_wide_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "170")
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    render.print_tables([record()], stream)
    assert "0.410" in stream.getvalue()


def test_a_long_name_goes_on_below_and_leaves_numbers_whole() -> None:
    stream, name = io.StringIO(), "two_level(local=rabenseifner,across=" + "x" * 99 + ")"
    render.print_tables([record(algorithm=name)], stream)
    lines = stream.getvalue().splitlines()
    assert any("1.50x +" in line and "10.0 .. 10.0" in line for line in lines)
    assert "".join(lines).count("x") >= 99 and "…" not in stream.getvalue()


def test_footer_tells_errors_and_refusals() -> None:
    refused = record(time_us=None, correct=None, message="no such call", best=False)
    assert "# Out of bounds values : 0 OK" in render.footer([record()], [])
    unchecked = render.footer([record(correct=None), refused], [])
    assert unchecked[0] == "# Out of bounds values : NOT CHECKED"
    lines = render.footer([record(correct=False, wrong=3, message="WRONG it"), refused], ["busy"])
    assert lines[0] == "# Out of bounds values : 3 FAILED"
    assert "# WRONG it" in lines and "# busy" in lines
    assert "#   allreduce ring (mpi4py): no such call" in lines


def test_methods_stand_beside_their_plans() -> None:
    times = dict.fromkeys(("median", "low", "high"), 12.5)
    ratio = {"ratio": 3.25, "low": 3.0, "high": 3.5, "verdict": "faster"}
    method = record(call="method", time_us=times, speedup_vs_native=ratio)
    stream = io.StringIO()
    render.print_tables([record(), method, record(algorithm="bruck")], stream)
    rows = [line for line in stream.getvalue().splitlines() if " mpi4py " in line]
    assert len(rows) == 2
    assert "12.5" in rows[0] and "3.25x +" in rows[0]
    assert "12.5" not in rows[1] and "method us" in stream.getvalue()


def test_methods_alone_are_rows_that_say_so() -> None:
    stream = io.StringIO()
    render.print_tables([record(call="method"), record(call="method, new arrays")], stream)
    text = stream.getvalue()
    assert "ring, method " in text and "ring, method, new arrays" in text
    assert "method us" not in text


# -- the last column ----------------------------------------------------------------------


def timed_record(samples: list[float], **changes: Any) -> CaseRecord:
    """Return a record of samples that were taken in the blocks 0, 1, ..."""
    return record(
        samples_us=samples, samples=len(samples), blocks=list(range(len(samples))),
        time_us=summary(samples), **changes,
    )  # fmt: skip


def table_text(*rows: CaseRecord) -> list[str]:
    """Return the lines of the rows in the table."""
    mark_best(rows)
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    render.print_tables(rows, stream)
    stream.seek(0)
    return [line.rstrip() for line in stream if " mpi4py " in line]


def marks(*rows: CaseRecord) -> list[str]:
    """Return the last word of each row: a mark, or `yes` where there is none."""
    return [line.split()[-1] for line in table_text(*rows)]


def test_a_star_marks_the_surely_fastest() -> None:
    assert marks(timed_record([10.0] * 9), timed_record([12.0] * 9, algorithm="bruck")) == [
        "★",
        "yes",
    ]


@pytest.mark.parametrize(("count", "mark"), [(1, "yes"), (5, "yes"), (6, "★")])
def test_too_few_samples_never_win(count: int, mark: str) -> None:
    candidate = timed_record([1.0] * count)
    assert marks(candidate, timed_record([12.0] * count, algorithm="bruck")) == [mark, "yes"]


@pytest.mark.parametrize(("count", "sign"), [(1, " ? "), (5, " ? "), (6, "1.50x + ")])
def test_a_ratio_stands_only_where_it_is_decided(count: int, sign: str) -> None:
    text = table_text(timed_record([1.0] * count))[0]
    assert sign in text and ("1.50x" in text) == ("1.50x" in sign)


def test_leaders_that_none_is_surely_faster_than_share_the_lead() -> None:
    faster_at_times = timed_record([9.0, 11.0] * 5, algorithm="bruck")
    slow = timed_record([30.0] * 10, algorithm="swing")
    assert marks(timed_record([10.0] * 10), faster_at_times, slow) == ["?", "?", "yes"]


def test_leaders_within_five_per_cent_tie() -> None:
    close = timed_record([9.9, 10.1] * 5, algorithm="bruck")
    assert marks(timed_record([10.0] * 10), close) == ["=", "="]


def test_no_star_where_ratios_within_blocks_disagree_with_medians() -> None:
    """A machine with two speeds: ring has the shorter median, and native is no slower."""
    native = timed_record([85.0, 802.0, 84.0, 810.0, 83.0, 820.0, 815.0], algorithm="native")
    ring = timed_record([330.0, 310.0, 328.0, 3300.0, 320.0, 3190.0, 312.0])
    ratio = speedup(*(dict(enumerate(row.samples_us)) for row in (native, ring)))
    assert native.time_us and ring.time_us and ratio
    assert ring.time_us.median < native.time_us.median / 2 and ratio.ratio < 0.3
    assert ratio.verdict == "tie" and marks(native, ring) == ["?", "?"]


def test_auto_shares_the_star_of_the_algorithm_that_it_chose() -> None:
    auto = timed_record([10.1] * 9, algorithm="auto", executed="ring")
    assert marks(timed_record([10.0] * 9), auto, timed_record([12.0] * 9, algorithm="bruck")) == [
        "★",
        "★",
        "yes",
    ]


def test_a_wrong_result_neither_wins_nor_beats() -> None:
    wrong = timed_record([1.0] * 9, algorithm="bruck", correct=False, wrong=2)
    assert marks(timed_record([10.0] * 9), wrong) == ["★", "WRONG"]


def test_the_legend_says_whose_algorithms_these_are() -> None:
    stream = io.StringIO()
    render.print_tables([record(), record(backend="torch")], stream)
    whose = "names without native are schedules of mpicoll or torchcoll"
    assert f"native: the library's own call; {whose}" in stream.getvalue()


# -- disturbed samples, and native's ways -------------------------------------------------


def steady(algorithm: str, us: float, **changes: Any) -> CaseRecord:
    """Return a record of nine equal samples."""
    return timed_record([us] * 9, algorithm=algorithm, **changes)


@pytest.mark.parametrize("side", ["native", "ring"])
@pytest.mark.parametrize("change", [{"undisturbed": False}, {"late_starts": 90}])
def test_disturbed_rows_have_neither_star_nor_verdict(side: str, change: dict[str, Any]) -> None:
    rows = [
        steady(name, us, **(change if name == side else {}))
        for name, us in (("native", 142.0), ("ring", 0.26))
    ]
    assert marks(*rows) == ["~", "~"] and table_text(*rows)[1].split().count("~") >= 2
    assert any("disturbed cases: 1 of 2" in line for line in render.footer(rows, []))


def test_ways_of_native_that_exclude_each_other_are_told_and_win_nothing() -> None:
    rows = [
        steady("native", 142.0), steady("native", 3.26, call="method"), steady("ring", 0.26)
    ]  # fmt: skip
    assert marks(*rows) == ["~", "~"] and table_text(*rows)[1].split().count("~") >= 2
    (line,) = [line for line in render.footer(rows, []) if "contradict" in line]
    assert "native on mpi4py takes 142 us as a plan and 3.26 us as a method" in line


def test_no_star_where_native_is_faster_by_another_way() -> None:
    rows = [steady("native", 6.0), steady("native", 4.5, call="method"), steady("ring", 5.0)]
    assert marks(*rows) == ["yes", "yes"] and not rows[2].best and rows[1].best
