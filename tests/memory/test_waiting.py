"""How a rank waits: for a word that comes, for a rank that has ended, until the deadline."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from mpicoll import ArgumentError, RankLost
from mpicoll.backend import Stage, WaitContext
from mpicoll.machine.settings import check_deadline
from mpicoll.memory.waiting import ProcessWaits, advance_others, wait_advancing

CONTEXT = WaitContext(Stage("allreduce ring", 2, 3), 1)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends when its input does."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started


def policy(process: int, deadline: float = 100, oversubscribed: bool = False) -> ProcessWaits:
    found = ProcessWaits(0, {1: process}, oversubscribed, lambda: None)
    found.deadline = deadline
    return found


def words(value: int) -> memoryview:
    return memoryview(bytearray(value.to_bytes(8, "little"))).cast("q")


@pytest.mark.parametrize("oversubscribed", [False, True])
@pytest.mark.parametrize("value", [3, 4])
def test_a_word_that_is_there_is_not_waited_for(value: int, oversubscribed: bool) -> None:
    wait_advancing(policy(0, 0.01, oversubscribed), [], words(value), 0, 3, CONTEXT)


@pytest.mark.parametrize("after", [0.001, 0.1], ids=["awake", "asleep"])
def test_a_word_that_comes_ends_the_wait(process: subprocess.Popen[bytes], after: float) -> None:
    word = words(2)
    timer = threading.Timer(after, lambda: word.__setitem__(0, 3))
    timer.start()
    wait_advancing(policy(process.pid), [], word, 0, 3, CONTEXT)
    assert word[0] == 3


def test_a_rank_that_has_ended_is_named(process: subprocess.Popen[bytes]) -> None:
    process.communicate(b"\n")
    began = time.monotonic()
    text = rf"allreduce ring, round 2 of 3: rank 0 waits for rank 1 \(process {process.pid}\)"
    with pytest.raises(RankLost, match=rf"{text}, which has ended"):
        wait_advancing(policy(process.pid), [], words(2), 0, 3, CONTEXT)
    assert time.monotonic() - began < 50


@pytest.mark.parametrize("value", [2, 3])
def test_a_rank_whose_program_has_ended_is_named(
    process: subprocess.Popen[bytes], value: int
) -> None:
    """Its process may wait for the others in the end of MPI; what it has written counts."""
    waits = policy(process.pid)
    waits.has_exited = lambda rank: rank == 1
    expected = nullcontext() if value == 3 else pytest.raises(RankLost, match="which has ended")
    with expected:
        wait_advancing(waits, [], words(value), 0, 3, CONTEXT)


def test_a_rank_that_lives_is_waited_for_until_the_deadline(
    process: subprocess.Popen[bytes],
) -> None:
    with pytest.raises(RankLost, match=r"which did not come in (0\.[2-9]|[1-9])"):
        wait_advancing(policy(process.pid, 0.2), [], words(2), 0, 3, CONTEXT)


def test_plans_that_do_not_advance_end_by_the_deadline() -> None:
    with pytest.raises(RankLost, match="no started plan has advanced"):
        advance_others([], lambda: False, 0.05)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_deadline_is_positive(seconds: float) -> None:
    with pytest.raises(ArgumentError, match="positive"):
        check_deadline(seconds)


SUSPENDED = """
import numpy as np
import mpicoll
from mpicoll.errors import RankLost

def late(c):
    c.barrier()
    if c.rank == 1:
        print("late", flush=True)
        input()
    try:
        {call}
    except RankLost as error:
        return str(error)

print(mpicoll.threads(2, deadline=2.5)(late))
"""
CALLS = {
    "shared memory": 'c.allreduce(np.ones(3), algorithm="ring@symmetric")',
    "messages": "c.recv(np.ones(3), 1) if c.rank == 0 else c.send(np.ones(3), 0)",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_job_that_was_suspended_goes_on(call: str) -> None:
    """All ranks are stopped for longer than the deadline, and the last one comes soon after."""
    text = SUSPENDED.format(call=CALLS[call])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", text], text=True, **pipes) as run:
        assert run.stdin is not None and run.stdout is not None
        assert run.stdout.readline() == "late\n"
        time.sleep(0.2)
        run.send_signal(signal.SIGSTOP)
        time.sleep(3)
        run.send_signal(signal.SIGCONT)
        print(file=run.stdin, flush=True)
        assert run.stdout.readline() == "[None, None]\n"
