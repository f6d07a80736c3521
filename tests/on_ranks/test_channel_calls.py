"""Calls of methods that need no plan: of any length, by a channel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from interruption import interrupted, soon
from run_collective import compare, device

from mpicoll import ArgumentError, Collectives, Disagreement, RankLost

LENGTHS = [0, 1, 2, 7, 1000, 8192, 8193, 40_000]
"""Elements of float64; 8,192 fill a slot."""


@pytest.fixture
def part(c: Collectives) -> Any:
    if len(c.nodes) > 1:
        pytest.skip("its ranks are on one node")
    made = c.split(0)
    yield made
    made.free()


def _ones(part: Any, count: int, value: float = 1.0) -> Any:
    return device(part, np.full(count, value), "float64")


CALLS: dict[str, Callable[[Any, int], Any]] = {
    "allreduce": lambda c, n: c.allreduce(_ones(c, n, c.rank)),
    "in place": lambda c, n: c.allreduce(x := _ones(c, n, c.rank), out=x),
    "reduce": lambda c, n: c.reduce(_ones(c, n, c.rank), "max", 1),
    "broadcast": lambda c, n: c.broadcast(_ones(c, n, c.rank), 1),
    "broadcast of None": lambda c, n: c.broadcast(_ones(c, n, 1) if c.rank == 1 else None, 1),
    "gather": lambda c, n: c.gather(_ones(c, n, c.rank), 1),
    "allgather": lambda c, n: c.allgather(_ones(c, n, c.rank)),
    "alltoall": lambda c, n: c.alltoall(device(c, np.full((c.size, n), c.rank), "float64")),
    "scan": lambda c, n: c.scan(_ones(c, n, c.rank)),
    "reduce_scatter": lambda c, n: c.reduce_scatter(
        device(c, np.full((c.size, n), c.rank), "float64")
    ),
    "counts": lambda c, n: c.allgather(
        device(c, np.full((n + c.rank, 2), c.rank), "float64"),
        counts=tuple(n + rank for rank in range(c.size)),
    ),
}


def _wanted(name: str, c: Any, n: int) -> Any:
    ranks = np.arange(float(c.size))
    rows = np.repeat(ranks[:, None], n, 1)
    whole = sum(ranks)
    return {
        "allreduce": np.full(n, whole), "in place": np.full(n, whole),
        "reduce": np.full(n, c.size - 1.0) if c.rank == 1 else None,
        "broadcast": np.ones(n), "broadcast of None": np.ones(n),
        "gather": rows if c.rank == 1 else None, "allgather": rows, "alltoall": rows,
        "scan": np.full(n, sum(ranks[: c.rank + 1])), "reduce_scatter": np.full(n, whole),
        "counts": np.concatenate([np.full((n + rank, 2), rank) for rank in range(c.size)]),
    }[name]  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_every_length_has_no_plan(part: Any, name: str) -> None:
    for _ in range(2):
        for length in LENGTHS:
            found, wanted = CALLS[name](part, length), _wanted(name, part, length)
            assert (found is None) == (wanted is None)
            if wanted is not None:
                compare(part, found, wanted, "float64")
    assert not part.plans.plans


def test_a_new_length_is_not_checked_by_python(part: Any, monkeypatch: Any) -> None:
    part.allreduce(_ones(part, 3))
    monkeypatch.setattr(part.planner, "checked", None)
    for length in LENGTHS:
        compare(part, part.allreduce(_ones(part, length)), np.full(length, part.size), "float64")


@pytest.mark.parametrize(
    ("own", "text"),
    [
        (lambda c: c.allreduce(_ones(c, 4)), "shape differs"),
        (lambda c: c.allreduce(device(c, np.ones(3), "float32")), "dtype differs"),
        (lambda c: c.allreduce(_ones(c, 3), "max"), "op differs"),
        (lambda c: c.allgather(_ones(c, 3)), "collective differs"),
        (lambda c: c.allreduce(_ones(c, 3), algorithm="ring"), "algorithm differs"),
        (lambda c: c.allreduce("text"), "text|str"),
    ],
    ids=["length", "dtype", "operator", "collective", "algorithm", "no array"],
)
@pytest.mark.parametrize("is_known", [False, True])
def test_different_calls_are_an_error_on_all_ranks_before_data_moves(
    part: Any, own: Any, text: str, *, is_known: bool
) -> None:
    for _ in range(3 * is_known):
        part.allreduce(_ones(part, 3))
        part.allgather(_ones(part, 3))
        part.allreduce(_ones(part, 3), "max")
    with pytest.raises((Disagreement, ArgumentError), match=text):
        own(part) if part.rank == 1 else part.allreduce(_ones(part, 3))
    compare(part, part.allreduce(_ones(part, 3)), np.full(3, part.size), "float64")
    assert part.plans.by_channel.channel is not None or not is_known


@pytest.mark.parametrize("name", ["gather", "broadcast", "allreduce", "scan"])
def test_no_rank_waits_for_a_message_that_was_taken_back(part: Any, name: str) -> None:
    """Not even once its slot is used again."""
    for turn in range(3):
        part.allreduce(_ones(part, 3))
        part.allgather(_ones(part, 3))
        with pytest.raises(Disagreement):
            part.allgather(_ones(part, 3)) if part.rank == turn % 2 else part.allreduce(
                _ones(part, 3)
            )
        with soon():
            for length in range(100):
                found, wanted = CALLS[name](part, length), _wanted(name, part, length)
                if wanted is not None:
                    compare(part, found, wanted, "float64")


def test_arrays_that_overlap_are_an_error_of_a_known_call_too(part: Any) -> None:
    for offset in (1, 0):
        memory = _ones(part, 5)
        part.allreduce(_ones(part, 4))
        x, out = memory[:4], memory[offset : 4 + offset]
        if offset:
            with pytest.raises(ArgumentError, match="overlap"):
                part.allreduce(x, out=out)
        else:
            compare(part, part.allreduce(x, out=out), np.full(4, part.size), "float64")


def test_a_rank_that_is_interrupted_ends_the_channel_and_plans_go_on(part: Any, c: Any) -> None:
    for _ in range(3):
        part.allreduce(_ones(part, 3))
    with soon():
        if c.rank == 0:
            with interrupted(0.1):
                part.allreduce(_ones(part, 3))
            c.barrier()
        else:
            c.barrier()
            with suppress(RankLost):  # unless rank 0 has given its data before
                part.allreduce(_ones(part, 3))
    for length in (3, 3, 4):
        compare(part, part.allreduce(_ones(part, length)), np.full(length, part.size), "float64")
    assert part.plans.by_channel.channel is None
    assert part.plans.plans


def test_a_deadline_that_is_set_later_counts(part: Any, c: Any) -> None:
    part.barrier()
    if c.rank == 0:
        part.deadline = 0.2
        with pytest.raises(RankLost):
            part.barrier()
    c.barrier()


def test_no_array_of_a_user_is_kept(part: Any) -> None:
    import gc
    import weakref

    x = _ones(part, 1000)
    out = part.allreduce(x)
    found = weakref.ref(x), weakref.ref(out)
    del x, out
    gc.collect()
    assert [reference() for reference in found] == [None, None]
