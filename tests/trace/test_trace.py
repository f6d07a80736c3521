"""Traces: what the file says, and what cannot be one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mpicoll.errors import ArgumentError
from mpicoll.trace.__main__ import main
from mpicoll.trace.reading import load


def head(rank: int) -> dict[str, Any]:
    return {"schema": "mpicoll.trace/1", "rank": rank, "seconds": 2.0}


def line(rank: int, **changes: Any) -> dict[str, Any]:
    return {
        "rank": rank, "communicator": "MPI_COMM_WORLD", "ranks": 2, "call": "Allreduce",
        "bytes_per_rank": 8, "calls": 100, "seconds": 0.5, "least_us": 1.0, "algorithm": "ring",
        "transport": "symmetric",
    } | changes  # fmt: skip


def written(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def test_ranks_are_put_together(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.jsonl", head(0), line(0), line(0, call="Bcast", seconds=0.9), head(1),
        line(1, seconds=0.7, least_us=2.0), line(1, call="Bcast", seconds=0.9),
    )  # fmt: skip
    whole, kinds = load(path)
    assert whole == 2.0
    assert [each.call for each in kinds] == ["Bcast", "Allreduce"]
    assert (kinds[1].calls, kinds[1].seconds, kinds[1].least_us) == (100, pytest.approx(0.6), 2.0)
    shown = CliRunner().invoke(main, [str(path)]).output
    assert "30.0%" in shown
    assert "1.500 s of 2.000 s in collectives" in shown


@pytest.mark.parametrize(
    "text", ["", "{}\n", "nothing\n", '{"rank": 0, "seconds": 1, "schema": "other/1"}\n']
)
def test_what_is_no_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    with pytest.raises(ArgumentError, match="is no trace"):
        load(path)
