"""Shared programs bound to memory: slots that are used again, acknowledgements, layouts."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from run_collective import device

from mpicoll import Collectives, ScheduleError
from mpicoll.algorithms.registry import find
from mpicoll.memory import slots
from mpicoll.notation.schedule import recv, send

RUNS = 12


def allocated(c: Collectives, host: Any, dtype: str) -> Any:
    """Return an array that the other ranks read in place, with NumPy's values."""
    array = c.allocate(host.shape, dtype)
    c.transport.arrays.from_host(array, host)
    return array


def broadcast(c: Collectives, slow: int, count: int, make: Any = device) -> None:
    """Broadcast other values in every run, to a rank that is slow to read them."""
    x = make(c, np.zeros(count), "int64")
    with c.plan("broadcast", x, out=x, algorithm="one_shot@symmetric") as plan:
        for turn in range(1, RUNS + 1):
            if c.rank == 0:
                c.transport.arrays.from_host(x, np.full(count, turn))
            elif c.rank == slow:
                time.sleep(0.004)
            plan.run()
            np.testing.assert_array_equal(c.transport.arrays.to_host(x), np.full(count, turn))


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("count", [1, 500, 20_000], ids=["in the flag's line", "eager", "larger"])
@pytest.mark.parametrize("slow", [1, 2])
def test_a_root_does_not_overtake_its_readers(c: Collectives, slow: int, count: int) -> None:
    """It waits for a free slot, whichever of them is the last to acknowledge."""
    if slow >= c.size:
        pytest.skip("no such rank")
    broadcast(c, slow, count)


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("slow", [1, 2])
def test_a_root_waits_for_those_who_read_its_array(c: Collectives, slow: int) -> None:
    """They read it where it is, and it changes as soon as the root's run ends."""
    if slow >= c.size or c.transport.shared is None:
        pytest.skip("no such rank, or no shared memory")
    broadcast(c, slow, 40_000, allocated)


@pytest.mark.ranks(3)
@pytest.mark.parametrize("slow", [1, 2])
def test_one_slot_is_free_when_all_have_read(
    c: Collectives, slow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "RING_BYTES", 1200)
    broadcast(c, slow, 500)


@pytest.mark.ranks(2)
@pytest.mark.threads_only
def test_ranks_that_expect_other_lengths_are_told(
    c: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything runs, on every rank alike."""
    lopsided = replace(
        find("allgather", "naive"), name="lopsided",
        generator=lambda rank, size: iter([(send(1, 0), recv(1, 1)) if rank == 0 else (recv(0),)]),
    )  # fmt: skip
    monkeypatch.setattr("mpicoll.calls.planner.find", lambda name, text: lopsided)
    monkeypatch.setattr("mpicoll.calls.planner._MOST_PROVED", 0)  # as one that is too long
    with pytest.raises(ScheduleError, match="which expects"):
        c.plan("allgather", device(c, np.ones(4), "int64"), algorithm="lopsided@symmetric")
