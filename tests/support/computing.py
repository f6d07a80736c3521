"""Ranks that compute while a plan is under way."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from run_collective import compare

from mpicoll import Collectives
from mpicoll.engine.plan import Plan

LONG = 60
"""Seconds that a computation takes where it is in vain."""


def compute_until(there: Callable[[], bool]) -> None:
    """Compute in Python until something holds, or for long."""
    end = time.monotonic() + LONG
    while not there() and time.monotonic() < end:
        sum(range(10_000))


def check_going_on(c: Collectives, plan: Plan, count: int, folder: Path) -> None:
    """Check that a started sum of ones goes on while rank 0 computes.

    It does so until all others are done, which need what it sends.
    """
    done = [Path(c.exchange(str(folder))[0], str(rank)) for rank in range(1, c.size)]
    for run in range(2):
        request = plan.start()
        if c.rank == 0:
            compute_until(lambda: all(each.exists() for each in done))
            assert all(each.exists() for each in done), f"run {run}"
        request.wait()
        compare(c, plan.out, np.full(count, c.size), "float64")
        if c.rank > 0:
            done[c.rank - 1].touch()
        c.barrier()
        if c.rank > 0:
            done[c.rank - 1].unlink()
        c.barrier()
