"""Start the tests of ``tests/on_ranks`` on real ranks, one launch per number and backend.

Rank 0 is_root for all; a failing rank ends the launch and shows what failed, a hanging
one ends by timeout with every rank's stacks.
"""

from __future__ import annotations

import os
import re
from itertools import chain
from pathlib import Path

import pytest
from launcher import ranks

COUNTS = [int(number) for number in os.environ.get("MPICOLL_TEST_RANKS", "1,2,3,4,5").split(",")]
PYTEST = ("-m", "pytest", "--with-mpi", "-m", "mpi", "-x", "-q", "-p", "no:hypothesispytest")
HERE = Path(__file__).parent
ALWAYS = ("bad_input", "plans", "gpu", "real_gpu")
ALSO = {
    ("mpi4py", 1): ("collectives", "symmetric"),
    ("mpi4py", 2): ("dtypes_and_operators", "layouts", "symmetric", "run_time_check"),
    ("mpi4py", 3): ("run_time_check",),
    ("mpi4py", 4): ("collectives", "symmetric", "run_time_check"),
    ("mpi4py", 5): ("collectives",),
    ("torch", 1): ("collectives", "symmetric"),
    ("torch", 2): ("dtypes_and_operators", "layouts", "symmetric"),
    ("torch", 3): ("collectives", "run_time_check"),
    ("torch", 4): (),
}
"""The modules of each launch: every schedule and plan on a few numbers of ranks, of every kind."""
LAUNCHES = [(count, backend) for backend, count in ALSO if count in COUNTS]


def modules(count: int, backend: str) -> list[str]:
    """Return the files of tests that a launch runs."""
    return [str(HERE / "on_ranks" / f"test_{name}.py") for name in (*ALWAYS, *ALSO[backend, count])]


def test_every_module_is_launched() -> None:
    found = {path.stem.removeprefix("test_") for path in (HERE / "on_ranks").glob("test_*.py")}
    assert found == {*ALWAYS, *chain.from_iterable(ALSO.values())}


def limits(seconds: int) -> tuple[str, ...]:
    """Return the options that end a hang: all ranks' stacks first, then the end.

    A rank that waits inside MPI or gloo runs no Python, so a signal handler never gets its
    turn: only threads can speak. The first rank to leave takes the others with it, so each
    shows its stacks earlier than any of them ends.
    """
    stacks = max(1, seconds - 3)
    return f"--timeout={seconds}", "--timeout-method=thread", "-o", f"faulthandler_timeout={stacks}"


@pytest.mark.parametrize(("count", "backend"), LAUNCHES)
def test_on_ranks(count: int, backend: str) -> None:
    done = ranks(
        count, *PYTEST, *limits(120), "-o", "addopts=--strict-markers", *modules(count, backend),
        timeout=560, environment={"MPICOLL_TEST_BACKEND": backend},
    )  # fmt: skip
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stdout[-20000:]
    assert len(re.findall(r"\d+ passed", done.stdout)) == count


FEW = ("-k", "every_schedule or random")
"""Those tests of shared memory that run every schedule once, and many of them in succession."""


@pytest.mark.parametrize(
    ("backend", "count", "environment", "chosen"),
    [
        pytest.param("mpi4py", 4, {"MPICOLL_RANKS_PER_NODE": "2"}, (), id="mpi4py-two nodes"),
        pytest.param("mpi4py", 3, {"MPICOLL_RANKS_PER_NODE": "2"}, FEW, id="mpi4py-uneven nodes"),
        pytest.param("torch", 3, {"MPICOLL_RANKS_PER_NODE": "2"}, FEW, id="torch-uneven nodes"),
        *(
            pytest.param(backend, 2, {name: value}, FEW, id=f"{backend}-{name}={value}")
            for backend in ("mpi4py", "torch")
            for name, value in (("MPICOLL_FENCES", "always"), ("MPICOLL_SYMMETRIC", "0"))
        ),
    ],
)
def test_shared_memory_elsewhere(
    backend: str, count: int, environment: dict[str, str], chosen: tuple[str, ...]
) -> None:
    """Ranks of several nodes, of which only some share memory; weakly ordered memory; none."""
    done = ranks(
        count, *PYTEST, *limits(120), "-o", "addopts=--strict-markers",
        str(HERE / "on_ranks" / "test_symmetric.py"), *chosen, timeout=300,
        environment={"MPICOLL_TEST_BACKEND": backend, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20000:]
    assert len(re.findall(r"\d+ passed", done.stdout)) == count


@pytest.mark.parametrize(
    ("planted", "shown"),
    [
        ("fail", "planted failure on the last rank"),
        ("hang", "in test_planted"),
        ("deadlock", "in test_planted"),
        ("exit", ""),
    ],
)
def test_a_bad_rank_fails_the_launch(planted: str, shown: str, tmp_path: Path) -> None:
    """The last of two ranks fails, hangs or dies: the launch ends, fails and shows why."""
    module = tmp_path / "test_planted.py"
    module.write_text(PLANTED)
    done = ranks(
        2, *PYTEST, *limits(6), "-c", os.devnull, "--rootdir", str(tmp_path),
        "--confcutdir", str(HERE), "-p", "conftest", str(module), timeout=60,
        environment={"PLANTED": planted, "PYTHONPATH": f"{HERE}:{HERE / 'support'}:{HERE.parent}"},
    )  # fmt: skip
    assert done.returncode != 0
    assert "killed after" not in done.stdout
    assert shown in done.stdout
    if planted in ("hang", "deadlock"):
        assert done.stdout.count("Timeout (0:00:03)!") == 2, "both ranks show their stacks"


PLANTED = """
import os
import time
import pytest

@pytest.mark.mpi
def test_planted(c):
    if c.rank == c.size - 1:
        if os.environ["PLANTED"] == "exit":
            os._exit(3)
        if os.environ["PLANTED"] == "hang":
            time.sleep(1000)
        if os.environ["PLANTED"] == "deadlock":
            c.recv(c.transport.arrays.empty((4,), "int32"), 0)
        assert False, "planted failure on the last rank"
    c.barrier()
"""
