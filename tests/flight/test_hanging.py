"""A job in which one rank hangs elsewhere: looked at while it hangs, and after SIGKILL."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from itertools import chain
from pathlib import Path

import pytest
from click.testing import CliRunner
from launcher import LIMIT, QUIRKS, mpirun

from mpicoll.doctor.__main__ import main as doctor
from mpicoll.flight.reader import read_all
from mpicoll.postmortem.__main__ import main as postmortem

PROGRAM = Path(__file__).with_name("hanging.py")
LINES = PROGRAM.read_text().splitlines()
SLEEP = next(number for number, line in enumerate(LINES, 1) if "time.sleep" in line)
CALL = next(number for number, line in enumerate(LINES, 1) if "c.allreduce" in line)


def wait_until_stuck(place: Path) -> list[int]:
    """Return the processes, once two of three ranks are in their fifth call."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        time.sleep(0.05)
        if len(list(place.glob("*.flight"))) < 3:
            continue
        dumps, _ = read_all(place)
        if sorted(len(dump.entries) for dump in dumps) == [4, 5, 5]:
            return [dump.process.pid for dump in dumps]
    raise AssertionError("the ranks have not come so far")


def wait_until_gone(place: Path, *processes: int) -> None:
    """Return once these ranks do not run: the system ends a process some time after its signal."""
    until = time.monotonic() + LIMIT
    while any(dump.is_alive for dump in read_all(place)[0] if dump.process.pid in processes):
        assert time.monotonic() < until, "ranks have outlived SIGKILL"
        time.sleep(0.05)


def wait_until_said(path: Path, text: str) -> None:
    """Return once a file has a text."""
    until = time.monotonic() + LIMIT
    while text not in path.read_text():
        assert time.monotonic() < until, path.read_text()
        time.sleep(0.05)


def check_exports(place: Path) -> None:
    """Check what was exported of the dead job."""
    events = json.loads((place / "job.json").read_text())["traceEvents"]
    calls = Counter(event["pid"] for event in events if event.get("cat") == "call")
    assert calls == {0: 5, 1: 4, 2: 5}
    assert any(event["ph"] == "f" for event in events)
    metrics = (place / "job.prom").read_text()
    assert re.search(r'mpicoll_calls_total{run="[^"]+",rank="1",host="[^"]+"} 4.0', metrics)
    assert re.search(r'mpicoll_call_under_way{run="[^"]+",rank="2",host="[^"]+"} 1.0', metrics)


@pytest.mark.launches
def test_the_rank_the_call_and_the_line_are_named(tmp_path: Path) -> None:
    launcher = mpirun()
    if launcher is None:
        pytest.skip("no mpirun")
    environment = {**os.environ, **QUIRKS, "MPICOLL_FLIGHT_DIR": str(tmp_path)}
    error_file = tmp_path / "stderr"
    with error_file.open("wb") as file:
        job = subprocess.Popen(
            (launcher, "-n", "3", sys.executable, str(PROGRAM)), env=environment,
            stdout=subprocess.DEVNULL, stderr=file, start_new_session=True,
        )  # fmt: skip
    try:
        processes = wait_until_stuck(tmp_path)
        time.sleep(1.2)  # a call that has only begun is not stuck
        live = CliRunner().invoke(doctor, ["--job", str(tmp_path)], env={"COLUMNS": "400"})
        assert job.poll() is None
        os.kill(processes[0], signal.SIGUSR1)
        wait_until_said(error_file, "how it stands")
        os.kill(processes[2], signal.SIGTERM)
        wait_until_gone(tmp_path, processes[2])
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    wait_until_gone(tmp_path, *processes)
    printed = " ".join(error_file.read_text().split())
    assert printed.count("Rank 1 keeps the others waiting.") == 1
    assert printed.count(f"in elsewhere; it runs (process {processes[1]})") == 1
    exports = ("--export", "perfetto", "job.json"), ("--export", "prometheus", "job.prom")
    arguments = [str(tmp_path / part) if "." in part else part for part in chain(*exports)]
    dead = CliRunner().invoke(
        postmortem, [str(tmp_path), *arguments], env={"COLUMNS": "400"}
    )  # fmt: skip
    check_exports(tmp_path)
    for text in (live.output, dead.output):
        assert "Rank 1 keeps the others waiting." in text
        assert (
            "Call 5 of group world (3 ranks), allreduce of float32, up to 32, sum by slots" in text
        )
        assert f"Ranks 0,2 have come, from {PROGRAM}:{CALL} in <module>." in text
        assert f"its stack says {PROGRAM}:{SLEEP} in elsewhere" in text
    assert "Rank 1 has not come: it is in no call" in live.output
    assert "runs (process" in live.output
    assert "Rank 1 has not come: it was in no call" in dead.output
    assert "is gone (process" in dead.output
    by = f"was ended (process {processes[2]}) by SIGTERM, which process {os.getpid()} sent"
    assert by in dead.output
