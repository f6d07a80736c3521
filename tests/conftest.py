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
import shutil
import signal
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import launcher
import pytest
from kept import KeptRanks
from layouts import FEW, MORE, Layout

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
    from hypothesis import find, settings, strategies

    # How long an example takes says more of what else runs here than of the code.
    settings.register_profile("shared machine", deadline=None)
    settings.register_profile("quick", deadline=None, max_examples=20)
    settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)
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
    if layout.library == "torch":
        pytest.importorskip("torch")
    make = importlib.import_module("torchcoll" if layout.library == "torch" else "mpicoll").threads
    return KeptRanks(make(layout.size, ranks_per_node=layout.per_node or None, deadline=_DEADLINE))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Prepare what a test needs before its fixtures.

    A kept group is made before the test changes the environment, as other tests run on it later.
    """
    launcher.may_launch = bool(LAUNCHED) or _may_launch(item)
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
    "test_backend.py", "test_chaos.py", "test_page.py", "test_sanitizers.py",
    "test_order.py", "test_shared_memory.py", "test_notes.py",
)  # fmt: skip
"""Modules that take longest: where others run beside them, they begin first."""
MARKED_FIXTURES = {"browser", "slurm"}
"""Fixtures whose tests carry a marker of the same name."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Spare each worker that runs launches the collection of modules that start none."""
    is_module = fnmatch(collection_path.name, "test_*.py")
    launches = config.option.markexpr == "launches or slurm"
    return True if launches and is_module and not _has_launches(collection_path) else None


def _has_launches(path: Path) -> bool:
    text = path.read_text()
    return "pytest.mark.launches" in text or "pytest.mark.slurm" in text


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Group and order the tests, and leave out those of the other kind of ranks.

    Tests that share launches by a fixture of their module stay on one worker.
    """
    for item in items:
        if LAUNCHED:
            item.add_marker("mpi")
        elif isinstance(item, pytest.Function):
            _check_marks(item)
            if _may_launch(item) and _shares_fixtures(item):
                item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    if not LAUNCHED:
        items.sort(key=lambda item: item.path.name not in LONG)
    other = "threads_only" if LAUNCHED else "launch_only"
    deselected = [item for item in items if item.get_closest_marker(other)]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if not item.get_closest_marker(other)]


def _check_marks(item: pytest.Function) -> None:
    for name in MARKED_FIXTURES.intersection(item.fixturenames):
        if not item.get_closest_marker(name):
            raise pytest.UsageError(f"{item.nodeid} takes {name}: mark it by pytest.mark.{name}")


def _may_launch(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("launches", "slurm"))


def _shares_fixtures(item: pytest.Function) -> bool:
    definitions = chain.from_iterable(item._fixtureinfo.name2fixturedefs.values())
    return any(definition.scope == "module" for definition in definitions)


def pytest_collection_finish() -> None:
    """Spare the garbage collector what was collected."""
    if not LAUNCHED:
        # Hypothesis warns if the collector does not see the owner of its random numbers.
        # From Python 3.14 on, freezing hides that owner, unless the numbers exist before.
        find(strategies.none(), lambda _: True)
    gc.freeze()
    gc.enable()


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
