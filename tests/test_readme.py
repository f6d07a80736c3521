"""What the documentation shows is true: examples run, links and paths lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launcher import ROOT, mpirun, python, ranks

_RANKS = 2


def example(package: str) -> str:
    """Return the Python block of the front page that imports a package."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (found,) = [block for block in blocks if f"import {package}\n" in block]
    return str(found)


def check(output: str, returncode: int) -> None:
    assert returncode == 0, output
    assert {f"rank {rank} of {_RANKS}" for rank in range(_RANKS)} <= set(
        re.findall(r"rank \d+ of \d+", output)
    ), output


@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
@pytest.mark.parametrize("package", ["mpicoll", "torchcoll"])
def test_an_example_runs_under_mpirun(package: str, tmp_path: Path) -> None:
    if package == "torchcoll":
        pytest.importorskip("torch")
    (tmp_path / "example.py").write_text(example(package))
    path = {"PYTHONPATH": str(ROOT)}
    done = ranks(_RANKS, str(tmp_path / "example.py"), timeout=120, environment=path)
    check(done.stdout, done.returncode)


def test_the_example_of_torchcoll_runs_under_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "example.py").write_text(example("torchcoll"))
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", str(_RANKS))
    path = {"PYTHONPATH": str(ROOT)}
    done = python(*torchrun, str(tmp_path / "example.py"), timeout=120, environment=path)
    check(done.stdout, done.returncode)
