"""Random faults in random calls, and calls without end: what is counted, and a share of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from launcher import python

import mpicoll
from mpicoll.bench import chaos
from mpicoll.bench.soak import Kept, growth, soak


def test_a_launch_follows_from_its_seed_and_number() -> None:
    launches = [chaos.launch_of(5, number, chaos.FAULTS, 8) for number in range(200)]
    assert launches == [chaos.launch_of(5, number, chaos.FAULTS, 8) for number in range(200)]
    assert {each.fault for each in launches} == set(chaos.FAULTS)
    assert {each.ranks for each in launches} == set(range(2, 9))
    assert all(each.victim < each.ranks for each in launches)


@pytest.mark.parametrize(
    ("counts", "left", "said"),
    [
        ({chaos.RIGHT: 50, chaos.LOST: 99, chaos.WRONG_NAME: 1}, 0, []),
        ({chaos.LOST: 98, chaos.WRONG_NAME: 2}, 0, ["98.00% of errors name the right rank"]),
        ({chaos.HUNG: 1}, 0, ["1 ranks: hung"]),
        ({chaos.WRONG: 2}, 3, ["2 ranks: wrong result", "3 files left in /dev/shm"]),
    ],
)
def test_targets(counts: dict[str, int], left: int, said: list[str]) -> None:
    assert list(chaos.missed(Counter(counts), left)) == said


def test_a_fault_that_is_not_known_is_refused() -> None:
    done = python("-m", "mpicoll.bench.chaos", "--faults", "kill,meteor", timeout=100)
    assert done.returncode == 2
    assert "no fault 'meteor'" in done.stdout


def tried(tmp_path: Path, minutes: str) -> int:
    """Try faults for some minutes, and return how many; none may miss a target.

    A busy machine can let a deadline pass early, so that a rank names another one: a launch that
    misses by that alone is run once more.
    """
    pytest.importorskip("torch")
    records = tmp_path / "chaos.jsonl"
    command = ("-m", "mpicoll.bench.chaos", "--ranks", "4")
    done = python(*command, "--minutes", minutes, "-J", str(records),
                  timeout=60 * float(minutes) + 200)  # fmt: skip
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    others = [each for each in lines if any(e["how"] in chaos.MISSES for e in each["endings"])]
    ways = {e["how"] for each in others for e in each["endings"]}
    assert not ways & {chaos.WRONG, chaos.HUNG}, f"{done.stdout}\n{others}"
    assert others or done.returncode == 0, done.stdout
    for each in others:
        again = python(*command, "--first", str(each["number"]), "--launches", "1", timeout=200)
        assert again.returncode == 0, f"{done.stdout}\n{each}\n{again.stdout}"
    (count,) = re.findall(r"^(\d+) faults, seed 1, 0 files left", done.stdout, re.MULTILINE)
    assert int(count) == len(lines)
    return int(count)


@pytest.mark.launches
def test_random_faults(tmp_path: Path) -> None:
    assert tried(tmp_path, "0.2") >= 1


@pytest.mark.exhaustive
@pytest.mark.launches
def test_random_faults_for_a_minute(tmp_path: Path) -> None:
    assert tried(tmp_path, "1") >= 5


@pytest.mark.parametrize(
    ("last", "said"),
    [(Kept(1009, 5, 2, 0, 1.09), []), (Kept(1000, 6, 2, 0, 1.2), ["descriptors", "us"])],
)
def test_growth(last: Kept, said: list[str]) -> None:
    found = growth([Kept(1000, 5, 2, 0, 1.0), last])
    assert [each.partition(":")[0] for each in found] == said


def test_a_soak_holds_what_it_held() -> None:
    """On ranks that are threads: times say nothing there, and one sees what the other reads by."""
    found = mpicoll.threads(2)(lambda c: soak(c, 20_000, lambda text: None))[0]
    assert len(found) == 10
    grown = {each.partition(":")[0] for each in growth(found)}
    assert grown <= {"us", "descriptors"}
