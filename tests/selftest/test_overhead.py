"""The cost of one instruction, and the trip of a flag."""

from __future__ import annotations

import re

import pytest
from launcher import mpirun, python, ranks

from tests.selftest.overhead import overhead

LINES = r"one_shot of 8 ranks: (\d+) instructions of ([\d.]+) ns"


@pytest.mark.parametrize(
    ("algorithm", "size", "count", "least"), [("one_shot", 8, 1, 2 * 7), ("ring", 8, 8, 4 * 7)]
)
def test_a_replayed_program_has_its_instructions_and_waits_for_nobody(
    algorithm: str, size: int, count: int, least: int
) -> None:
    instructions, ns = overhead(algorithm, size, count)
    assert least <= instructions <= 4 * least
    assert 0 < ns < 20_000


@pytest.mark.launches
def test_two_ranks_measure_a_trip() -> None:
    if mpirun() is None:
        pytest.skip("no mpirun here")
    done = ranks(2, "-m", "tests.selftest.overhead", "--ranks", "8")
    assert done.returncode == 0, done.stdout
    assert re.search(LINES + r", [\d.]+ of a trip\n", done.stdout)
    assert re.search(r"a trip between two cores: \d+ ns", done.stdout)


def test_one_process_says_how_to_measure_a_trip() -> None:
    pytest.importorskip("mpi4py")
    done = python("-m", "tests.selftest.overhead", "--ranks", "8")
    assert done.returncode == 0, done.stdout
    assert re.search(LINES + "\n", done.stdout) and "no trip between cores" in done.stdout
