"""The group of ranks that tests under a launcher share, and what happens when one hangs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mpicoll import Collectives

BACKEND = "MPICOLL_TEST_BACKEND"


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
