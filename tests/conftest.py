"""The ranks that tests run on, and the markers that say what a test needs.

A test that takes `c`, the `Collectives` of a rank, runs on ranks that are threads of this
process, once for each of `layouts.FEW` and `MORE`. Under a launcher it runs on the ranks of the
launch instead (pytest-mpi), as `tests/test_ranks.py` starts it::

    mpirun -n 3 python -m pytest --with-mpi tests/test_collectives.py
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from kept import KeptRanks
from layouts import FEW, MORE, Layout
from reach import reaches

from mpicoll import Collectives

LAUNCHED = os.environ.get("MPICOLL_TEST_BACKEND", "mpi4py") if "--with-mpi" in sys.argv else None
"""In a launch: whose ranks these are, ``mpi4py`` or ``torch``."""
NOT_RECORDED = {"MPICOLL_FLIGHT": "0"}
_DEADLINE = float(os.environ.get("MPICOLL_TEST_DEADLINE", "60"))
# Workers of pytest-xdist have COLUMNS=80, whatever the output is.
os.environ.pop("COLUMNS", None)
# What a shell runs in the background ignores SIGINT, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()  # until all tests are collected: thousands of cases that stay to the end
if not LAUNCHED:  # which draws no examples
    from hypothesis import settings

    # How long an example takes says more of what else runs here than of the code.
    settings.register_profile("shared machine", deadline=None)
    settings.register_profile("quick", deadline=None, max_examples=20)
    settings.register_profile("repeatable", deadline=None, derandomize=True)
    settings.load_profile("shared machine")


# -- ranks ------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `c` on some layouts, and on `more` of them outside of ``.ci/quick``."""
    if "c" not in metafunc.fixturenames or LAUNCHED:
        return
    marker = metafunc.definition.get_closest_marker("ranks")
    few, more = (marker.args, marker.kwargs.get("more", ())) if marker else (FEW, MORE)
    found = [*map(_layout, few)]
    rest = [pytest.param(_layout(each), marks=pytest.mark.exhaustive) for each in more]
    metafunc.parametrize("c", [*found, *rest], indirect=True, scope="session", ids=str)


def _layout(given: Layout | int) -> Layout:
    return given if isinstance(given, Layout) else Layout(given)


@pytest.fixture(scope="session")
def c(request: pytest.FixtureRequest) -> Iterator[Collectives | KeptRanks]:
    """All ranks of this launch; without one, what runs a test on threads."""
    if not LAUNCHED:
        yield _threads(request.param)
        return
    if LAUNCHED == "torch":
        import torchcoll

        group = torchcoll.world()
    else:
        import mpicoll

        group = mpicoll.world()
    yield group
    if not request.session.testsfailed:  # a rank that fails alone must not wait for the others
        group.free()


@cache
def _threads(layout: Layout) -> KeptRanks:
    make = importlib.import_module("torchcoll" if layout.library == "torch" else "mpicoll").threads
    return KeptRanks(make(layout.size, ranks_per_node=layout.per_node or None, deadline=_DEADLINE))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Make a kept group before a test changes the environment, as others run on it later."""
    if LAUNCHED or not isinstance(item, pytest.Function) or "c" not in item.fixturenames:
        return
    if item.get_closest_marker("kept_group"):
        with patch.dict(os.environ, NOT_RECORDED):
            _threads(item.callspec.params["c"]).open()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call a test on every thread with its own `c`.

    They are of a new group, which costs more than most tests, unless one is marked `kept_group`.
    No calls are recorded: the flight recorder has tests of its own.
    """
    ranks = pyfuncitem.funcargs.get("c")
    if not isinstance(ranks, KeptRanks):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    with patch.dict(os.environ, NOT_RECORDED):
        run = ranks if pyfuncitem.get_closest_marker("kept_group") else ranks.threads
        run(lambda c: pyfuncitem.obj(**{**given, "c": c}))
    return True


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A rank that fails alone leaves the others waiting: end the whole launch at once."""
    if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.config.add_cleanup(_abort)


def _abort() -> None:
    if not LAUNCHED:
        return
    from mpi4py import MPI

    if MPI.COMM_WORLD.size > 1:
        MPI.COMM_WORLD.Abort(1)


# -- markers ----------------------------------------------------------------------------------


LONG = (
    "test_jobs.py", "test_ranks.py", "test_hosts.py", "test_run.py", "test_mpi4py_suite.py",
    "test_backend.py", "test_chaos.py", "test_report_page.py", "test_sanitizers.py",
    "test_explain_page.py", "test_order.py", "test_shared_memory.py", "test_leaving.py",
)  # fmt: skip
"""Modules that take longest: where others run beside them, they begin first."""
STARTS = ("ranks", "mpirun", "forked")
"""Functions that start ranks; tests that do it by themselves are marked."""
ALONE = (
    "test_a_run_that_is_killed_again_and_again_comes_to_its_end",
    "test_the_benchmark_runs_without_mpi4py",
    "test_the_example_of_torchcoll_runs_under_torchrun",
    "test_the_job_measures_and_prints_the_study",
    "test_torch_alone_needs_no_mpi",
)
"""Tests that run a whole benchmark, if on one rank only."""
SIGNS = re.compile(
    r"^from (launcher import .*\b(ranks|mpirun)\b|forked|joining|minislurm)|mark\.launches|MPIRUN|"
    + "|".join(ALONE),
    re.MULTILINE,
)
"""What a module has that starts ranks."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Spare each worker that runs launches the collection of modules that start none."""
    is_module = fnmatch(collection_path.name, "test_*.py")
    launches = config.option.markexpr == "launches or slurm"
    return True if launches and is_module and not _may_launch(collection_path) else None


@cache
def _may_launch(path: Path) -> bool:
    return bool(SIGNS.search(path.read_text()))


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by what it needs, and leave out what the other kind of ranks runs.

    Those that share what starts ranks for all tests of a module stay on one worker.
    """
    for item in items:
        for name in ["mpi"] if LAUNCHED else _needs(item):
            item.add_marker(name)
        if item.get_closest_marker("launches") or item.get_closest_marker("slurm"):
            fixtures = item._fixtureinfo.name2fixturedefs.values()
            if any(each.scope == "module" for found in fixtures for each in found):
                item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    if not LAUNCHED:
        items.sort(key=lambda item: item.path.name not in LONG)
    other = "threads_only" if LAUNCHED else "launch_only"
    left = [item for item in items if item.get_closest_marker(other)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker(other)]


def pytest_collection_finish() -> None:
    """Spare the garbage collector what was collected."""
    gc.freeze()
    gc.enable()


def _needs(item: pytest.Item) -> Iterator[str]:
    if not isinstance(item, pytest.Function):
        return
    yield from {"browser", "slurm"}.intersection(item.fixturenames)
    if item.originalname in ALONE or (_may_launch(item.path) and reaches(item, STARTS)):
        yield "launches"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A Chromium without a window; tests that need one are skipped where there is none."""
    driver = pytest.importorskip("playwright.sync_api", reason="needs playwright to drive chromium")
    names = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    found = next(filter(None, names), None)
    if found is None:
        pytest.skip("needs a chromium: apt-get install chromium")
    with driver.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()
