"""The comparison with OSU's and Intel's benchmarks: what they print, and the table."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from launcher import python, ranks

from mpicoll.study.instruments import Launch, cells, table
from mpicoll.study.osu_and_imb import IMB, OSU, imb_times, osu_commands, osu_times

OSU_TEXT = """
# OSU MPI Reduce_scatter_block Latency Test v7.4
# Datatype: MPI_FLOAT.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
4                      40.01              7.69             72.33        1000
1048576               100.50             90.00            111.00         100
"""
OSU_BARRIER = """# Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
             1.51              1.50              1.52          50
"""
IMB_TEXT = """
# Benchmarking Reduce_scatter_block
# #processes = 2
#----------------------------------------------------------------
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            4         1000        33.04       190.68       111.86
      1048576           40     11818.71     11917.66     11868.18

# Benchmarking Barrier
#---------------------------------------------------
 #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
         1000         0.60         0.61         0.60

# All processes entering MPI_Finalize
"""


def test_both_are_read_as_bytes_in_total_and_the_slowest_rank() -> None:
    """OSU's size of a reduce_scatter is the whole vector's, IMB's is that of a rank's part."""
    name = "reduce_scatter"
    assert osu_times(OSU_TEXT, name, 2) == {(name, 4): 72.33, (name, 1048576): 111.0}
    assert osu_times(OSU_TEXT.replace("111.00", "1.1.1"), name, 2) == {(name, 4): 72.33}
    assert osu_times(OSU_BARRIER, "barrier", 2) == {("barrier", 0): 1.52}
    assert imb_times(IMB_TEXT, 2) == {
        (name, 8): 190.68, (name, 2097152): 11917.66, ("barrier", 0): 0.61
    }  # fmt: skip


def test_only_programs_that_are_there_are_run(tmp_path: Path) -> None:
    (tmp_path / "osu_allreduce").touch()
    ((name, command),) = osu_commands(tmp_path, [4, 1024])
    assert name == "allreduce" and command[1:] == ["-f", "-m", "4:1024", "-T", "mpi_float"]


@pytest.mark.parametrize(
    ("bench_us", "ratio_text", "count"),
    [(11.0, "1.00", 2), (13.0, "**1.20**", 1), (9.0, "**0.80**", 1)],
)
def test_a_ratio_beyond_ten_per_cent_is_marked_and_listed(
    bench_us: float, ratio_text: str, count: int
) -> None:
    """mpi4py's call takes 1 us; a launch that lies changes nothing."""
    base = {("gather", 8): 10.0, ("barrier", 0): 1.0}
    launches = [
        Launch(
            base,
            base | {("gather", 8): us},
            base | {("gather", 8): 11.0},
            {"gather": 1.0, "barrier": 0.0},
        )
        for us in (bench_us, bench_us, 900.0)
    ]
    text = table(OSU, list(cells(OSU, launches, [4], 2)), "MPI 1", 2)
    assert f"{count} of 2 within 10 %, and 2 of" in text and f"| gather | {ratio_text} |" in text
    assert ("| gather 4 B | 10.0 |" in text) == (count == 1)


def test_a_size_of_which_osu_calls_nothing_is_left_out() -> None:
    times = {("reduce_scatter", 4): 1.0}
    assert not list(cells(OSU, [Launch(times, times, times, {"reduce_scatter": 0.0})], [4], 2))
    assert OSU.sizes("reduce_scatter", [4, 16]) == [16] and IMB.sizes("barrier", [4]) == [0]


@pytest.mark.launches
def test_single_calls_are_timed_with_what_a_call_of_no_bytes_takes() -> None:
    result = ranks(
        2, "-m", "mpicoll.study.single_calls", "gather", "barrier", "--sizes", "8,64K",
    )  # fmt: skip
    rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    places = [(row["collective"], row["bytes_total"]) for row in rows]
    assert places == [("gather", 8), ("gather", 65536), ("barrier", 0)], result.stdout
    assert all(row["call_us"] > 0 for row in rows) and rows[1]["us"] > rows[1]["call_us"]


@pytest.mark.launches
def test_a_program_that_fails_is_an_error_with_its_words(tmp_path: Path) -> None:
    program = tmp_path / "IMB-MPI1"
    program.write_text("#!/bin/sh\necho error: no such benchmark\nexit 3\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    result = python(
        "-m", "mpicoll.study.instruments", "--imb", str(program), "--launches", "1", "--seed", "1",
        "--sizes", "4", "--time", "1",
    )  # fmt: skip
    assert result.returncode == 2 and "no such benchmark" in result.stdout, result.stdout
    assert "Traceback" not in result.stdout
