"""Whole runs of ``mpicoll.tune``, on ranks that are threads of this process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mpicoll
from mpicoll import Collectives
from mpicoll.errors import ArgumentError
from mpicoll.measurement import cases
from mpicoll.measurement.candidate import Candidate
from mpicoll.measurement.cases import Case, Wanted
from mpicoll.selection import tables
from mpicoll.tune import run as tuning
from mpicoll.tune.choosing import LEAST_SAMPLES
from mpicoll.tune.command import DEFAULT_SIZES

BUDGET = 20.0
"""Seconds: more than enough for one size of two collectives, which take less if it is quiet."""


def run_on(size: int, output: Path, *collectives: str) -> list[int]:
    """Return the exit status of each rank."""
    wanted = Wanted(collectives or ("allreduce",), (), (64,))
    options = tuning.Options(wanted, ("threads",), BUDGET, output, 0.0, None, resume=False)

    def run_rank(c: Collectives) -> int:
        return tuning.run(options, {"threads": lambda interface: c})

    return mpicoll.threads(size)(run_rank)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wanted": Wanted(("allreduce",), (), (128,))}, r"sizes is \(128,\) there, not \(64,\)"),
        ({"budget": 2.0}, r"rank 1 was started with other .*: budget is 2.0 there, not 1.0"),
        ({"output": Path("/proc/x.json"), "interface": "lo"}, "cannot write /proc/table.json"),
    ],
)
def test_ranks_are_started_alike(change: dict[str, Any], message: str) -> None:
    """But for files, which only rank 0 writes, and interfaces of hosts."""
    output, wanted = Path("/proc/table.json"), Wanted(("allreduce",), (), (64,))
    options = tuning.Options(wanted, ("threads",), 1.0, output, 0.0, None, resume=False)

    def run_rank(c: Collectives) -> None:
        rank_options = replace(options, **change) if c.rank else options
        with pytest.raises(ArgumentError, match=message):
            tuning.run(rank_options, {"threads": lambda interface: c})

    mpicoll.threads(2)(run_rank)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where anything is measured."""

    def fail(*arguments: Any) -> Any:
        raise AssertionError("something is measured")

    monkeypatch.setattr(tuning, "Bench", fail)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a disk that is full once it is to be written."""

    def fail(path: Path, save: object) -> None:
        raise ArgumentError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr("mpicoll.text.files.write_whole", fail)


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (None, "/proc/table.json", "cannot write /proc/table.json"),
        (None, "/dev/full", "no regular file"),
        ("my notes", "notes.txt", "is not a decision table"),
        ("my notes", "notes.txt/table.json", "Not a directory|File exists"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(
    content: str | None, name: str, message: str, tmp_path: Path
) -> None:
    if content:
        (tmp_path / "notes.txt").write_text(content)
    with pytest.raises(ArgumentError, match=message):
        run_on(2, tmp_path / name)
    assert not content or (tmp_path / "notes.txt").read_text() == content


def test_a_table_is_written_and_its_folder_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "table.json"
    assert run_on(2, path, "allreduce", "broadcast") == [0, 0]
    entries = tables.read(path)["entries"]
    assert [entry["collective"] for entry in entries] == ["allreduce", "broadcast"]
    assert f"wrote 2 decisions to {path}" in capsys.readouterr().out
    assert [file.name for file in path.parent.iterdir()] == ["table.json"]


@pytest.mark.usefixtures("full")
def test_nothing_measured_is_lost_where_the_disk_is_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table.json"
    assert run_on(2, path, "allreduce", "broadcast") == [1, 1]
    output = capsys.readouterr().out
    assert "No space left on device" in output and "wrote" not in output
    # The last of the printed tables has all decisions, and serves as a file.
    last = output[output.rindex('{\n "schema"') :]
    path.write_text(last)
    assert json.loads(last) == tables.read(path)
    entries = tables.read(path)["entries"]
    assert [entry["collective"] for entry in entries] == ["allreduce", "broadcast"]


class SlowBench:
    """A bench with a clock of its own, on which a size takes some seconds, or its share.

    Attributes:
        sizes: the sizes of which samples were taken.
    """

    def __init__(self, seconds: float) -> None:
        transport = SimpleNamespace(shared=None, name="point-to-point")
        world = SimpleNamespace(
            transport=transport,
            nodes=((0,), (1,)),
            transports=[],
            algorithms=lambda name: ["native"],
        )
        self.worlds, self.synchroniser = {"mpi4py": world}, SimpleNamespace(time=0)
        self.seconds, self.sizes = seconds, list[int]()

    def measure(self, cases: Sequence[Case], seconds: float, limit: int) -> list[Candidate]:
        self.sizes.append(cases[0].group.bytes_total)
        end = self.synchroniser.time + int(1e9 * max(seconds, self.seconds))
        self.synchroniser.time = min(end, limit + 1)
        count = LEAST_SAMPLES if end <= limit else 3
        return [Candidate(case, samples=dict.fromkeys(range(count), 1.0)) for case in cases]


@pytest.mark.parametrize(("seconds", "measured"), [(1, 12), (10, 12), (30, 4), (90, 1), (200, 0)])
def test_as_many_sizes_are_measured_as_the_time_allows(seconds: float, measured: int) -> None:
    """In 120 s, with equal distances; a size without samples enough does not count."""
    bench: Any = SlowBench(seconds)
    groups = [*cases.groups(Wanted(("allreduce",), (), DEFAULT_SIZES), 2)]
    by_size = tuning.measure_sizes(bench, groups, (), int(120e9)).get("mpi4py", {})
    assert bench.synchroniser.time <= 120e9 + 1
    assert len(by_size) == measured and set(by_size) <= set(bench.sizes)
    if measured == 4:
        assert [*by_size] == [4, 64, 1 << 14, 1 << 22]


def test_too_little_time_for_one_size_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    wanted = Wanted(("allreduce",), (), (64,))
    options = tuning.Options(wanted, ("threads",), 1e-6, path, 0.0, None, resume=False)

    def run_rank(c: Collectives) -> None:
        with pytest.raises(ArgumentError, match="--time 1e-06 is too short to measure one size"):
            tuning.run(options, {"threads": lambda interface: c})

    mpicoll.threads(2)(run_rank)
    assert not path.exists()
