"""The measuring itself: ties are ties, delays are found, whatever else goes on."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from launcher import mpirun, python, ranks

from mpicoll.errors import ArgumentError
from mpicoll.measurement.candidate import Candidate, level
from mpicoll.measurement.statistics import speedup
from mpicoll.records.lines import AARecord, CaseRecord, RunRecord
from mpicoll.records.reading import load, only, record_of
from tests.selftest.trust import Claim, claims

needs_mpi = pytest.mark.skipif(mpirun() is None, reason="no mpirun here")


# -- samples whose truth is known ---------------------------------------------------------


def side_by_side(dice: random.Random, factor: float, count: int) -> str:
    """Return the verdict on calls of which one takes `factor` times as long.

    Both drift alike by a third, jump by a half for some blocks, and are disturbed at times, each
    for itself.
    """
    first, second = {}, {}
    for block in range(count):
        usual = 20 * (1 + block / count / 3) * (1.5 if dice.random() < 0.2 else 1)
        for times, scale in ((first, factor), (second, 1.0)):
            spike = dice.expovariate(1) if dice.random() < 0.05 else 0.0
            times[block] = usual * scale * dice.lognormvariate(0, 0.015) * (1 + spike)
    ratio = speedup(first, second)
    assert ratio is not None
    return ratio.verdict


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "tie"), (1.05, "faster"), (1 / 1.05, "slower")]
)
def test_of_200_comparisons_95_percent_are_judged_right(factor: float, verdict: str) -> None:
    dice = random.Random(11)
    verdicts = [side_by_side(dice, factor, 30) for _ in range(200)]
    assert verdicts.count(verdict) >= 190


def test_equals_repeat_their_calls_equally_often() -> None:
    """Candidates of like speed share the number of calls; a chain of them does not."""
    candidates: list[Any] = [Candidate(case=None) for _ in range(4)]  # type: ignore[arg-type]
    for candidate, (estimate, calls) in zip(
        candidates, [(1.0, 100), (1.4, 72), (1.9, 53), (9.0, 12)], strict=True
    ):
        candidate.estimate, candidate.calls = estimate, calls
    level(candidates[::-1])
    assert [candidate.calls for candidate in candidates] == [100, 100, 53, 12]


# -- counting ---------------------------------------------------------------------------


def comparisons(delay: float, verdicts: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"schema": 1, "kind": "twins", "case": "allreduce", "backend": "mpi4py", "ranks": 2,
         "delay": delay, "verdict": verdict}
        for verdict in verdicts
    ]  # fmt: skip


def write_lines(path: Path, lines: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_verdicts_are_counted(tmp_path: Path) -> None:
    lines = comparisons(0.0, ["tie"] * 19 + ["faster"]) + comparisons(
        5.0, ["slower"] * 18 + ["tie", "faster"]
    )
    ties, delays = claims([write_lines(tmp_path / "twins", lines)])
    assert (ties.right, ties.trials, ties.holds) == (19, 20, True)
    assert (delays.right, delays.trials, delays.holds) == (18, 20, False)


def run(us: float, count: int = 10) -> list[dict[str, Any]]:
    """Return records of schedules that take so many microseconds, give or take a few per cent."""
    dice = random.Random(us)
    samples = [[us * dice.uniform(0.98, 1.02) for _ in range(15)] for _ in range(count)]
    return [
        {"schema": 1, "collective": "scan", "backend": "mpi4py", "algorithm": "ring",
         "dtype": "int8", "op": "sum", "root": None, "in_place": False, "ranks": 2, "nodes": 1,
         "bytes_total": size, "samples": 15, "samples_us": times, "timing": "together",
         "correct": True, "run": {},
         "time_us": {"median": sorted(times)[7], "low": min(times), "high": max(times)}}
        for size, times in enumerate(samples)
    ]  # fmt: skip


@pytest.mark.parametrize(("us", "right"), [(2.0, 10), (2.001, 10), (2.5, 0), (1.6, 0)])
def test_runs_agree_where_they_tie(us: float, right: int, tmp_path: Path) -> None:
    files = [write_lines(tmp_path / "a", run(2.0)), write_lines(tmp_path / "b", run(us, 12))]
    compared, overlapping = claims(files)
    assert (compared.right, compared.trials, compared.holds) == (right, 10, right > 0)
    assert (overlapping.right, overlapping.trials, overlapping.holds) == (right, 10, True)


@pytest.mark.parametrize("right", [0, 1, 190, 200])
def test_a_share_has_an_interval(right: int) -> None:
    low, high = Claim("", right, 200, 0.95).interval()
    assert -1e-9 <= low <= right / 200 <= high <= 1 + 1e-9


@pytest.mark.parametrize("lines", [[], run(1.0)], ids=["empty", "one run"])
def test_files_that_say_nothing_are_refused(lines: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"tests\.selftest\.twins"):
        claims([write_lines(tmp_path / "file", lines)])


@pytest.mark.exhaustive
@pytest.mark.parametrize(("right", "status"), [(20, 0), (18, 1)])
def test_the_command_says_whether_all_holds(right: int, status: int, tmp_path: Path) -> None:
    lines = comparisons(0.0, ["tie"] * right + ["slower"] * (20 - right))
    path = write_lines(tmp_path / "twins.jsonl", lines)
    result = python("-m", "tests.selftest.trust", str(path))
    assert result.returncode == status and f"{right / 20:.1%}" in result.stdout


# -- real ranks ---------------------------------------------------------------------------


@pytest.mark.launches
@needs_mpi
def test_a_call_against_itself_delayed(tmp_path: Path) -> None:
    """Four times as long is found where there are samples; `trust` counts those of 5 %."""
    result = ranks(2, "-m", "tests.selftest.twins", "--comparisons", "5", "--each", "1", "--delay",
                 "300", merged=False)  # fmt: skip
    assert result.returncode == 0, result.stdout
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    described, *compared = (record_of(line, "stdout") for line in lines)
    assert isinstance(described, RunRecord) and described.run.clock.sync_error_us == 0
    measured = only(AARecord, [record for record in compared if record])
    assert [comparison.delay for comparison in measured] == [0.0, 300.0] * 5
    telling = [
        comparison for comparison in measured if comparison.delay and comparison.samples >= 10
    ]
    if len(telling) < 3:
        pytest.skip("the machine was too busy for ten samples of three calls")
    assert 2 * sum(comparison.verdict == "slower" for comparison in telling) > len(telling), (
        measured
    )


@pytest.mark.launches
@needs_mpi
@pytest.mark.parametrize("count", [1, 5])
def test_ranks_without_cores_of_their_own_come_to_an_end(count: int, tmp_path: Path) -> None:
    """More ranks than cores: nothing hangs, and records are those of this many ranks."""
    path = tmp_path / "records.jsonl"
    result = ranks(count, "-m", "mpicoll.bench", "allreduce", "barrier", "--backends", "mpi4py",
                 "--algorithms", "native,ring,naive,dissemination", "--sizes", "1K,256K", "-n", "4",
                 "-J", str(path))  # fmt: skip
    assert result.returncode == 0, result.stdout
    assert ("warning: there is one rank: nothing moves" in result.stdout) is (count == 1)
    described, *records = load(path)
    assert isinstance(described, RunRecord) and len(described.run.hosts) == count
    assert [rank.rank for rank in described.run.binding] == list(range(count))
    cases = only(CaseRecord, records)
    assert {case.ranks for case in cases} == {count}
    assert all(case.correct is not False for case in cases)
    sizes = [case.bytes_total for case in cases if case.collective == "allreduce"]
    assert sizes == sorted(sizes) and set(sizes) == {1024, 262144}
