"""Links of emulated hosts: a slow one is named while the job runs, and equal ones are not."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from launcher import LIMIT, ROOT

from mpicoll.hosts.emulation import Hosts, missing
from mpicoll.verdict.judging import Verdict, judge
from mpicoll.verdict.watching import watch

WHY = missing()
pytestmark = [
    pytest.mark.launches,
    pytest.mark.skipif(WHY is not None, reason=f"no emulated hosts: {WHY}"),
]
RATE, SECONDS = 100, 5.0
"""Mbit/s of a link, so that the network is the limit, and for how long a job is watched."""
EXCHANGE = """
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
values = np.ones((world.size, 16000))
while True:
    world.Alltoall(values, values.copy())
"""


def verdict_of(hosts: Hosts, folder: Path) -> Verdict:
    """Return the verdict on a job on all hosts, which is killed afterwards."""
    program, flight = folder / "exchange.py", folder / "flight"
    program.write_text(EXCHANGE)
    with subprocess.Popen(
        hosts.command(["-m", "mpicoll.run", str(program)]), start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, **hosts.environment(), "MPICOLL_FLIGHT_DIR": str(flight),
             "PYTHONPATH": str(ROOT)},
    ) as launch:  # fmt: skip
        try:
            until = time.monotonic() + LIMIT
            while len([*flight.glob("*.flight")]) < hosts.count and time.monotonic() < until:
                time.sleep(0.1)
            return judge(watch(flight, SECONDS)[0])
        finally:
            for path in flight.glob("*.flight"):
                with suppress(ProcessLookupError):
                    os.kill(int(path.name.split(".")[2]), signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.killpg(launch.pid, signal.SIGKILL)


@pytest.mark.parametrize(("count", "share", "host"), [(3, 0.2, "host1"), (3, 1, ""), (2, 0.1, "")])
def test_a_slow_link_is_named(count: int, share: float, host: str, tmp_path: Path) -> None:
    """By its host among three, and as a full one between two; a busy machine can hide it."""
    wanted = [] if share == 1 else [host]
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with Hosts(count, f"{RATE}mbit") as hosts:
            hosts.limit(1, f"{RATE * share:g}mbit")
            verdict = verdict_of(hosts, folder)
        slow = [finding.host for finding in verdict.findings if finding.link[0]]
        assert slow in ([], wanted)
        if slow == wanted:
            return
    raise AssertionError(f"not named in three jobs: {verdict.findings}")
