"""The comparison of ways on a GPU, from records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reporting import case, typed

from mpicoll.records.lines import CaseRecord
from mpicoll.records.reading import encoded
from tests.selftest.gpubound import least_us, main, rows, table_of


def record(backend: str, transport: str, us: float | None, **more: Any) -> CaseRecord:
    known = {
        "algorithm": "two_shot", "device": "cuda", "ranks": 2, "run": {"gpu_copy_GBps": 4000.0},
        "backend": backend, "transport": transport, **more,
    }  # fmt: skip
    return typed(case(us=us, size=1 << 26, **known))


def test_the_best_of_each_way_is_compared() -> None:
    found = rows(
        [
            record("mpi4py", "ipc", 100.0),
            record("mpi4py", "ipc", 90.0, algorithm="one_shot"),
            record("mpi4py", "staged", 9000.0),
            record("torch", "native", 4500.0),
            record("torch", "staged", 1.0, correct=False),
            record("torch", "staged", 1.0, device="cpu"),
            record("torch", "staged", None),
        ]
    )
    (row,) = found
    assert row.us == {"mpi4py ipc": 90.0, "mpi4py staged": 9000.0, "torch native": 4500.0}
    assert row.ratio["mpi4py staged"] == pytest.approx(100.0)
    assert row.bound == pytest.approx(4 * (1 << 26) / 4e6 / 90.0)


def test_the_bound_reads_inputs_and_writes_outputs_once() -> None:
    assert least_us(1_000_000, 4, 4000.0) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("hosts", "gpus", "shared"),
    [("nn", "aa", 2), ("nn", "ab", 1), ("nm", "aa", 1), ("nnmm", "aaab", 2), ("", "", 4)],
)
def test_the_bound_is_that_of_the_gpu_with_the_most_ranks(
    hosts: str, gpus: str, shared: int
) -> None:
    """Records without GPUs are of ranks that share one."""
    run = {"gpu_copy_GBps": 4000.0, "hosts": [*hosts], **({"gpus": [*gpus]} if gpus else {})}
    (row,) = rows([record("mpi4py", "ipc", 90.0, run=run, ranks=4)])
    assert row.bound == pytest.approx(2 * shared * (1 << 26) / 4e6 / 90.0)


def test_the_table_names_every_way() -> None:
    shown = table_of(rows([record("mpi4py", "ipc", 90.0), record("torch", "native", 4500.0)]))
    assert str(shown.columns[-1].header) == "bound / ipc"
    cells = [cell for column in shown.columns for cell in column.cells]
    assert "4500 (50x)" in cells and "75%" in cells


def test_files_without_an_allreduce_on_a_gpu_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records.jsonl"
    path.touch()
    with pytest.raises(SystemExit, match="2"):
        main([str(path)])
    assert "no allreduce on a GPU" in capsys.readouterr().err


def test_a_file_of_records_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(encoded(record("mpi4py", "ipc", 90.0)) + "\n")
    with pytest.raises(SystemExit, match="0"):
        main([str(path)])
    assert "mpi4py ipc" in capsys.readouterr().out
