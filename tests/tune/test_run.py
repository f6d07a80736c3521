"""Whole runs of ``mpicoll.tune``, on ranks that are threads of this process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mpicoll
from mpicoll import Collectives
from mpicoll.errors import ArgumentError
from mpicoll.measurement.cases import Wanted
from mpicoll.selection import tables
from mpicoll.tune import run as tuning


def run_on(size: int, output: Path, *collectives: str) -> list[int]:
    """Return the exit status of each rank."""
    wanted = Wanted(collectives or ("allreduce",), (), (64,))
    options = tuning.Options(wanted, ("threads",), 1.0, output, 0.0, None, resume=False)

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

    monkeypatch.setattr(tables, "write_whole", fail)


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
