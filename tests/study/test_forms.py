"""The three forms of allreduce: which is fastest where, and the fits."""

from __future__ import annotations

import csv
import itertools
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from launcher import LIMIT, QUIRKS
from reporting import case, typed

from mpicoll.errors import ArgumentError
from mpicoll.records.lines import CaseRecord
from mpicoll.records.reading import encoded, only
from mpicoll.records.reading import load as load_records
from mpicoll.study.__main__ import main
from mpicoll.study.forms import (
    FORMS,
    ONE_CALL,
    Forms,
    crossing,
    fits,
    forms_of,
    ranges,
    rows,
    sentences,
    unbeaten,
    write_times,
)
from mpicoll.study.reading import study_of

ROOT = Path(__file__).parents[2]
OVER, PARTS = list(FORMS)[1:]
SIZES = [4**power for power in range(1, 12)]


def record(algorithm: str, size: int, us: float, **more: Any) -> CaseRecord:
    return typed(case(algorithm, us, size, **more))


def make_records(lines: Mapping[str, tuple[float, float]], **more: Any) -> list[CaseRecord]:
    """Return records of forms that cost alpha us, and beta ns a byte."""
    return [
        record(form, size, alpha + beta * size / 1000, **more)
        for form, (alpha, beta) in lines.items() for size in SIZES
    ]  # fmt: skip


def only_forms(records: Iterable[CaseRecord]) -> Forms:
    (forms,) = forms_of(study_of(records))
    return forms


@pytest.mark.parametrize("more", [{}, {"samples_us": [], "samples": 40}], ids=["samples", "old"])
def test_each_form_wins_where_it_is_faster(more: Mapping[str, Any]) -> None:
    """Of records without their samples the intervals tell which one is faster."""
    records = make_records({ONE_CALL: (2.0, 2.0), OVER: (4.0, 1.5), PARTS: (10.0, 0.5)}, **more)
    forms = only_forms(records)
    assert [form for form, _, _ in ranges(forms)] == [ONE_CALL, PARTS]
    assert ranges(forms)[0][1] == SIZES[0] and ranges(forms)[-1][2] == SIZES[-1]
    lines = fits(forms)
    assert lines[PARTS].alpha_us == pytest.approx(10, rel=0.01)
    assert lines[PARTS].beta_ns_per_byte == pytest.approx(0.5, rel=0.01)
    assert crossing(lines[ONE_CALL], lines[PARTS]) == pytest.approx(8000 / 1.5, rel=0.02)
    text = "\n".join(sentences(forms))
    assert "reduce_scatter + allgather beats one call first at 16K" in text
    assert "reduce + broadcast beats one call first at 16K" in text


def test_one_call_that_always_wins_has_no_crossing() -> None:
    forms = only_forms(make_records({ONE_CALL: (1.0, 1.0), OVER: (2.0, 2.0)}))
    assert [form for form, _, _ in ranges(forms)] == [ONE_CALL]
    assert "beats one call at no size; their lines cross at no size" in "\n".join(sentences(forms))
    assert crossing(fits(forms)[ONE_CALL], fits(forms)[ONE_CALL]) is None


def test_no_line_is_told_through_two_sizes() -> None:
    every = make_records({ONE_CALL: (10, 1), OVER: (20, 0.5)})
    for count in (2, 3):
        forms = only_forms(item for item in every if item.bytes_total in SIZES[:count])
        assert len(fits(forms)) == (2 if count == 3 else 0)
        assert any("lines" in sentence for sentence in sentences(forms)) == (count == 3)


def test_medians_that_change_places_within_ties_make_one_range() -> None:
    """Medians that change places within their intervals make one range."""
    forms = only_forms(
        [record(ONE_CALL, size, 10.0 + 0.1 * (index % 2), samples_us=[9.9, 10.0, 10.1, 10.2] * 9)
         for index, size in enumerate(SIZES)]
        + [record(PARTS, size, 10.05, samples_us=[9.9, 10.0, 10.1, 10.2] * 9) for size in SIZES]
    )  # fmt: skip
    assert len(ranges(forms)) == 1
    assert unbeaten(forms.times[4]) == [ONE_CALL, PARTS]
    first, *_, last = sentences(forms)
    assert "no form is surely faster than another (4 B to 4M)" in first
    assert "reduce_scatter + allgather and one call are surely apart at no size." in last


def test_a_crossing_beyond_the_sizes_is_told_as_one() -> None:
    forms = only_forms(make_records({ONE_CALL: (1.0, 1.1), OVER: (9000.0, 1.0)}))
    assert "cross at about 85.8M, beyond what was measured." in "\n".join(sentences(forms))


