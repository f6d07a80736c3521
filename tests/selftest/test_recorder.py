"""The command that measures what the flight recorder costs."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from launcher import mpirun, python, ranks
from rich.console import Console

from tests.selftest.recorder import Cost, table_of

needs_mpi = pytest.mark.skipif(mpirun() is None, reason="no mpirun here")


def test_a_row_has_the_cost_and_the_range_of_the_sets() -> None:
    console = Console(file=StringIO(), width=120)
    console.print(table_of([Cost("plan", 8, 160.0, 200.0, [1.2, 1.25, 1.3], [0.99, 1.0, 1.02])]))
    assert isinstance(console.file, StringIO)
    (row,) = [line for line in console.file.getvalue().splitlines() if "plan" in line]
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        "plan", "8", "160", "200", "40", "1.250 (1.200 .. 1.300)", "1.000 (0.990 .. 1.020)",
    ]  # fmt: skip


@needs_mpi
def test_a_single_rank_is_refused() -> None:
    result = python("-m", "tests.selftest.recorder")
    assert result.returncode == 2
    assert "a group of one rank records nothing" in result.stdout


@pytest.mark.launches
@needs_mpi
def test_every_kind_of_call_is_measured(tmp_path: Path) -> None:
    """The files of the recorder are removed with the end of the ranks."""
    result = ranks(
        2, "-m", "tests.selftest.recorder", "--sizes", "8,64K", "--sets", "1", "--time", "1",
        environment={"MPICOLL_FLIGHT": "0", "MPICOLL_FLIGHT_DIR": str(tmp_path), "COLUMNS": "120"},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if "│" in line]
    assert [(cells[0].strip(), cells[1].strip()) for cells in rows] == [
        (way, size) for way in ("plan", "method", "communicator") for size in ("8", "64K")
    ]
    assert all(float(cells[2]) > 0 for cells in rows)
    assert list(tmp_path.iterdir()) == []
