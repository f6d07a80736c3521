"""How commands treat the launch that has started them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import mpicoll.hosts.__main__
import mpicoll.study.__main__
import mpicoll.study.instruments
import tests.selftest.chaos
import tests.selftest.trust
from mpicoll.tune.exports.command import main as export

LAUNCHERS = {
    "hosts": (mpicoll.hosts.__main__.main, ["--", "-V"]),
    "study": (mpicoll.study.__main__.main, ["--dry-run"]),
    "instruments": (mpicoll.study.instruments.main, ["--imb", sys.executable]),
    "export": (export, ["--to", "mpich", "-o", "table"]),
    "chaos": (tests.selftest.chaos.main, []),
    "self_check": (tests.selftest.trust.main, []),
}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_the_ranks_of_a_launch_start_no_launches(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else each rank would do the work, in one folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "4")
    main, arguments = LAUNCHERS[name]
    with pytest.raises(click.UsageError, match="MPICH's mpirun has started it 4 times: start it"):
        main(arguments, standalone_mode=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_rank_prints_the_refusal_for_all(rank: int, tmp_path: Path) -> None:
    process = subprocess.run(
        (sys.executable, "-m", "mpicoll.study", "-o", "study"), capture_output=True, text=True,
        env={**os.environ, "PMI_RANK": str(rank), "PMI_SIZE": "2"}, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert process.returncode == 2
    assert ("start it once" in process.stderr) == (rank == 0)
    assert not process.stdout and not list(tmp_path.iterdir())
