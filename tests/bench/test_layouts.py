"""The layouts of nccl-tests, OSU and IMB, read by the rules of programs that parse these suites."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import launcher
import pytest
from launcher import LIMIT, ranks
from reporting import case, typed

from mpicoll.bench.layouts import LAYOUTS
from mpicoll.bench.render import _software
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.records.lines import CaseRecord
from mpicoll.records.reading import load, only
from mpicoll.study.osu_and_imb import IMB, OSU, imb_times, osu_times

TIMES = {"median": 10.0, "low": 9.0, "high": 11.0, "mean": 10.5, "min": 8.25, "max": 20.0}


def record(**changes: Any) -> CaseRecord:
    fields = {"algorithm": "ring", "size": 4096, "bytes_per_rank": 4096, "count": 1024,
              "samples": 9, "calls_per_sample": 3, "time_us": TIMES, "run": {}}  # fmt: skip
    return typed(case(**{**fields, **changes}))


def halves(**changes: Any) -> list[CaseRecord]:
    """Return the records out of place and in place, the second twice as fast."""
    fast = {"time_us": {name: us / 2 for name, us in TIMES.items()}, "busbw_GBps": 1.2}
    return [record(**changes), record(**{**fast, **changes, "in_place": True})]


def layout_text(layout: str, *records: CaseRecord) -> str:
    stream = io.StringIO()
    LAYOUTS[layout](records, stream)
    return stream.getvalue()


# -- readers ------------------------------------------------------------------------------


def superbench(text: str, *, in_place: bool) -> dict[int, tuple[float, float, float]]:
    """Read time, algbw and busbw of each size by SuperBench's rules.

    The table lies between the last line with "out-of-place" and the last one with "Out of bounds
    values". Columns are found by their heads, counted from the end of the line.
    """
    lines = text.splitlines()
    (start,) = [n for n, line in enumerate(lines) if "out-of-place" in line][-1:]
    (stop,) = [n for n, line in enumerate(lines) if "Out of bounds values" in line][-1:]
    heads = next(line for line in lines[start:stop] if "time" in line and "busbw" in line)
    words = heads[1:].split()
    names = words[-4:] if in_place else words[-8:-4]
    at = {name: names.index(name) - (4 if in_place else 8) for name in ("time", "algbw", "busbw")}
    rows = [line.split() for line in lines[start:stop] if re.match(r"\s*\d", line)]
    return {
        int(row[words.index("size")]): tuple(float(row[place]) for place in at.values())
        for row in rows
        if int(row[0])
    }  # type: ignore[misc]


def flagperf(text: str) -> list[float]:
    """Read FlagPerf's result: the last word of the lines with "# Avg bus bandwidth"."""
    return [float(line.split()[-1]) for line in text.splitlines() if "# Avg bus bandwidth" in line]


def cloudai(text: str) -> list[list[float]]:
    """Read CloudAI's rows: lines of 13 words that begin with a digit, numbers in both halves."""
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d", line)]
    numbers = []
    for row in rows:
        if len(row) == 13:
            words = [row[0], *row[5:8], *row[9:12]]
            if all(re.fullmatch(r"[\d.]+", word) for word in words):
                numbers.append([float(word) for word in words])
    return numbers


def omb(text: str) -> tuple[str, list[list[float]]]:
    """Read an OSU program's output: the first comment is the title, " v" and a version."""
    lines = [line for line in text.splitlines() if line.strip()]
    name, _version = lines[0].split(" v")
    return name, [[float(word) for word in line.split()] for line in lines if line[0] != "#"]


def imb(text: str) -> Iterator[tuple[str, int, list[str], list[list[float]]]]:
    """Read IMB's blocks line by line: name, processes, a rule, heads, rows up to an empty line."""
    lines = iter(text.splitlines())
    for line in lines:
        if name := re.search("# Benchmarking ([A-Za-z_]+)", line):
            processes = re.search(r"# #processes = (\d+)", next(lines))
            next(lines)
            heads, rows = next(lines).split(), []
            while row := next(lines).split():
                rows.append([float(word) for word in row])
            assert processes is not None
            yield name[1], int(processes[1]), heads, rows


# -- nccl-tests ---------------------------------------------------------------------------


def test_readers_of_nccl_tests_find_both_halves() -> None:
    text = layout_text("nccl", *halves(), *halves(bytes_total=64, count=16))
    assert superbench(text, in_place=False) == {4096: (10.5, 0.41, 0.61), 64: (10.5, 0.41, 0.61)}
    assert superbench(text, in_place=True) == {4096: (5.25, 0.41, 1.2), 64: (5.25, 0.41, 1.2)}
    assert flagperf(text) == [pytest.approx((4.096 * 1.5 / 10 + 1.2) / 2, rel=1e-5)]
    assert cloudai(text) == [[size, 10.5, 0.41, 0.61, 5.25, 0.41, 1.2] for size in (4096.0, 64.0)]


def test_an_output_is_nccl_tests_line_by_line() -> None:
    text = layout_text("nccl", *halves(dtype="float64", root=None))
    lines = [line for line in text.splitlines() if "mpicoll" not in line and "averages" not in line]
    assert lines[0] == "# Collective test starting: all_reduce_perf"
    assert lines[2].split() == ["#", "out-of-place", "in-place"]
    heads = "# size count type redop root" + 2 * " time algbw busbw #wrong"
    assert lines[3].split() == heads.split()
    assert lines[5].split()[:6] == ["4096", "1024", "double", "sum", "-1", "10.50"]
    assert lines[6] == "# Out of bounds values : 0 OK"
    assert lines[9] == "# Collective test concluded: all_reduce_perf"


