"""Variables and rights that one rank alone has, or lacks: all ranks do the same."""

from __future__ import annotations

import os

import numpy as np
import pytest
from run_collective import compare, device

from mpicoll import Collectives
from mpicoll.memory import segments

pytestmark = pytest.mark.ranks(2, 3)


def test_a_variable_of_one_rank_turns_shared_memory_off_on_all(
    c: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    if c.backend == "threads":
        pytest.skip("ranks that are threads have one environment")
    if c.rank == 1:
        monkeypatch.setenv(segments.SWITCH, "0")
    group = c.split(0)
    assert group is not None
    with group:
        assert f"rank 1: {segments.SWITCH} turns it off" in group.transport.unshared
        out = group.allreduce(device(c, np.ones(3), "float64"))
        compare(c, out, np.full(3, c.size), "float64")


def test_a_rank_that_cannot_ask_for_its_cores_has_those_of_the_machine(
    c: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_process: int) -> set[int]:
        raise PermissionError("planted")

    if c.rank == 1:
        monkeypatch.setattr(os, "sched_getaffinity", refuse)
    group = c.split(0)
    assert group is not None
    with group:
        assert group.exchange(c.rank) == list(range(c.size))
