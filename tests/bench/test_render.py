"""The layouts in which records are printed."""

from __future__ import annotations

import io
from typing import Any

import pytest
from reporting import case, typed

from mpicoll.bench import render
from mpicoll.records.lines import CaseRecord
from mpicoll.text.sizes import size_text


def record(**changes: Any) -> CaseRecord:
    time = dict.fromkeys(("median", "low", "high", "mean", "min", "max", "p95", "p99"), 10.0)
    ratio = {"ratio": 1.5, "low": 1.4, "high": 1.6, "verdict": "faster"}
    fields = {
        "bytes_per_rank": 4096, "count": 1024, "samples": 9, "calls_per_sample": 3,
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
    render.print_tables([record(), record(algorithm="bruck", best=False)], stream)
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


@pytest.mark.parametrize(
    ("layout", "line"),
    [
        ("nccl", ["4096", "1024", "float32", "sum", "-1", "10.00", "0.41", "0.61", "0", "N/A"]),
        ("osu", ["4096", "10.00", "10.00", "10.00", "27"]),
        ("imb", ["4096", "27", "10.00", "10.00", "10.00"]),
    ],
)
def test_layouts_keep_their_columns(layout: str, line: list[str]) -> None:
    out = io.StringIO()
    render.LAYOUTS[layout]([record()], out)
    rows = [each.split() for each in out.getvalue().splitlines() if not each.startswith("#")]
    assert line in [row[: len(line)] for row in rows]


def test_footer_tells_errors_and_refusals() -> None:
    refused = record(time_us=None, correct=None, message="no such call", best=False)
    assert "# Out of bounds values : 0 OK" in render.footer([record()], [])
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


@pytest.mark.parametrize("layout", ["nccl", "osu", "imb"])
def test_other_layouts_tell_methods_from_plans(layout: str) -> None:
    out = io.StringIO()
    render.LAYOUTS[layout]([record(), record(call="method")], out)
    titles = [line for line in out.getvalue().splitlines() if line.startswith("# allreduce")]
    assert titles == [
        "# allreduce, float32, sum, 4 ranks: mpi4py ring",
        "# allreduce, float32, sum, 4 ranks, method: mpi4py ring",
    ]