@given(
    st.lists(
        st.dictionaries(st.sampled_from(list(FORMS)), st.floats(1, 9), min_size=1),
        min_size=1,
        max_size=12,
    ).filter(lambda sizes: any(times.keys() - {ONE_CALL} for times in sizes))
)
def test_ranges_cover_all_sizes_and_are_never_beaten(medians: list[dict[str, float]]) -> None:
    forms = only_forms(
        record(form, 4**index, us, samples_us=[0.9 * us, us, 1.1 * us])
        for index, times in enumerate(medians) for form, us in times.items()
    )  # fmt: skip
    spans = ranges(forms)
    for size, times in forms.times.items():
        (form,) = [form for form, first, last in spans if first <= size <= last]
        assert form in unbeaten(times)
    assert all(a[0] != b[0] or a[2] < b[1] for a, b in itertools.pairwise(spans))


def test_backends_and_ranks_are_kept_apart_and_bad_results_left_out() -> None:
    records = [
        *make_records({OVER: (1.0, 1.0)}),
        *make_records({OVER: (9.0, 1.0)}, backend="torch"),
        *make_records({OVER: (5.0, 1.0)}, ranks=2),
        *make_records({ONE_CALL: (5.0, 1.0)}, ranks=3),
        record(PARTS, 4, 0.1, correct=False),
        record(PARTS, 4, 0.1, time_us=None),
        record("ring", 4, 0.1),
        record(OVER, 4, 0.1, collective="reduce"),
    ]
    all_forms = forms_of(study_of(records))
    assert [(forms.backend, forms.panel.ranks) for forms in all_forms] == [
        ("mpi4py", 4), ("torch", 4), ("mpi4py", 2),
    ]  # fmt: skip
    assert all(set(times) == {OVER} for forms in all_forms for times in forms.times.values())


def test_the_table_shows_ratios_ties_and_holes() -> None:
    forms = only_forms(
        [record(ONE_CALL, 4, 10.0), record(OVER, 4, 10.06), record(PARTS, 4, 20.0),
         record(ONE_CALL, 16, 8.0)]
    )  # fmt: skip
    assert list(rows(forms)) == [
        ["4", "10.0", "10.1 (1.01x =)", "20.0 (2.00x)"], ["16", "8.00 *", "-", "-"],
    ]  # fmt: skip


def test_a_star_marks_what_beats_all_others_and_small_ratios_keep_their_digits() -> None:
    forms = only_forms([record(ONE_CALL, 4, 6290.0), record(OVER, 4, 20.2)])
    assert list(rows(forms)) == [["4", "6290", "20.2 (0.00321x) *", "-"]]


def test_old_records_give_findings_printed_and_on_a_page(tmp_path: Path) -> None:
    """Without the samples, ratios, calls and launches, as the first records had none."""
    lines = {ONE_CALL: (2.0, 2.0), PARTS: (10.0, 0.5)}
    path, table = tmp_path / "old.jsonl", tmp_path / "times.csv"
    records = make_records(lines, samples_us=[], samples=40)
    path.write_text("".join(encoded(item) + "\n" for item in records))
    result = CliRunner().invoke(main, [str(path), "--csv", str(table)])
    assert result.exit_code == 0, result.output
    assert "reduce_scatter + allgather beats one call first at 16K" in result.output
    assert "| 4 | 2.01 * | - | 10.0 (4.98x) |" in result.output and "](" not in result.output
    with table.open() as file:
        assert len(list(csv.DictReader(file))) == len(records)
    pytest.importorskip("plotly")
    result = CliRunner().invoke(main, ["--records", str(path), "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    for name, cell in (("findings.md", "| 4 | 2.01 *"), ("study.html", "<td>2.01 *</td>")):
        text = (tmp_path / "out" / name).read_text()
        assert cell in text and "beats one call first at 16K" in text
        assert "native is 1.18 to 4.98 times as fast as" in text and "in one launch" in text


def test_a_table_without_compositions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no allreduce in two calls: run the benchmark"):
        write_times(study_of(make_records({ONE_CALL: (1.0, 1.0)})), tmp_path / "times.csv")


@pytest.mark.launches
def test_the_job_measures_and_prints_the_study(tmp_path: Path) -> None:
    """The whole study on two ranks, without SLURM."""
    directory = Path(sys.executable).parent
    if not (directory / "mpirun").exists():
        pytest.skip("no mpirun beside this Python")
    result = subprocess.run(
        ("bash", str(ROOT / "jobs" / "allreduce.sbatch"), "-b", "1K", "-e", "4K", "-n", "3"),
        env={
            **{name: text for name, text in os.environ.items() if not name.startswith("SLURM_")},
            "PATH": f"{directory}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "RANKS": "2",
            "MPICOLL_LAUNCHER": "mpirun", **QUIRKS,
        },
        cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert all(text in result.stdout for text in ("mpi4py", "torch", "| reduce + broadcast, us |"))
    records = only(CaseRecord, load_records(tmp_path / "mpicoll-allreduce-local-2.jsonl"))
    assert {item.algorithm for item in records} == set(FORMS)
    with (tmp_path / "mpicoll-allreduce-local.csv").open() as file:
        table = list(csv.DictReader(file))
    assert {row["form"] for row in table} == set(FORMS.values())
    assert len(table) == len(records)
