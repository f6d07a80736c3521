"""The packages' face: what imports what, which names are public, what is documented."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import tomllib

import pytest
from launcher import ROOT, python
from planted_faults import FAULTS

BACKENDS = ("mpi4py", "torch", "cupy")


IMPORT_ALL = f"""
import importlib, pkgutil, sys

class Refuse:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {BACKENDS}:
            raise ModuleNotFoundError(f"{{name}} is imported", name=name)

sys.meta_path.insert(0, Refuse)
import mpicoll
for each in pkgutil.walk_packages(mpicoll.__path__, "mpicoll."):
    if not each.name.startswith("mpicoll.mpi"):
        importlib.import_module(each.name)
        print(each.name)
"""


def test_all_but_the_backends_needs_neither_mpi_nor_torch() -> None:
    """In a fresh interpreter, in which importing them is an error."""
    done = python("-c", IMPORT_ALL)
    assert done.returncode == 0, done.stdout
    assert len(done.stdout.splitlines()) > 150


@pytest.mark.parametrize(("module", "foreign"), [("torchcoll", "mpi4py"), ("mpicoll", "torch")])
def test_packages_do_not_import_the_other_library(module: str, foreign: str) -> None:
    if module == "torchcoll":
        pytest.importorskip("torch")
    done = python("-c", f"import sys, {module}; print({foreign!r} in sys.modules)")
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("module", ["mpicoll", "torchcoll"])
def test_public_names_are_the_same(module: str) -> None:
    if module == "torchcoll":
        pytest.importorskip("torch")
    found = importlib.import_module(module)
    only = {"Comm"} if module == "torchcoll" else set()  # a communicator of mpi4py's
    assert set(found.__all__) == set(importlib.import_module("mpicoll").__all__) - only
    assert set(found.__all__) <= set(dir(found))
    assert all(getattr(found, name).__doc__ for name in found.__all__)


def test_top_level_is_fixed() -> None:
    if not shutil.which("git"):
        pytest.skip("needs git")
    told = subprocess.run(
        ("git", "ls-tree", "--name-only", "HEAD"), cwd=ROOT, capture_output=True, text=True
    )
    if told.returncode:
        pytest.skip("not a git checkout")
    allowed = {"pyproject.toml", "README.md", "mpicoll", "torchcoll", "tests", "jobs", "LICENSE",
               "CHANGELOG.md", "CONTRIBUTING.md"}  # fmt: skip
    assert {name for name in told.stdout.split() if not name.startswith(".")} <= allowed


@pytest.mark.parametrize("major", ["12", "13"])
def test_extras_for_gpus_bring_what_kernels_are_compiled_with(major: str) -> None:
    """CuPy's wheel has no headers of CUDA, and its bfloat16 is that of ml_dtypes."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = [re.split(r"[<>=]", each)[0] for each in extras[f"cuda{major}"]]
    assert {f"cupy-cuda{major}x[ctk]", "cuda-bindings", "ml-dtypes"} == set(named)


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_can_be_planted(fault: str) -> None:
    """A fault whose text has changed since is planted nowhere, and nobody would notice."""
    assert FAULTS[fault].right in (ROOT / FAULTS[fault].file).read_text()


TOOLS = {"cuda-bindings", "hypothesis", "mypy", "playwright", "pytest", "ruff", "sphinx"}
"""What only tests, CI and the build of the pages need."""


def installed_by(number: int) -> set[str]:
    """Return the packages of the extras that a command of the front page installs."""
    commands = re.findall(r"pip install -e '\.\[(.*)\]' && ", (ROOT / "README.md").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return {
        re.split(r"[\[<>=]", line)[0]
        for name in commands[number].split(",")
        for line in extras[name]
    }


def test_the_benchmark_of_the_front_page_installs_no_tools() -> None:
    assert installed_by(0) == {"mpich", "torch"}


def test_the_benchmark_has_the_versions_of_the_tests() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert {*extras["bench"]} <= {*extras["reference"]}


def test_the_tests_of_the_front_page_install_all_tools() -> None:
    assert installed_by(1) >= TOOLS | {"mpich", "torch"}
