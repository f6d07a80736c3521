"""Launch a job, judge it while it runs or once it is killed, and compare the answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import planted_jobs as planted
import psutil
from launcher import QUIRKS, ROOT, free_port, mpirun
from planted_answers import PROGRAM, Answer, lines_of, read

_NEIGHBOUR = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(9999))"
"""It ends with the command, also where that is killed."""
_START, _LIMIT = 30.0, 240.0
"""Seconds in which the first calls must come, and those after which a command is given up."""
_BEFORE_KILL = 2.5
_NO_RANK = (planted.BARRIER, planted.TURNS, planted.OBJECTS, planted.MISMATCH)
_NO_SINGLE_RANK = ("wrong_order", "missing_message", "two_sends")
_NO_LINE = (planted.CORE, planted.STOPPED, planted.TURNS)


class Result(NamedTuple):
    """The answer to one job, and what is right of it; None where nothing is asked."""

    job: planted.Job
    answer: Answer
    kind: bool
    place: bool | None
    line: bool | None


def judged(job: planted.Job, folder: Path, seconds: float, tree: Path = ROOT) -> Result:
    """Return the result of one job.

    Args:
        folder: an empty one.
        seconds: for which a running job is watched.
        tree: the project that runs and judges it.
    """
    flight = folder / "flight"
    environment = {
        **os.environ, **QUIRKS, "MPICOLL_FLIGHT_DIR": str(flight), "SCRATCH": str(folder),
        "PYTHONPATH": str(tree), "COLUMNS": "1000",
    }  # fmt: skip
    with ExitStack() as stack:
        if job.has_neighbour:
            neighbour = subprocess.Popen([sys.executable, "-c", _NEIGHBOUR])
            stack.callback(neighbour.wait)
            stack.callback(neighbour.kill)
        errors = stack.enter_context(open(folder / "errors", "wb"))
        launch = subprocess.Popen(
            _command(job), env=environment, cwd=folder, stdin=subprocess.DEVNULL,
            stdout=errors, stderr=errors, start_new_session=True,
        )  # fmt: skip
        stack.callback(_end, launch, flight)
        _wait_for_calls(job, launch, flight)
        if job.way == "doctor":
            text = _report(["mpicoll.doctor", "--job", str(flight), "--seconds", str(seconds)],
                           environment)  # fmt: skip
        else:
            time.sleep(_BEFORE_KILL)
            _end(launch, flight)
            text = _report(["mpicoll.postmortem", str(flight)], environment)
    (folder / "report").write_text(text)
    return _compared(job, read(text))


def _command(job: planted.Job) -> list[str]:
    program = [str(PROGRAM), job.function, str(job.victim), str(job.ms), str(job.every)]
    if job.backend == "torch":
        return [
            sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={job.ranks}",
            f"--master-port={free_port()}", "-m", "torchcoll.run", *program,
        ]  # fmt: skip
    return [str(mpirun()), "-n", str(job.ranks), sys.executable, "-m", "mpicoll.run", *program]


def _wait_for_calls(job: planted.Job, launch: subprocess.Popen[bytes], flight: Path) -> None:
    until = time.monotonic() + _START
    while time.monotonic() < until and launch.poll() is None:
        if len([*flight.glob("*.flight")]) >= job.ranks:
            break
        time.sleep(0.1)
    time.sleep(4.0 if job.kind in (planted.IDLE, planted.HANG) else 1.0)


def _report(command: list[str], environment: dict[str, str]) -> str:
    process = subprocess.run(
        [sys.executable, "-m", *command], env=environment, cwd=environment["SCRATCH"],
        capture_output=True, text=True, timeout=_LIMIT, check=False,
    )  # fmt: skip
    return process.stdout or process.stderr


def _end(launch: subprocess.Popen[bytes], flight: Path) -> None:
    """Kill all processes of a launch, its ranks first; those of torchrun are in other groups."""
    processes = [int(path.name.split(".")[2]) for path in flight.glob("*.flight")]
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(launch.pid).children(recursive=True)
        processes += [child.pid for child in children if child.pid not in processes]
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(launch.pid, signal.SIGKILL)
    launch.wait()
    until = time.monotonic() + 10
    while any(Path(f"/proc/{process}").exists() for process in processes):
        if time.monotonic() > until:
            break
        time.sleep(0.02)


def _compared(job: planted.Job, answer: Answer) -> Result:
    if job.is_healthy:
        harmless = (planted.NOBODY, planted.MOVEMENT, planted.OBJECTS, planted.IDLE)
        is_right = answer.kind == job.kind or (
            job.kind in (planted.NOBODY, planted.MOVEMENT) and answer.kind in harmless
        )
        return Result(job, answer, is_right, None, None)
    has_rank = job.kind not in _NO_RANK and job.function not in _NO_SINGLE_RANK
    has_line = job.kind not in _NO_LINE
    return Result(
        job, answer, answer.kind == job.kind,
        answer.ranks == str(job.victim) if has_rank else None,
        bool(lines_of(job.function) & answer.lines) if has_line else None,
    )  # fmt: skip
