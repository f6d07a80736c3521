"""The packages' face: what imports what, which names are public, what is documented."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path

import pytest
from launcher import python

ROOT = Path(__file__).parent.parent
BACKEND_FREE = (
    "mpicoll",
    "mpicoll.errors",
    "mpicoll.notation.contract",
    "mpicoll.notation.schedule",
    "mpicoll.algorithms",
    "mpicoll.simulator",
    "mpicoll.programs.messages",
    "mpicoll.runtime.plan",
    "mpicoll.runtime.arguments",
    "mpicoll.collectives",
    "mpicoll.runtime.compositions",
    "mpicoll.measurement.checking",
    "mpicoll.programs.shared_memory",
    "mpicoll.memory.segments",
    "mpicoll.memory.numpy_arrays",
    "mpicoll.execution.shared_memory",
    "mpicoll.memory.slots",
    "mpicoll.selection.auto",
    "mpicoll.selection.tables",
    "mpicoll.selection.pricing",
    "mpicoll.memory.waiting",
    "mpicoll.memory.allocator",
    "mpicoll.memory.cma",
    "mpicoll.costs",
    "mpicoll.costs.bounds",
    "mpicoll.notation.sweep",
    "mpicoll.defaults",
    "mpicoll.explain.page",
)


@pytest.mark.parametrize("module", BACKEND_FREE)
def test_needs_neither_mpi_nor_torch(module: str) -> None:
    """In a fresh interpreter, in which importing them would be an error."""
    done = python(
        "-c",
        "import sys\n"
        "for name in ('mpi4py', 'torch', 'cupy'): sys.modules[name] = None\n"
        f"import {module}",
        timeout=60,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("module", "foreign"), [("torchcoll", "mpi4py"), ("mpicoll", "torch")])
def test_packages_do_not_import_the_other_library(module: str, foreign: str) -> None:
    done = python("-c", f"import sys, {module}; print({foreign!r} in sys.modules)", timeout=60)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("module", ["mpicoll", "torchcoll"])
def test_public_names_are_the_same(module: str) -> None:
    found = importlib.import_module(module)
    assert set(found.__all__) == set(importlib.import_module("mpicoll").__all__)
    assert all(getattr(found, name).__doc__ for name in found.__all__)


def test_top_level_is_fixed() -> None:
    told = subprocess.run(
        ("git", "ls-tree", "--name-only", "HEAD"), cwd=ROOT, capture_output=True, text=True
    )
    if told.returncode:
        pytest.skip("not a git checkout")
    allowed = {"pyproject.toml", "README.md", "mpicoll", "torchcoll", "tests", "jobs", "LICENSE",
               "CHANGELOG.md", "CONTRIBUTING.md"}  # fmt: skip
    assert {name for name in told.stdout.split() if not name.startswith(".")} <= allowed
