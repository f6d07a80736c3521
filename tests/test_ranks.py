"""Start tests on real ranks, one launch per number of ranks and backend.

Those of ``tests/on_ranks`` run nowhere else; the others run on threads, too, and most of their
cases there alone. A failing rank ends the launch and shows what failed, a hanging one ends by
timeout with every rank's stacks.
"""

from __future__ import annotations

import os
import re
from itertools import chain
from pathlib import Path

import launcher
import pytest
from launcher import LIMIT, check_ending, python, ranks

COUNTS = [int(number) for number in os.environ.get("MPICOLL_TEST_RANKS", "1,2,3").split(",")]
"""Numbers of ranks; `.ci/run` launches 4 ranks under Open MPI, and threads have more."""
PYTEST = ("-m", "pytest", "--with-mpi", "-x", "-q", "-p", "no:hypothesispytest")
HERE = Path(__file__).parent
EVERY, DTYPES, PLANS = "test_collectives", "test_dtypes_and_operators", "engine/test_plan"
ARGUMENTS, SHARED = "calls/test_arguments", "engine/test_shared_memory"
LAYOUTS, ENVIRONMENT = "on_ranks/test_layouts", "on_ranks/test_environment"
LEAVING, ENDINGS = "memory/test_notes", "engine/test_endings"
DIFFERENT, KNOWN = "calls/test_agreement", "calls/test_method_calls"
CACHED, WITHOUT_PLANS = "calls/test_plan_cache", "on_ranks/test_channel_calls"
COMMUNICATOR = tuple(
    f"on_ranks/communicator/test_{name}"
    for name in (
        "calls", "channels", "classes", "state", "in_order", "recording", "buffers", "lengths"
    )
)  # fmt: skip
LEVELS, NAMED = (f"on_ranks/communicator/test_{name}" for name in ("levels", "named"))
OBJECTS = "on_ranks/communicator/test_objects"
JOINED = "test_nccl_joins_nodes_whose_ranks_read_each_others_gpus"
GPU, NCCL = "on_ranks/gpu", "on_ranks/test_nccl"
AWARE, NATIVE_NCCL = "on_ranks/test_gpu_aware_mpi", "on_ranks/test_native_nccl"
SYMMETRIC, STARTED = "on_ranks/test_symmetric", "on_ranks/test_started_messages"
WAITS = "on_ranks/test_code_in_waits"
EVERY_WAY = f"{SHARED}.py::test_every_schedule_over_every_transport"
RANDOM = f"{SHARED}.py::test_many_random_collectives"
LAUNCHES = {
    ("mpi4py", 1): (PLANS, EVERY, GPU),
    ("mpi4py", 2): (
        PLANS,
        EVERY,
        ARGUMENTS,
        DTYPES,
        LAYOUTS,
        SHARED,
        *COMMUNICATOR,
        KNOWN,
        WITHOUT_PLANS,
        NAMED,
    ),
    ("mpi4py", 3): (
        PLANS,
        EVERY,
        *COMMUNICATOR,
        OBJECTS,
        LEAVING,
        ENDINGS,
        DIFFERENT,
        GPU,
        AWARE,
        NATIVE_NCCL,
        STARTED,
        ENVIRONMENT,
        WAITS,
        LEVELS,
    ),
    ("mpi4py", 4): (PLANS, EVERY, ARGUMENTS, RANDOM, LEVELS, NAMED, OBJECTS),
    ("torch", 1): (EVERY,),
    ("torch", 2): (
        WITHOUT_PLANS,
        DTYPES,
        LAYOUTS,
        SHARED,
        LEAVING,
        ENDINGS,
        DIFFERENT,
        GPU,
        SYMMETRIC,
        ENVIRONMENT,
        WAITS,
    ),
    ("torch", 3): (PLANS, EVERY, ARGUMENTS, NCCL, STARTED, KNOWN),
}
"""The tests of each launch; those that need no other processes run as threads on more ranks."""
ONE_BY_ONE = pytest.mark.xdist_group("ranks")
"""Launches beside each other wait for cores all the time: three take three times as long each."""


OWN_PATH = {"PYTHONPATH": f"{HERE}:{HERE / 'support'}:{HERE.parent}"}


def apart(module: Path) -> tuple[str, ...]:
    """Return the arguments of pytest for a module elsewhere, under our `conftest`."""
    options = "-c", os.devnull, "--rootdir", str(module.parent), "--confcutdir", str(HERE)
    return *options, "-p", "conftest", str(module)


def paths(*tests: str) -> list[str]:
    """Return the arguments of pytest for folders, modules and single tests."""
    names = (test if ".py" in test or (HERE / test).is_dir() else f"{test}.py" for test in tests)
    return [str(HERE / name) for name in names]


def test_every_module_is_launched() -> None:
    """All that run on real ranks alone, and all that exist."""
    tests = chain.from_iterable(LAUNCHES.values())
    launched = {Path(test.partition("::")[0]) for test in paths(*tests)}
    modules = (HERE / "on_ranks").rglob("test_*.py")
    assert all(launched.intersection((module, *module.parents)) for module in modules)
    assert all(path.exists() for path in launched)


