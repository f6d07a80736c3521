"""The doctor's page: complete, and without a failure where parts are missing."""

from __future__ import annotations

import pytest
from launcher import python, ranks

from mpicoll.doctor.mpi_probes import MPI_PROBES
from mpicoll.doctor.probes import PROBES, ask, copies


@pytest.fixture(scope="module")
def page() -> str:
    process = python("-m", "mpicoll.doctor")
    assert process.returncode == 0, process.stdout
    return process.stdout


@pytest.mark.parametrize("name", [*PROBES, *MPI_PROBES])
def test_every_line_is_on_the_page(page: str, name: str) -> None:
    assert f"\n{name} " in page


def test_missing_packages_are_reported() -> None:
    process = python(
        "-c",
        "import sys; sys.modules['torch'] = sys.modules['mpi4py'] = None\n"
        "from mpicoll.doctor.__main__ import main; main()",
    )
    assert process.returncode == 0, process.stdout
    assert "no: ModuleNotFoundError" in process.stdout


@pytest.mark.launches
def test_only_the_first_rank_prints() -> None:
    process = ranks(2, "-m", "mpicoll.doctor")
    assert process.returncode == 0, process.stdout
    assert process.stdout.count("mpicoll doctor") == 1
    assert "2, started by" in process.stdout


def test_a_failing_probe_is_an_answer() -> None:
    def fail() -> str:
        raise RuntimeError("the cable is loose\nand more")

    assert ask(fail) == "no: RuntimeError: the cable is loose"


ZEN = "vendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9354\nflags\t\t: fpu erms fsrm sse2\n"
XEON = "vendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t\t: fpu erms fsrm\n"


@pytest.mark.parametrize(
    ("processors", "tunables", "is_exposed"),
    [
        (ZEN, "glibc.cpu.x86_rep_movsb_threshold: 0x840 (min: 0x200, max: 0xff)\n", True),
        (ZEN, "glibc.cpu.x86_rep_movsb_threshold: 0x3b9aca00 (min: 0x200)\n", False),
        (ZEN, "", True),
        (ZEN.replace("erms fsrm ", ""), "x86_rep_movsb_threshold: 0x840\n", False),
        (XEON, "x86_rep_movsb_threshold: 0x840\n", False),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", "", False),
    ],
)
def test_processors_whose_library_copies_may_be_slow(
    processors: str, tunables: str, is_exposed: bool
) -> None:
    answer = copies(processors, tunables, "2.36")
    assert "glibc 2.36 on" in answer
    assert answer.startswith("no: ") == ("GLIBC_TUNABLES=" in answer) == is_exposed


def test_shared_memory_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpicoll.doctor.probes.SHM", "/nowhere")
    assert "you may not write in /nowhere" in ask(PROBES["shared memory"])
