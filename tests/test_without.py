"""Without torch, mpi4py, a compiler or the built extension: what runs, and what a user is told."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from launcher import ROOT, python, ranks

FEW = ("allreduce", "--sizes", "64", "--algorithms", "ring", "--calls", "plans", "-n", "3")
INSTALL = "torchcoll needs torch: pip install 'mpicoll[torch]'"


@pytest.fixture
def without(tmp_path: Path) -> Any:
    """Return the environment of a Python in which a package cannot be imported."""

    def environment(package: str) -> dict[str, str]:
        # A .pth file would need a virtual environment of its own; this one is found first.
        (tmp_path / "sitecustomize.py").write_text(f"import sys; sys.modules[{package!r}] = None")
        return {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}

    return environment


def test_importing_torchcoll_tells_what_to_install(without: Any) -> None:
    done = python("-c", "import torchcoll", environment=without("torch"))
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == f"ModuleNotFoundError: {INSTALL}"


EXTENSION = "mpicoll.engine._compiled"
NOT_BUILT = (
    rf"mpicoll's C extension cannot be loaded \(.*{EXTENSION}.*\): install a C compiler and the "
    "headers of this Python, then run pip install mpicoll, or in a source tree "
    "python -c 'from setuptools import setup; setup\\(\\)' build_ext --inplace"
)


@pytest.mark.parametrize("use", ["mpicoll.Collectives", "mpicoll.threads(2)"])
def test_the_use_of_a_tree_that_is_not_built_tells_how_to_build_it(without: Any, use: str) -> None:
    done = python("-c", f"import mpicoll; {use}", environment=without(EXTENSION))
    assert done.returncode == 1
    assert re.fullmatch(f"ImportError: {NOT_BUILT}", done.stdout.splitlines()[-1])


def test_a_command_of_a_tree_that_is_not_built_tells_it_in_one_line(without: Any) -> None:
    done = python("-m", "mpicoll.bench", environment=without(EXTENSION))
    assert done.returncode == 2
    assert re.fullmatch(f"Error: {NOT_BUILT}\n", done.stdout)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a source distribution of this tree."""
    folder = tmp_path_factory.mktemp("sdist")
    setup = "from setuptools import setup; setup()"
    done = python("-c", setup, "-q", "egg_info", "-e", str(folder), "sdist", "-d", str(folder))
    assert done.returncode == 0, done.stdout
    return next(folder.glob("*.tar.gz"))


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        ("no-such-compiler", "there is no 'no-such-compiler'"),
        ("false", "the compiler failed, as its messages above say"),
    ],
)
def test_an_install_without_a_compiler_says_what_to_install(
    sdist: Path, tmp_path: Path, compiler: str, reason: str
) -> None:
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--target", str(tmp_path))
    done = python("-m", "pip", "install", *options, str(sdist), environment={"CC": compiler})
    assert done.returncode == 1
    assert re.search(
        "^ *error: mpicoll needs a C compiler and the headers of Python to build its extension, "
        rf"but {reason}: install them \(Debian, Ubuntu: apt install gcc libc6-dev python3-dev; "
        r"Fedora, RHEL: dnf install gcc python3-devel\), or name another compiler in CC$",
        done.stdout, re.MULTILINE,
    )  # fmt: skip


@pytest.mark.parametrize("command", ["bench", "p2p", "tune"])
def test_a_command_of_torchcoll_tells_it_in_one_line(without: Any, command: str) -> None:
    done = python("-m", f"torchcoll.{command}", environment=without("torch"))
    assert (done.returncode, done.stdout) == (2, f"Error: {INSTALL}\n")


@pytest.mark.parametrize("library", ["numpy", "msgspec", "click"])
def test_a_command_tells_in_one_line_which_library_it_lacks(without: Any, library: str) -> None:
    environment = without(library) | {"RANK": "1", "WORLD_SIZE": "2"}
    done = python("-m", "mpicoll.study", "x", environment=environment)
    assert done.returncode == 2
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"Error: rank 1 on {os.uname().nodename}: ")
    assert library in line and line.endswith("pip install 'mpicoll[reference]'")


@pytest.mark.launches
def test_the_benchmark_of_torch_alone_tells_it_in_one_line(without: Any) -> None:
    command = ("-m", "mpicoll.bench", "allreduce", "--backends", "torch")
    done = python(*command, environment=without("torch"))
    assert done.returncode == 2
    assert done.stdout.splitlines()[1:] == [f"Error: torch is left out: {INSTALL}"]


@pytest.mark.launches
def test_the_benchmark_runs_without_torch(without: Any) -> None:
    pytest.importorskip("mpi4py")
    done = ranks(2, "-m", "mpicoll", "bench", *FEW, environment=without("torch"))
    assert done.returncode == 0, done.stdout
    assert f"# torch is left out: {INSTALL}" in done.stdout
    assert "mpi4py    ring" in done.stdout


@pytest.mark.launches
def test_the_benchmark_runs_without_mpi4py(without: Any) -> None:
    pytest.importorskip("torch")
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "mpicoll.bench")
    done = python(*launcher, *FEW, environment=without("mpi4py"))
    assert done.returncode == 0, done.stdout
    assert "# mpi4py is left out: mpicoll.world() needs mpi4py: pip install mpi4py" in done.stdout
    assert "torch     ring" in done.stdout


@pytest.mark.launches
def test_an_mpi4py_without_an_mpi_is_told_in_one_line(tmp_path: Path) -> None:
    """As mpi4py's wheels fail where they find no libmpi."""
    package = tmp_path / "mpi4py"
    package.mkdir()
    (package / "__init__.py").write_text("class rc: pass")
    (package / "MPI.py").write_text("raise RuntimeError('cannot load MPI library\\nlibmpi.so')")
    environment = {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    command = ("-m", "mpicoll.bench", "allreduce", "--backends", "mpi4py")
    done = python(*command, environment=environment)
    assert done.returncode == 2
    assert done.stdout.splitlines()[1:] == [
        "Error: mpi4py is left out: mpi4py finds no MPI library (cannot load MPI library): "
        "pip install 'mpicoll[mpich]', or load the MPI of this system"
    ]


@pytest.mark.parametrize("package", ["mpicoll", "torchcoll"])
def test_the_types_are_marked_and_packaged(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()
    assert f'"{package}" = ["py.typed"]' in (ROOT / "pyproject.toml").read_text()
