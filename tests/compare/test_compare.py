"""The command that compares two runs: exit status, margins and layouts."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from two_runs import RUN, record, times, write

from mpicoll.compare.__main__ import main


def command(tmp_path: Path, a: float, b: float, *flags: str) -> Result:
    files = [
        write(tmp_path / name, [record("ring", times(us, seed))], RUN | {"id": name})
        for seed, (name, us) in enumerate((("a", a), ("b", b)))
    ]
    return CliRunner().invoke(main, [*map(str, files), *flags])


@pytest.mark.parametrize(("b", "status"), [(2.0, 0), (4.0, 0), (8.0, 1)])
def test_the_exit_status_says_whether_something_is_slower(
    b: float, status: int, tmp_path: Path
) -> None:
    result = command(tmp_path, 4.0, b)
    assert result.exit_code == status, result.stdout
    assert "allreduce" in result.stdout and "# B against A, by more than 3 %" in result.stdout


@pytest.mark.parametrize(
    ("decided", "flags", "status"),
    [
        ([], (), 5), ([], ("--allow-undecided",), 0), ([], ("--format", "jsonl"), 5),
        ([4.0], (), 0), ([8.0], (), 1), ([8.0], ("--allow-undecided",), 1),
    ],
)  # fmt: skip
def test_a_comparison_without_any_verdict_has_a_status_of_its_own(
    decided: list[float], flags: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    disturbed = [record(name, times(4.0)) | {"undisturbed": False} for name in ("ring", "bruck")]
    files = [
        write(tmp_path / "a", [*disturbed, *(record("naive", times(4.0)) for _ in decided)]),
        write(tmp_path / "b", [*disturbed, *(record("naive", times(us, 1)) for us in decided)]),
    ]
    result = CliRunner().invoke(main, [*map(str, files), *flags])
    assert result.exit_code == status, result.output
    advice = "measure both again, with a longer --time, on an idle machine"
    assert (advice in result.output) == (not decided)
    assert "Error" not in result.output


@pytest.mark.parametrize(
    ("spread", "verdict"), [(0.01, "tie"), (0.3, "no verdict: undecided")], ids=["narrow", "wide"]
)
def test_a_tie_is_surely_small(spread: float, verdict: str, tmp_path: Path) -> None:
    """An interval that allows a large difference decides nothing."""
    files = [
        write(tmp_path / name, [record("ring", times(4.0, seed, 40, spread))])
        for seed, name in enumerate("ab")
    ]
    result = CliRunner().invoke(main, [*map(str, files), "--allow-undecided"])
    assert result.exit_code == 0 and verdict in result.output


def test_a_margin_forgives(tmp_path: Path) -> None:
    assert command(tmp_path, 4.0, 4.4, "--margin", "25").exit_code == 0


@pytest.mark.parametrize("layout", ["csv", "jsonl", "markdown"])
def test_programs_read_every_layout(layout: str, tmp_path: Path) -> None:
    text = command(tmp_path, 4.0, 8.0, "--format", layout).stdout
    if layout == "csv":
        (row,) = csv.DictReader(
            io.StringIO("".join(f"{line}\n" for line in text.splitlines() if line[0] != "#"))
        )
    elif layout == "jsonl":
        row = json.loads(text.splitlines()[0])
    else:
        head, _, cells = (
            line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")
        )
        row = {name.strip(): cell.strip() for name, cell in zip(head, cells, strict=True)}
    assert row["verdict"] == "slower" and row["algorithm"] == "ring"


def test_a_file_without_cases_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    result = CliRunner().invoke(main, [str(path), str(path)])
    assert result.exit_code == 2 and "has no records of cases" in result.output
