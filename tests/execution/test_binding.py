"""Shared programs bound to memory: slots that are used again, acknowledgements, fences, layouts."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from threading import current_thread
from typing import Any

import numpy as np
import pytest
from executors import use_closures
from run_collective import device

from mpicoll import Collectives, ScheduleError
from mpicoll.algorithms.registry import find
from mpicoll.memory import segments, slots
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
    monkeypatch.setattr(slots, "_MOST_BYTES", 600)
    broadcast(c, slow, 500)


@pytest.fixture(autouse=True, params=["compiled", "closures"])
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run every test by both executors."""
    if request.param == "closures":
        use_closures(monkeypatch)
    return str(request.param)


@pytest.fixture
def fenced(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each rank's thread has called a fence."""
    found: Counter[str] = Counter()
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(
        segments, "new_fence", lambda: lambda: found.update([current_thread().name])
    )
    return found


@pytest.mark.ranks(2)
@pytest.mark.threads_only
@pytest.mark.parametrize(("fences", "wanted"), [("always", 2), ("", 0)])
def test_a_fence_stands_beside_every_flag(
    c: Collectives, fences: str, wanted: int, fenced: Counter[str], executor: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One before a rank raises its own, one after it has seen the other's.

    The flags of the compiled executor are released and acquired, which is a fence.
    """
    if executor == "compiled":
        wanted = 0
    monkeypatch.setenv("MPICOLL_FENCES", fences)
    with (
        Collectives(type(c.transport)(c.transport.group, c.rank)) as group,
        group.plan("allreduce", device(c, np.ones(4), "int64"), algorithm="one_shot") as plan,
    ):
        before = fenced[current_thread().name]
        plan.run()
        assert fenced[current_thread().name] - before == wanted
        c.barrier()


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
    monkeypatch.setattr("mpicoll.runtime.planner.find", lambda name, text: lopsided)
    with pytest.raises(ScheduleError, match="which expects"):
        c.plan("allgather", device(c, np.ones(4), "int64"), algorithm="lopsided@symmetric")
