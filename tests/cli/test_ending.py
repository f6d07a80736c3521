"""How a run ends: its words on standard error, its exit status, and whom it lets wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from forked import forked
from joining import by_hand
from launcher import LIMIT, ROOT, mpirun, ranks

from mpicoll.cli import ending
from mpicoll.cli.ending import reason
from mpicoll.errors import Deadlock, LaunchError, RankLost

COMMAND = """
import atexit, os, signal, sys, threading, click
from mpicoll.cli.command import Command, RanksCommand
from mpicoll.errors import ArgumentError, RankLost
@click.command(cls={kind})
def main():
    {body}
main()
"""
PLACE = f"rank 1 on {os.uname().nodename}: "


def run(body: str, kind: str = "Command", **environment: str) -> Any:
    """Run a command of this body."""
    return subprocess.run(
        [sys.executable, "-c", COMMAND.format(kind=kind, body=body)], cwd=ROOT, text=True,
        capture_output=True, timeout=LIMIT, check=False, env={**os.environ, **environment},
    )  # fmt: skip


EXPECTED = [
    ("raise ArgumentError('no such size')", "no such size", 2, 2),
    ("raise RankLost('rank 0 has ended')", "rank 0 has ended", 2, 1),
    ("raise MemoryError", "out of memory", 2, 1),
    ("open('/nowhere/x')", "/nowhere/x: No such file or directory", 2, 1),
    ("raise BrokenPipeError(32, 'Broken pipe')",
     "lost another rank: BrokenPipeError(32, 'Broken pipe')", 2, 1),
    ("import nothing_of_this_name",
     "No module named 'nothing_of_this_name': pip install 'mpicoll[reference]'", 2, 1),
    ("os.kill(os.getpid(), signal.SIGINT)", "interrupted", 130, 130),
    ("from mpicoll.cli import ending; ending.explain_interrupt('the same command goes on'); "
     "os.kill(os.getpid(), signal.SIGINT)", "interrupted: the same command goes on", 130, 130),
]  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize(("body", "text", "status", "on_ranks"), EXPECTED)
def test_a_failure_takes_one_line(body: str, text: str, status: int, on_ranks: int) -> None:
    process = run(body)
    assert (process.returncode, process.stderr.strip()) == (status, f"Error: {text}")
    process = run(body, "RanksCommand", RANK="1", WORLD_SIZE="2")
    assert (process.returncode, process.stderr.strip()) == (on_ranks, f"Error: {PLACE}{text}")


FAULTS = {
    "of ours": "1 / 0",
    "an end of input": "raise EOFError",
    "in a thread": "thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()",
    "at exit": "atexit.register(lambda: 1 / 0)",
    "behind a hook": "sys.excepthook = lambda *_: os._exit(0); 1 / 0",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["Command", "RanksCommand"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_ours_has_its_traceback(fault: str, kind: str) -> None:
    process = run(FAULTS[fault], kind, RANK="1", WORLD_SIZE="2")
    assert process.returncode in (1, 2)
    assert process.stderr.startswith(f"Error: {PLACE}failed\nTraceback (most recent call last):\n")
    assert process.stderr.count(PLACE) == 1


def test_what_was_printed_before_stays() -> None:
    process = run("print('text'); raise ArgumentError('no')")
    assert (process.returncode, process.stdout, process.stderr) == (2, "text\n", "Error: no\n")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (RuntimeError("[/pytorch/tcp/pair.cc:537] Read error [127.0.0.1]:13708: Connection reset "
                      "by peer. This is typical.\nmore"),
         "lost another rank: Read error [127.0.0.1]:13708: Connection reset by peer. This is "
         "typical."),
        (RuntimeError("can't start new thread"),
         "no more threads can be started: can't start new thread"),
        (OSError(12, "Cannot allocate memory"),
         "out of memory: [Errno 12] Cannot allocate memory"),
        (LaunchError("no group"), "no group"),
        (RankLost("rank 1"), "rank 1"),
        (click.Abort(), "interrupted"),
        (Deadlock("a wrong schedule"), "a wrong schedule"),
        (ImportError("cannot import name", name="mpicoll.bench"), None),
        (RuntimeError("anything"), None),
        (KeyError("key"), None),
    ],
)  # fmt: skip
def test_reason(error: BaseException, why: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_continuation", "")
    assert reason(error) == why


# -- ranks that wait for each other ---------------------------------------------------------

ON_RANKS = """
import os, signal, sys, click
from mpicoll.cli.command import RanksCommand
from mpicoll.cli.watchdog import Watchdog
from mpicoll.errors import ArgumentError
from mpicoll.measurement.worlds import ALL_BACKENDS, form_worlds
@click.command(cls=RanksCommand)
@click.argument("backend")
def main(backend):
    worlds, _ = form_worlds((backend,), None, ALL_BACKENDS, Watchdog(60))
    if worlds[backend].rank == 1:
        {fault}
    worlds[backend].allreduce(click.get_current_context().obj)
