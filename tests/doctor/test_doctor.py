"""The doctor's page: complete, and without a failure where parts are missing."""

from __future__ import annotations

import pytest
from launcher import python, ranks

from mpicoll.doctor.mpi_probes import MPI_PROBES
from mpicoll.doctor.probes import PROBES, ask


@pytest.fixture(scope="module")
def page() -> str:
    done = python("-m", "mpicoll.doctor", timeout=60)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("name", [*PROBES, *MPI_PROBES])
def test_every_line_is_on_the_page(page: str, name: str) -> None:
    assert f"\n{name} " in page


def test_missing_packages_are_reported() -> None:
    done = python(
        "-c",
        "import sys; sys.modules['torch'] = sys.modules['mpi4py'] = None\n"
        "from mpicoll.doctor.__main__ import main; main()",
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    assert "no: ModuleNotFoundError" in done.stdout


def test_only_the_first_rank_prints() -> None:
    done = ranks(2, "-m", "mpicoll.doctor", timeout=60)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("mpicoll doctor") == 1
    assert "2, started by" in done.stdout


def test_a_failing_probe_is_an_answer() -> None:
    def broken() -> str:
        raise RuntimeError("the cable is loose\nand more")

    assert ask(broken) == "no: RuntimeError: the cable is loose"
