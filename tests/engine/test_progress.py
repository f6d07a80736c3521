"""Started plans that the progress thread advances: programs of the compiled executor."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from computing import check_going_on, compute_until
from launcher import LIMIT
from run_collective import compare, device

from mpicoll import Collectives

pytestmark = pytest.mark.ranks(3, more=(2,))
SMALL, MEDIUM, LARGE = 5, 60_000, 1_200_000
"""Elements: the last one moves so much that a start leaves all of it to the thread."""


def allreduce(c: Collectives, count: int, algorithm: str = "ring@symmetric") -> Any:
    if c.size == 1 or len(c.nodes) > 1:
        pytest.skip("needs several ranks of one node")
    plan = c.plan("allreduce", device(c, np.ones(count), "float64"), algorithm=algorithm)
    assert plan.program is not None
    return plan


def is_sum(c: Collectives, plan: Any, count: int) -> None:
    compare(c, plan.out, np.full(count, c.size), "float64")


@pytest.mark.parametrize("count", [SMALL, MEDIUM, LARGE])
@pytest.mark.parametrize("algorithm", ["ring@symmetric", "one_shot@symmetric", "ring@cma"])
def test_a_started_plan_goes_on_while_its_rank_computes(
    c: Collectives, count: int, algorithm: str, tmp_path: Path
) -> None:
    with allreduce(c, count, algorithm) as plan:
        check_going_on(c, plan, count, tmp_path)


def test_plans_are_waited_for_in_any_order(c: Collectives) -> None:
    counts = [SMALL, MEDIUM, SMALL, LARGE, MEDIUM, SMALL]
    plans = [allreduce(c, count) for count in counts]
    order = random.Random(c.rank)
    for run in range(4):
        under_way = [plan.start() for plan in plans]
        if run % 2:
            c.allreduce(device(c, np.ones(SMALL), "float64"))
        order.shuffle(under_way)
        for request in under_way:
            if order.random() < 0.5:
                compute_until(request.test)
            request.wait()
        for plan, count in zip(plans, counts, strict=True):
            is_sum(c, plan, count)
            plan.run()
            is_sum(c, plan, count)
    for plan in plans:
        plan.free()


@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_a_plan_that_is_dropped_goes_on(c: Collectives, count: int) -> None:
    for _ in range(3):
        plan = allreduce(c, count)
        request = plan.start()
        if c.rank == 0:
            del plan, request
            gc.collect()
        else:
            request.wait()
            is_sum(c, plan, count)
        with allreduce(c, SMALL) as other:
            other.start().wait()
            is_sum(c, other, SMALL)


SCRIPT = f"""
import atexit, gc, os, numpy as np, mpicoll
kept = []

def under_way(c, then):
    plan = c.plan("allreduce", np.ones({LARGE}), algorithm="ring")
    plan.run()
    if c.rank == 1:
        c.exchange(0)
    request = plan.start()
    if c.rank == 0:
        then(request)
        c.exchange(0)
    request.wait()
    assert (plan.out == 2).all()

def forks(request):
    child = os.fork()
    if child == 0:
        mpicoll.threads(2)(under_way, lambda request: None)
        gc.collect()
        atexit._run_exitfuncs()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

def leaves(c):
    plan = c.plan("allreduce", np.ones({LARGE}), algorithm="ring")
    if c.rank == 0:
        kept.append((plan, plan.start()))
"""


@pytest.mark.parametrize(
    "then", ["mpicoll.threads(2)(under_way, forks)", "mpicoll.threads(2)(leaves)"]
)
def test_processes_that_fork_or_end_meanwhile(then: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT + then],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
