"""Damaged files: the verdict says what it can, and never fails."""

from __future__ import annotations

import random
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from damage import PLANTED, of_flight
from recordings import recorded
from rich.console import Console

import mpicoll
from mpicoll.errors import ArgumentError
from mpicoll.flight.layout import SUFFIX
from mpicoll.flight.reader import read_all
from mpicoll.verdict.judging import judge
from mpicoll.verdict.summary import show


def calls(c: mpicoll.Collectives) -> None:
    x = np.ones(8)
    for _ in range(12):
        c.allreduce(x)
        c.barrier()
        c.broadcast(x, root=1)
    c.split(c.rank % 2, c.rank).allgather(x)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the content of the files of three ranks."""
    directory = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPICOLL_FLIGHT_DIR", str(directory))
        patch.setattr(mpicoll.RankLost, "found_in", "")
        files: dict[str, bytes] = {}

        def keep(c: mpicoll.Collectives) -> None:
            calls(c)
            c.barrier()
            if c.rank == 0:
                paths = directory.glob(f"*{SUFFIX}")
                files.update({path.name: path.read_bytes() for path in paths})
            c.barrier()

        recorded(directory, keep)
    return files


@pytest.mark.parametrize("seed", range(8))
def test_a_verdict_on_damaged_files(whole: dict[str, bytes], tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    for name, data in whole.items():
        (tmp_path / name).write_bytes(of_flight(data, dice) if dice.random() < 0.7 else data)
    try:
        dumps, _ = read_all(tmp_path)
    except ArgumentError:
        return
    text = StringIO()
    show(Console(file=text, width=120), judge(dumps))
    assert text.getvalue()
    assert not PLANTED.exists()


def test_files_that_are_cut_in_the_middle(whole: dict[str, bytes], tmp_path: Path) -> None:
    for name, data in whole.items():
        (tmp_path / name).write_bytes(data[: len(data) // 2])
    dumps, _ = read_all(tmp_path)
    assert judge(dumps).calls >= 0