import numpy
main(obj=numpy.ones(4) if sys.argv[1] == "mpi4py" else __import__("torch").ones(4))
"""


@pytest.mark.launches
def test_a_survivor_says_whom_it_lost(tmp_path: Path) -> None:
    """Also over torch.distributed, which puts a hook of its own before the words."""
    pytest.importorskip("torch")
    script = tmp_path / "killed.py"
    script.write_text(ON_RANKS.format(fault="os.kill(os.getpid(), signal.SIGKILL)"))
    survivor, killed = by_hand(script, "torch", size=2)
    assert [survivor.returncode, killed.returncode] == [1, -signal.SIGKILL]
    (line,) = [
        line_of_error
        for line_of_error in survivor.output.splitlines()
        if line_of_error.startswith("Error: ")
    ]
    assert line.startswith(f"Error: rank 0 on {os.uname().nodename}: ") and "rank" in line[30:]
    assert "Traceback" not in survivor.output and killed.output == ""


def test_the_first_rank_names_itself_where_each_was_started_by_hand() -> None:
    """Nobody says that the others were given the same."""
    place = {"RANK": "0", "WORLD_SIZE": "2"}
    first_rank = run("raise ArgumentError('no such size')", "RanksCommand", **place)
    shared = run(
        "raise ArgumentError('no such size')", "RanksCommand", **place, TORCHELASTIC_RUN_ID="x"
    )
    assert first_rank.stderr == f"Error: {PLACE.replace('1', '0', 1)}no such size\n"
    assert shared.stderr == "Error: no such size\n"


@pytest.mark.launches
def test_what_refuses_all_ranks_is_printed_once(tmp_path: Path) -> None:
    """Without a launcher that would end the others before they print it, too."""
    pytest.importorskip("torch")
    body = """
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method="file://{0}", rank={1}, world_size=2)
    raise ArgumentError("no such file")
"""
    started = []
    for rank in range(2):
        (script := tmp_path / f"{rank}.py").write_text(
            COMMAND.format(kind="RanksCommand", body=body.strip().format(tmp_path / "store", rank))
        )
        place = {"RANK": str(rank), "WORLD_SIZE": "2"}
        started.append(forked(script, environment=place))
    outputs = [process.wait() for process in started]
    assert [process.returncode for process in started] == [2, 2]
    assert [output.count("no such file") for output in outputs] == [1, 0]


@pytest.mark.launches
@pytest.mark.skipif(mpirun() is None, reason="no mpirun here")
def test_a_rank_that_is_refused_alone_says_so(tmp_path: Path) -> None:
    """Neither does it leave the words to rank 0, nor does MPI wait for the others at exit."""
    script = tmp_path / "refused.py"
    script.write_text(ON_RANKS.format(fault="raise ArgumentError('nothing here')"))
    process = ranks(2, str(script), "mpi4py", environment={"PYTHONPATH": str(ROOT)})
    assert process.returncode != 0
    errors = [line for line in process.stdout.splitlines() if line.startswith("Error: ")]
    assert errors.count(f"Error: {PLACE}nothing here") == 1
    # On a busy machine rank 0 sees that rank 1 has ended before the launcher ends rank 0, too.
    assert all(PLACE in line or "waits for rank 1" in line for line in errors)


# -- SIGTERM --------------------------------------------------------------------------------

WAITS = {
    "python": "time.sleep(60)",
    "a library": "os.read(os.pipe()[0], 1)",
    "no library that goes on": "ctypes.CDLL(None).sleep(60)",
    "a loop": "[0 for _ in iter(int, 1)]",
    "a child": "child = os.fork() or time.sleep(60); time.sleep(0.2); os.kill(child, 15); "
               "print(os.waitpid(child, 0)[1], flush=True); time.sleep(60)",
}  # fmt: skip


def started(body: str, **environment: str) -> subprocess.Popen[str]:
    """Start a command of ranks of this body."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND.format(kind="RanksCommand", body=body)], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_sigterm_ends_a_process_after_one_line(wait: str) -> None:
    """Also one that waits in a library, and not one whose child it ends."""
    body = f"import ctypes, time; print('ready', flush=True); {wait}"
    # From 3.12 on, Python warns of a fork beside threads.
    quiet = "ignore::DeprecationWarning"
    with started(body, RANK="1", WORLD_SIZE="2", PYTHONWARNINGS=quiet) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        if "child" in wait:
            assert process.stdout.readline() == f"{int(signal.SIGTERM)}\n"
        process.terminate()
        _, words = process.communicate(timeout=LIMIT)
    assert process.returncode == -signal.SIGTERM
    assert words == f"Error: {PLACE}ended by SIGTERM, as by kill, a launcher or a time limit\n"


@pytest.mark.exhaustive
def test_a_refusal_stays_the_only_words_when_a_launcher_then_ends_the_ranks() -> None:
    body = "print('ready', flush=True); raise ArgumentError('no such size')"
    with started(body, OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2") as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        process.terminate()
        _, words = process.communicate(timeout=LIMIT)
    assert (process.returncode, words) == (-signal.SIGTERM, "")


@pytest.mark.exhaustive
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_ended_before_it_has_met_the_others_leaves_the_words_to_the_first(
    rank: int,
) -> None:
    """A launcher ends it for another's failure, which has said why."""
    place = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2"}
    with started("print('ready', flush=True); sys.stdin.read()", **place) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        process.terminate()
        _, words = process.communicate(timeout=LIMIT)
    assert process.returncode == -signal.SIGTERM
    assert words.count("ended by SIGTERM") == (rank == 0), words


@pytest.mark.exhaustive
def test_a_command_that_handles_sigterm_itself_goes_on() -> None:
    body = "signal.signal(15, lambda *_: print('kept')); os.kill(os.getpid(), 15)"
    assert (run(body).returncode, run(body).stdout) == (0, "kept\n")
