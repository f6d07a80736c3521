"""Planted causes in jobs of real ranks: named while they run, and after SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from launcher import LIMIT, QUIRKS, mpirun
from planted_causes import PROGRAM, Planted, launch

from mpicoll.doctor.__main__ import main as doctor
from mpicoll.flight.reader import read_all
from mpicoll.hosts.emulation import missing
from mpicoll.postmortem.__main__ import main as postmortem
from mpicoll.verdict.findings import Kind
from mpicoll.verdict.judging import judge

LINES = Path(PROGRAM).read_text().splitlines()
CALL = next(number for number, line in enumerate(LINES, 1) if "self.comm.Allreduce" in line)
REDUCE = next(number for number, line in enumerate(LINES, 1) if "self.dist.all_reduce" in line)
pytestmark = pytest.mark.launches


def wait_for_calls(directory: Path, calls: int) -> list[int]:
    """Return the processes of four ranks, once all have made so many calls."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        time.sleep(0.2)
        if len([*directory.glob("*.flight")]) == 4:
            dumps, _ = read_all(directory)
            if all(dump.entries and dump.entries[-1].number >= calls for dump in dumps):
                return [dump.process.pid for dump in dumps]
    raise AssertionError(f"the ranks have not made {calls} calls")


def wait_for_the_end(processes: list[int]) -> None:
    until = time.monotonic() + LIMIT
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_running_job_and_a_killed_job_have_one_verdict(tmp_path: Path) -> None:
    if mpirun() is None:
        pytest.skip("no mpirun")
    environment = {**os.environ, **QUIRKS, "MPICOLL_FLIGHT_DIR": str(tmp_path)}
    with open(tmp_path / "errors", "wb") as errors:
        job = subprocess.Popen(
            (str(mpirun()), "-n", "4", sys.executable, "-m", "mpicoll.run", PROGRAM,
             "work-20,barrier", "3", "100000"),
            env=environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
        )  # fmt: skip
    variables = {"COLUMNS": "400", "MPICOLL_FLIGHT_DIR": str(tmp_path)}
    try:
        processes = wait_for_calls(tmp_path, 60)
        live = CliRunner().invoke(doctor, ["--job", "--seconds", "1"], env=variables)
        assert job.poll() is None
        assert (tmp_path / "errors").read_bytes() == b""
        for process in processes:
            os.kill(process, signal.SIGKILL)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    wait_for_the_end(processes)
    page = tmp_path / "page.html"
    dead = CliRunner().invoke(postmortem, [str(tmp_path), "-o", str(page)], env=variables)
    for text in (live.output, dead.output, page.read_text()):
        assert "Rank 3 arrives" in text, text
        assert f"calls of allreduce at planted_program.py:{CALL}; it runs" in text
        assert "the program gives it more work." in text
        assert "The barrier at planted_program.py" in text
    assert "Between its calls rank 3 is most often at" in live.output
    assert "in compute: in" in live.output


def test_a_job_of_torch_has_a_verdict(tmp_path: Path) -> None:
    launch(Planted("uneven", 1, "torch"), tmp_path, 40)
    dumps, _ = read_all(tmp_path)
    finding = judge(dumps).findings[0]
    assert (finding.kind, finding.ranks) == (Kind.UNEVEN_DATA, (1,))
    files = {entry.location.file for dump in dumps for entry in dump.entries if entry.location}
    assert files == {PROGRAM}


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_slow_link_is_named(tmp_path: Path) -> None:
    launch(Planted("link-10", 2, "mpi"), tmp_path, 15)
    dumps, _ = read_all(tmp_path)
    finding = judge(dumps).findings[0]
    assert (finding.kind, finding.host) == (Kind.SLOW_LINK, "host2")
