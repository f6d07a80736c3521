"""Algorithms of a user's own files: every command uses them, and a bad file has one clear error."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from launcher import ROOT, python, ranks

from mpicoll.algorithms import registry, user_files
from mpicoll.algorithms.registry import algorithm, find
from mpicoll.errors import ArgumentError, BadFile, UnknownName

IMPORTS = """
from mpicoll.algorithms import algorithm
from mpicoll.notation.schedule import Schedule, around, recv, send
"""


@pytest.fixture
def ladder(tmp_path: Path) -> Path:
    """Return a file with CONTRIBUTING's algorithm."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(@algorithm.*?)```", text, re.DOTALL)
    (tmp_path / "mine.py").write_text(IMPORTS + example)
    return tmp_path / "mine.py"


COMMANDS = {
    "prove": "simulator --size 5 --collective broadcast",
    "price": "costs broadcast --ranks 8 --algorithms ladder,binomial",
    "draw": "explain broadcast ladder --ranks 3",
    "list": "algorithms broadcast",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_uses_the_algorithm_of_a_file(ladder: Path, command: str) -> None:
    arguments = COMMANDS[command].split()
    process = python("-m", "mpicoll", *arguments, "--load", str(ladder))
    assert process.returncode == 0, process.stdout
    assert "ladder" in process.stdout


@pytest.mark.launches
def test_the_ranks_of_a_launch_use_the_algorithm_of_a_file(ladder: Path) -> None:
    """The variable, which `--load` sets, is what processes that a command starts inherit."""
    command = ("bench", "bcast", "--algorithms", "ladder", "--sizes", "64", "-n", "3")
    options = ("--backends", "mpi4py", "--calls", "plans")
    environment = {"MPICOLL_LOAD": str(ladder)}
    process = ranks(2, "-m", "mpicoll", *command, *options, environment=environment)
    assert process.returncode == 0, process.stdout
    assert "mpi4py    ladder" in process.stdout


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("local_rank", [0, 1])
def test_each_host_says_once_that_its_file_is_missing(rank: int, local_rank: int) -> None:
    environment = {"PMI_RANK": str(rank), "PMI_SIZE": "4", "MPI_LOCALRANKID": str(local_rank)}
    arguments = ("mpicoll.bench", "--load", "none.py")
    process = python("-m", *arguments, environment=environment)
    assert process.returncode == 2
    expected = f"--load: there is no file {os.path.abspath('none.py')!r}"
    assert (expected in process.stdout) == (rank == 0 or local_rank == 0)


BAD_FILES = {
    "x = (": r"bad.py, line 1: SyntaxError: '\(' was never closed",
    "import nowhere": "bad.py, line 1: ModuleNotFoundError: No module named 'nowhere'",
    "raise SystemExit('end')": "bad.py, line 1: SystemExit: end",
    "class E(BaseException): ...\nraise E": "bad.py, line 2: E: ",
    "class E(Exception):\n    def __str__(self): raise OSError\nraise E": (
        "bad.py, line 3: E: <its text raises OSError>"
    ),
    "class E(Exception):\n    __str__ = None\nraise E": (
        "bad.py, line 3: E: <its text raises TypeError>"
    ),
    "x = 1": r"bad.py registers no algorithm: decorate a function by algorithm\(COLLECTIVE\)",
    IMPORTS + "@algorithm('allredcue')\ndef f(rank, size): ...": (
        "bad.py, line 4: unknown collective 'allredcue': did you mean 'allreduce'"
    ),
    IMPORTS + "@algorithm('allreduce')\ndef ring(rank, size): ...": (
        "bad.py, line 4: allreduce already has an algorithm 'ring': choose another name"
    ),
    IMPORTS + "@algorithm('allreduce', aliases=('ring',))\ndef f(rank, size): ...": (
        "bad.py, line 4: allreduce already has an algorithm 'ring': choose another name"
    ),
    IMPORTS + "@algorithm('allreduce', blocks=0)\ndef f(rank, size): ...": "blocks of f must be",
    IMPORTS + "@algorithm('allreduce', blocks='k')\ndef f(rank, size): ...": "function, not 'k'",
    IMPORTS + "@algorithm('allreduce')\ndef f(size, rank): ...": "f must take rank and size first",
    IMPORTS + "@algorithm('allreduce')\ndef f(rank, size, k): ...": "k of f needs a default",
}


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore what is registered after the test."""
    find("allreduce", "ring")
    registry.algorithms("allreduce")
    shelves = {of: dict(entries) for of, entries in registry._REGISTRY.items()}
    monkeypatch.setattr(registry, "_REGISTRY", shelves)
    monkeypatch.setattr(registry, "_ALIASES", dict(registry._ALIASES))


def count() -> int:
    return sum(map(len, registry._REGISTRY.values()))


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("text", BAD_FILES)
def test_a_bad_file_has_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "bad.py").write_text(text)
    monkeypatch.setenv("MPICOLL_LOAD", str(tmp_path / "bad.py"))
    for _attempt in range(2):  # nothing of the first attempt stays
        with pytest.raises(BadFile, match=BAD_FILES[text]):
            user_files.load_files(count)


def test_a_pipe_that_nobody_writes_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    monkeypatch.setenv("MPICOLL_LOAD", str(tmp_path / "pipe.py"))
    with pytest.raises(BadFile, match="nobody writes this pipe"):
        user_files.load_files(count)


def test_a_regular_file_without_an_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPICOLL_LOAD", "/proc/self/pagemap")
    with pytest.raises(BadFile, match="it has more than 16 MiB"):
        user_files.load_files(count)


def test_a_file_name_with_a_separator_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a:b.py").write_text("")
    process = python("-m", "mpicoll.explain", "--load", str(tmp_path / "a:b.py"))
    assert process.returncode == 2
    assert "has a :, which separates files in MPICOLL_LOAD" in process.stdout


@pytest.mark.usefixtures("registered")
def test_an_installed_package_registers_its_algorithms(
    ladder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = ladder.parent / "addon-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: addon\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[mpicoll.algorithms]\naddon = mine\n")
    monkeypatch.syspath_prepend(str(ladder.parent))
    with pytest.raises(UnknownName):
        find("broadcast", "ladder")
    registry._load_installed.cache_clear()
    assert str(find("broadcast", "ladder")) == "ladder"


@pytest.mark.usefixtures("registered")
def test_a_module_registers_its_algorithm_again() -> None:
    """As a cell of a notebook that runs twice does."""
    for _time in range(2):

        @algorithm("all_reduce")
        def repeated(rank: int, size: int):  # type: ignore[no-untyped-def]
            yield ()

    assert find("allreduce", "repeated").generator is repeated
    with pytest.raises(ArgumentError, match="already has an algorithm 'ring'"):
        algorithm("allreduce", name="ring")(repeated)