def test_what_starts_ranks_for_a_module_starts_them_once(tmp_path: Path) -> None:
    """Two workers would start them twice, and nothing but the time would tell."""
    module = tmp_path / "test_shared.py"
    module.write_text(SHARED_BY_TESTS)
    done = python(
        *PYTEST[:2], "-q", *apart(module), "-n", "2", "--dist", "loadgroup",
        "-o", "markers=launches", environment=OWN_PATH,
    )  # fmt: skip
    assert "4 passed" in done.stdout
    assert len(list(tmp_path.glob("started-*"))) == 1


def test_a_fault_behind_status_0_fails_the_launch() -> None:
    with pytest.raises(AssertionError, match="Exception ignored"):
        python("-c", "class Late:\n  def __del__(self): 1 / 0\nLate()")


def test_an_unmarked_test_starts_no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that run launches collect marked tests alone."""
    monkeypatch.setattr(launcher, "may_launch", False)
    with pytest.raises(AssertionError, match=r"mark it by pytest\.mark\.launches"):
        ranks(1, "-c", "")


SHARED_BY_TESTS = """
import os
from pathlib import Path

import pytest

@pytest.fixture(scope="module")
def started():
    Path(__file__).with_name(f"started-{os.getpid()}").touch()

@pytest.mark.launches
@pytest.mark.parametrize("number", range(4))
def test_shared(started, number):
    pass
"""


def limits(seconds: int) -> tuple[str, ...]:
    """Return the options that end a hang: all ranks' stacks first, then the end.

    A rank that waits inside MPI or gloo runs no Python, so a signal handler never gets its
    turn: only threads can speak. The first rank to leave takes the others with it, so each
    shows its stacks earlier than any of them ends.
    """
    stacks = seconds // 3
    return f"--timeout={seconds}", "--timeout-method=thread", "-o", f"faulthandler_timeout={stacks}"


def launched(
    count: int, folder: Path, *arguments: str, timeout: float, environment: dict[str, str]
) -> tuple[int, str]:
    """Run pytest on ranks; return the launch's status, and what it and every rank printed.

    Each rank writes to a file of its own: of what a launcher passes on it may lose the end. And
    into a folder of its own: pytest's common one is cleaned by all at their end, at the same time.
    """
    into = f'exec "$0" "$@" --basetemp="{folder}/$$" >"{folder}/$$.txt" 2>&1'
    done = ranks(
        count, *PYTEST, *arguments, timeout=timeout, through=("sh", "-c", into),
        environment={"PYTHONUNBUFFERED": "1", **environment},
    )  # fmt: skip
    printed = [path.read_text(errors="replace") for path in sorted(folder.glob("*.txt"))]
    output = "\n".join([done.stdout, *printed])
    check_ending(done.returncode, output)
    return done.returncode, output


def passes(count: int, folder: Path, *modules: str, backend: str, **environment: str) -> None:
    """Assert that tests pass on every rank of a launch.

    Cross-memory attach reads addresses, whosever arrays lie there: one backend runs it, but for
    arrays that are dropped.
    """
    every = ("-k", "not cma or test_endings") if backend == "torch" else ()
    status, output = launched(
        count, folder, *limits(120), "-o", "addopts=--strict-markers", *every, *modules,
        timeout=560, environment={"MPICOLL_TEST_BACKEND": backend, **environment},
    )  # fmt: skip
    assert status == 0, output[-100000:]
    assert len(re.findall(r"\d+ passed", output)) == count, output[-100000:]
    print(output[-4000:])


@pytest.mark.launches
@ONE_BY_ONE
@pytest.mark.parametrize(
    ("count", "backend"), [(count, backend) for backend, count in LAUNCHES if count in COUNTS]
)
def test_on_ranks(count: int, backend: str, tmp_path: Path) -> None:
    """All but what the ranks on nodes below run."""
    rest = f"--deselect=tests/{EVERY_WAY}"
    passes(count, tmp_path, *paths(*LAUNCHES[backend, count]), rest, backend=backend)


@pytest.mark.launches
@ONE_BY_ONE
@pytest.mark.parametrize(
    "backend", [pytest.param(each, id=f"{each}-uneven_nodes") for each in ("mpi4py", "torch")]
)
def test_shared_memory_on_nodes(backend: str, tmp_path: Path) -> None:
    """Every schedule where two of three ranks share memory, and a few over torch.

    Threads have more. NCCL between them is torch's, and a fake. Methods are the same on both.
    """
    more = [KNOWN, CACHED] if backend == "mpi4py" else [f"{NCCL}.py::{JOINED}"]
    passes(
        3, tmp_path, *paths(EVERY_WAY, RANDOM, *more), backend=backend,
        MPICOLL_RANKS_PER_NODE="2",
    )  # fmt: skip


@pytest.mark.launches
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
    hangs = planted in ("hang", "deadlock")
    status, output = launched(
        2, tmp_path, *limits(15 if hangs else 60), *apart(module), timeout=LIMIT,
        environment={"PLANTED": planted, "MPICOLL_TEST_BACKEND": "mpi4py", **OWN_PATH},
    )  # fmt: skip
    assert status != 0
    assert "killed after" not in output
    assert shown in output
    if hangs:
        stacks = re.findall(r"Timeout \(0:00:05\)!.*?in test_planted", output, re.DOTALL)
        assert len(stacks) == 2, "both ranks show their stacks"


PLANTED = """
import os
import time

import pytest

@pytest.mark.timeout(0)
def test_start(c):
    c.barrier()  # MPI may take longer to start than the limit of the next test

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
