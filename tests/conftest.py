"""The group of ranks that tests under a launcher share, and what happens when one hangs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest

from mpicoll import Collectives

BACKEND = "MPICOLL_TEST_BACKEND"
# How long an example takes says more of what else runs here than of the code.
hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")


@pytest.fixture(scope="session")
def c(request: pytest.FixtureRequest) -> Iterator[Collectives]:
    """All ranks of this launch, over the backend that ``MPICOLL_TEST_BACKEND`` names."""
    if os.environ.get(BACKEND) == "torch":
        import torchcoll

        group = torchcoll.world()
    else:
        import mpicoll

        group = mpicoll.world()
    yield group
    if not request.session.testsfailed:  # a rank that fails alone must not wait for the others
        group.free()


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


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A rank that fails alone leaves the others waiting: end the whole launch at once."""
    if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.config.add_cleanup(lambda: _abort(session))


def _abort(session: pytest.Session) -> None:
    if not session.config.getoption("--with-mpi", default=False):
        return
    from mpi4py import MPI

    if MPI.COMM_WORLD.size > 1:
        MPI.COMM_WORLD.Abort(1)
