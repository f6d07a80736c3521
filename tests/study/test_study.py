"""The three forms of allreduce: which is fastest where, and the fits."""

from __future__ import annotations

import csv
import itertools
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launcher import QUIRKS
from reporting import case, typed

from mpicoll.errors import ArgumentError
from mpicoll.records.lines import CaseRecord
from mpicoll.records.reading import load as load_records
from mpicoll.records.reading import only
from mpicoll.study.analysis import crossing, fits, ranges, unbeaten
from mpicoll.study.forms import FORMS, ONE_CALL, FormTimes, Time, form_times, load
from mpicoll.study.rendering import findings, markdown

ROOT = Path(__file__).parents[2]
OVER, PARTS = list(FORMS)[1:]
SIZES = [4**power for power in range(1, 12)]


def record(algorithm: str, size: int, us: float, **more: Any) -> CaseRecord:
    return typed(case(algorithm, us, size, **more))


def measured(lines: Mapping[str, tuple[float, float]], **more: Any) -> list[CaseRecord]:
    """Return records of forms that cost alpha us, and beta ns a byte."""
    return [
        record(form, size, alpha + beta * size / 1000, **more)
        for form, (alpha, beta) in lines.items() for size in SIZES
    ]  # fmt: skip


def test_each_form_wins_where_it_is_faster() -> None:
    found = measured({ONE_CALL: (2.0, 2.0), OVER: (4.0, 1.5), PARTS: (10.0, 0.5)})
    (forms,) = form_times(found)
    assert [each.form for each in ranges(forms)] == [ONE_CALL, PARTS]
    assert ranges(forms)[0].first == SIZES[0] and ranges(forms)[-1].last == SIZES[-1]
    known = fits(forms)
    assert known[PARTS].alpha_us == pytest.approx(10, rel=0.01)
    assert known[PARTS].beta_ns_per_byte == pytest.approx(0.5, rel=0.01)
    assert crossing(known[ONE_CALL], known[PARTS]) == pytest.approx(8000 / 1.5, rel=0.02)
    text = "\n".join(findings(forms))
    assert "reduce_scatter + allgather beats one call first at 16K" in text
    assert "reduce + broadcast beats one call first at 16K" in text


def test_one_call_that_always_wins_has_no_crossing() -> None:
    (forms,) = form_times(measured({ONE_CALL: (1.0, 1.0), OVER: (2.0, 2.0)}))
    assert [each.form for each in ranges(forms)] == [ONE_CALL]
    assert "beats one call nowhere; the lines cross at no size" in "\n".join(findings(forms))
    assert crossing(fits(forms)[ONE_CALL], fits(forms)[ONE_CALL]) is None


def test_medians_that_change_places_within_ties_make_one_range() -> None:
    """Medians that change places within their intervals make one range."""
    times = {
        size: {ONE_CALL: Time(10.0 + index % 2, 9, 12), PARTS: Time(10.5, 9, 12)}
        for index, size in enumerate(SIZES)
    }
    forms = FormTimes("mpi4py", "MPI", "cpu", 4, times)
    assert len(ranges(forms)) == 1
    assert unbeaten(times[4]) == [ONE_CALL, PARTS]


@given(
    st.lists(st.dictionaries(st.sampled_from(list(FORMS)), st.floats(1, 9), min_size=1), min_size=1)
)
def test_ranges_cover_all_sizes_and_are_never_beaten(medians: list[dict[str, float]]) -> None:
    times = {
        4**index: {form: Time(us, us - 0.5, us + 0.5) for form, us in each.items()}
        for index, each in enumerate(medians)
    }
    forms = FormTimes("mpi4py", "MPI", "cpu", 4, times)
    found = ranges(forms)
    for size, each in times.items():
        (only,) = [part for part in found if part.first <= size <= part.last]
        assert only.form in unbeaten(each)
    assert all(a.form != b.form or a.last < b.first for a, b in itertools.pairwise(found))


def test_backends_and_ranks_are_kept_apart_and_bad_results_left_out() -> None:
    found = [
        *measured({ONE_CALL: (1.0, 1.0)}),
        *measured({ONE_CALL: (9.0, 1.0)}, backend="torch"),
        *measured({ONE_CALL: (5.0, 1.0)}, ranks=2),
        record(PARTS, 4, 0.1, correct=False),
        record(PARTS, 4, 0.1, time_us=None),
        record("ring", 4, 0.1),
        record(ONE_CALL, 4, 0.1, collective="reduce"),
    ]
    made = form_times(found)
    assert [(each.backend, each.ranks) for each in made] == [
        ("mpi4py", 2), ("mpi4py", 4), ("torch", 4),
    ]  # fmt: skip
    assert all(set(times) == {ONE_CALL} for each in made for times in each.times.values())


def test_the_table_shows_ratios_ties_and_holes() -> None:
    (forms,) = form_times(
        [record(ONE_CALL, 4, 10.0), record(OVER, 4, 10.05), record(ONE_CALL, 16, 8.0)]
    )
    lines = markdown(forms).splitlines()
    assert lines[2] == "| 4 | 10 * | 10.05 (1.01x =) | - |"
    assert lines[3] == "| 16 | 8 * | - | - |"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no allreduce in these files"), ("{\n", "no record"), ("[1]\n", "no record"),
        ('{"schema": 1, "collective": "allreduce", "algorithm": "native"}\n', "no whole record"),
    ],
)  # fmt: skip
def test_other_files_are_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(text)
    with pytest.raises(ArgumentError, match=said):
        load([path])
    with pytest.raises(ArgumentError, match="cannot read"):
        load([tmp_path / "nowhere"])


def test_the_job_measures_and_prints_the_study(tmp_path: Path) -> None:
    """The whole study on two ranks, without SLURM."""
    beside = Path(sys.executable).parent
    if not (beside / "mpirun").exists():
        pytest.skip("no mpirun beside this Python")
    done = subprocess.run(
        ("bash", str(ROOT / "jobs" / "allreduce.sbatch"), "-b", "1K", "-e", "4K", "-n", "3"),
        env={
            **{name: text for name, text in os.environ.items() if not name.startswith("SLURM_")},
            "PATH": f"{beside}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "RANKS": "2",
            "MPICOLL_LAUNCHER": "mpirun", **QUIRKS,
        },
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "mpi4py" in done.stdout and "torch" in done.stdout and "beats one call" in done.stdout
    records = only(CaseRecord, load_records(tmp_path / "mpicoll-allreduce-local-2.jsonl"))
    assert {each.algorithm for each in records} == set(FORMS)
    with (tmp_path / "mpicoll-allreduce-local.csv").open() as file:
        table = list(csv.DictReader(file))
    assert {each["form"] for each in table} == set(FORMS.values())
    assert len(table) == len(records)
