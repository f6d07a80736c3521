"""CONTRIBUTING's example is one function, and every test of algorithms passes with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launcher import ROOT, python

IMPORTS = """
from mpicoll.algorithms.registry import algorithm
from mpicoll.notation.schedule import Schedule, around, recv, send
"""
PLUGIN = """
import mpicoll.algorithms
mpicoll.algorithms.__path__.append({folder!r})
"""
PROOFS = ("tests/algorithms", "tests/simulator", "tests/test_package.py")


@pytest.fixture
def with_ladder(tmp_path: Path) -> dict[str, str]:
    """Return the environment in which the package has CONTRIBUTING's algorithm too."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(@algorithm.*?)```", text, re.DOTALL)
    added = tmp_path / "added"
    added.mkdir()
    (added / "ladders.py").write_text(IMPORTS + example)
    (tmp_path / "with_ladder.py").write_text(PLUGIN.format(folder=str(added)))
    return {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PYTEST_PLUGINS": "with_ladder"}


@pytest.mark.exhaustive
def test_one_function_is_proved_and_documented(with_ladder: dict[str, str]) -> None:
    process = python("-m", "pytest", "-q", *PROOFS, "-k", "ladder", environment=with_ladder)
    assert process.returncode == 0, process.stdout
    passed = re.search(r"(\d+) passed", process.stdout)
    assert passed and int(passed[1]) > 10, process.stdout


@pytest.mark.exhaustive
def test_no_other_test_notices(with_ladder: dict[str, str]) -> None:
    tests = (
        "tests/algorithms/test_table.py", "tests/simulator/test_simulator.py",
        "tests/test_package.py",
    )  # fmt: skip
    process = python("-m", "pytest", "-q", *tests, environment=with_ladder)
    assert process.returncode == 0, process.stdout


def test_the_simulator_prints_its_figures(with_ladder: dict[str, str]) -> None:
    code = (
        "import with_ladder; from mpicoll.explain.proofs import main; "
        "main(['--size', '5', '--collective', 'broadcast'])"
    )
    line = next(
        line for line in python("-c", code, environment=with_ladder).stdout.splitlines()
        if "ladder" in line
    )  # fmt: skip
    assert re.findall(r"[\d.]+", line)[:3] == ["4", "1", "0"]