def test_a_refused_half_is_not_available() -> None:
    out_of_place, in_place = halves()
    in_place.time_us = None
    text = layout_text("nccl", out_of_place, in_place)
    assert superbench(text, in_place=False) == {4096: (10.5, 0.41, 0.61)}
    assert text.count("N/A") == 4 and not cloudai(text)


def test_each_algorithm_has_an_output_of_its_own() -> None:
    text = layout_text("nccl", *halves(), *halves(algorithm="bruck", wrong=3, correct=False))
    assert len(flagperf(text)) == 2
    assert text.index("0 OK") < text.index("mpi4py bruck") < text.index("6 FAILED")


@pytest.mark.launches
@pytest.mark.skipif(launcher.mpirun() is None, reason="no mpirun here")
def test_a_run_measures_both_halves(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    result = ranks(
        2, "-m", "mpicoll.bench", "broadcast", "alltoall", "--backends", "mpi4py", "--algorithms",
        "native", "--calls", "plans", "--sizes", "64,4K", "-n", "3", "--format", "nccl", "-J",
        str(file), "-T", str(LIMIT // 2), merged=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    measured = [(row.collective, row.bytes_total, row.in_place)
                for row in only(CaseRecord, load(file)) if row.time_us and row.correct]  # fmt: skip
    assert measured == [
        (name, size, place)
        for name in ("broadcast", "alltoall") for size in (64, 4096) for place in (False, True)
    ]  # fmt: skip
    assert [row[0] for row in cloudai(result.stdout)] == [64, 4096, 64, 4096]
    assert superbench(result.stdout, in_place=True).keys() == {64, 4096}
    assert len(flagperf(result.stdout)) == 2
    assert "native calls by" in result.stderr and "native calls by" not in result.stdout
    assert "auto, mpi4py: " in result.stderr and "probe" not in result.stderr


def test_a_record_that_a_probe_decided_says_so() -> None:
    file = Path(__file__).parents[1] / "records" / "files" / "launch.jsonl"
    lines = list(_software(list(only(CaseRecord, load(file)))))
    assert lines[-1].startswith("auto, mpi4py: by a probe: flag 188 ns")


# -- OSU and IMB --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("collective", "title"),
    [
        ("allreduce", "Allreduce"), ("broadcast", "Broadcast"), ("barrier", "Barrier"),
        ("alltoall", "All-to-All Personalized Exchange"), ("allgather", "Allgather"),
        ("reduce_scatter", "Reduce_scatter_block"), ("gather", "Gather"),
    ],
)  # fmt: skip
def test_the_title_of_osu_comes_first(collective: str, title: str) -> None:
    text = layout_text("osu", record(collective=collective))
    name, rows = omb(text)
    assert name == f"# OSU MPI {title} Latency Test"
    assert rows == [[4096, 10.5, 8.25, 20.0, 27]]
    heads = [line for line in text.splitlines() if line.startswith("#")][-1]
    names = "# Size Avg Latency(us) Min Latency(us) Max Latency(us) Iterations"
    assert " ".join(heads.split()) == names


def test_a_barrier_has_no_column_of_sizes() -> None:
    barrier = record(collective="barrier", count=0, bytes_total=0, bytes_per_rank=0, dtype=None)
    assert omb(layout_text("osu", barrier))[1] == [[10.5, 8.25, 20.0, 27]]
    heads = ["#repetitions", "t_min[usec]", "t_max[usec]", "t_avg[usec]"]
    assert [*imb(layout_text("imb", barrier))] == [("Barrier", 4, heads, [[27, 8.25, 20.0, 10.5]])]


def test_blocks_of_imb_are_read_line_by_line() -> None:
    heads = ["#bytes", "#repetitions", "t_min[usec]", "t_max[usec]", "t_avg[usec]"]
    text = layout_text("imb", record(), record(algorithm="bruck"), record(collective="broadcast"))
    row = [4096, 27, 8.25, 20.0, 10.5]
    assert [*imb(text)] == [(name, 4, heads, [row]) for name in ("Allreduce", "Allreduce", "Bcast")]


@pytest.mark.parametrize("collective", sorted(OSU.programs))
def test_sizes_are_those_of_the_suite(collective: str) -> None:
    """The readers of studies return S, the total bytes."""
    size = 0 if collective == "barrier" else 4096
    rows = 4 if COLLECTIVES[collective].unit not in ("vector", "none") else 1
    row = record(
        collective=collective, bytes_total=size, bytes_per_rank=size // rows, count=size // 4
    )
    assert osu_times(layout_text("osu", row), collective, 4) == {(collective, size): 20.0}
    assert imb_times(layout_text("imb", row), 4) == {(collective, size): 20.0}
    assert collective in IMB.programs


@pytest.mark.parametrize("layout", ["nccl", "osu", "imb"])
def test_comments_tell_methods_from_plans(layout: str) -> None:
    text = layout_text(layout, record(), record(call="method"))
    titles = [line for line in text.splitlines() if line.startswith("# mpicoll.bench")]
    assert [", method: mpi4py ring" in line for line in titles] == [False, True]
    assert all(line.endswith(": mpi4py ring") for line in titles)


def test_rows_of_csv_have_one_header() -> None:
    lines = layout_text("csv", *halves()).splitlines()
    assert len(lines) == 3 and "samples_us" not in lines[0] and "blocks" not in lines[0]
    assert len({line.count(",") for line in lines}) == 1
