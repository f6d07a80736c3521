"""A blocking call of MPI's own does not outlast the deadline: its process ends, and says why."""

from __future__ import annotations

from pathlib import Path

import pytest
from launcher import mpirun, ranks

PROGRAM = """
import time
import numpy as np
import mpicoll

def elsewhere():
    time.sleep(100)

with mpicoll.world() as c:
    x = np.ones(8)
    plan = c.plan("allreduce", x, algorithm="native")
    for step in range(50):
        plan.run()
        time.sleep(0.05)
    elsewhere() if c.rank == 1 else plan.run()
"""


@pytest.mark.launches
def test_a_process_that_waits_in_mpi_ends(tmp_path: Path) -> None:
    if mpirun() is None:
        pytest.skip("no mpirun")
    where = {"MPICOLL_DEADLINE": "5", "MPICOLL_FLIGHT_DIR": str(tmp_path)}
    done = ranks(2, "-c", PROGRAM, timeout=60, environment=where)
    assert done.returncode not in (0, -9), done.stdout
    assert "MPI's own allreduce cannot be left, so this process ends" in done.stdout
    assert "rank 0 waits for" in done.stdout
    assert "Rank 1 keeps the others waiting." in done.stdout
    assert "in elsewhere" in done.stdout
