"""Programs that run beside others in one launch: those do not take part in exchanges of ours."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from launcher import mpirun, python

pytestmark = pytest.mark.launches

PARTNER = """
import numpy as np
from mpi4py import MPI

comm, out = MPI.COMM_WORLD, np.zeros(1)
part = comm.Split(comm.Get_attr(MPI.APPNUM))
for _ in range(20):
    for each in (comm, part):
        each.Allreduce(np.ones(1), out)
        assert out == each.size
        assert each.allreduce(1) == each.size
"""
PROGRAM = (
    PARTNER
    + """
from mpicoll.mpi.communicator import state

served = [state.find_state(each).server for each in (comm, part)]
world, parts = (each is not None for each in served)
print(end=f"rank {comm.rank} serves {world} {parts}\\n", flush=True)
"""
)


@pytest.fixture
def programs(tmp_path: Path) -> tuple[str, str]:
    """The paths of a program of mpi4py, and of one that tells what is ours."""
    (partner := tmp_path / "partner.py").write_text(PARTNER)
    (program := tmp_path / "program.py").write_text(PROGRAM)
    return str(partner), str(program)


def test_a_program_beside_another_leaves_their_communicator_to_mpi(
    programs: tuple[str, str],
) -> None:
    partner, program = programs
    launcher = mpirun()
    assert launcher is not None
    prefix = (launcher, "-n", "1", sys.executable, partner, ":", "-n", "2")
    process = python("-m", "mpicoll.run", program, prefix=prefix)
    assert process.returncode == 0, process.stdout
    assert [f"rank {rank} serves False True" in process.stdout for rank in (1, 2)] == [True, True]
    reason = "rank 0 of MPI_COMM_WORLD does not run mpicoll.run"
    assert process.stdout.count(reason) == 1, process.stdout


def test_two_programs_of_ours_serve_their_communicator(programs: tuple[str, str]) -> None:
    _, program = programs
    launcher = mpirun()
    assert launcher is not None
    command = (sys.executable, "-m", "mpicoll.run", program)
    prefix = (launcher, "-n", "2", *command, ":", "-n", "2")
    process = python("-m", "mpicoll.run", program, prefix=prefix)
    assert process.returncode == 0, process.stdout
    assert process.stdout.count("serves True True") == 4, process.stdout
