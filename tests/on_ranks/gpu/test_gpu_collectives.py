"""Every collective on arrays of GPUs, over every transport, on real GPUs or on fake ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from expect import expected, input_shape, values
from gpu_plans import MESSAGES, REAL, SCHEDULES, SOME, check
from run_collective import (
    EVERY,
    OVER_TORCH,
    ROOTED,
    UNEVEN,
    affine,
    carried,
    compare,
    on_gpu,
    pairs_of_op_and_dtype,
    serves,
)

from mpicoll import Collectives
from mpicoll.algorithms.registry import algorithms, find
from mpicoll.backend import DIRECT, IPC
from mpicoll.calls import method_calls
from mpicoll.notation.elements import DTYPES

OVER_IPC = [
    each for each in SCHEDULES if each in SOME or not (OVER_TORCH and find(*each).needs.holds(3))
]
"""A program over IPC is the same whosever arrays lie there: MPI's ranks run it where three can."""
LARGE = [(*each, IPC) for each in OVER_IPC] + [(*each, MESSAGES) for each in SOME]
SMALL = [(*each, way) for each in SOME for way in (IPC, MESSAGES)]
"""Fewer, as small messages pass by one kind of slots, and large ones by all that there is."""
NATIVES = [(name, text) for name, text in EVERY if text == "auto" or "native" in text]


@pytest.mark.parametrize(("name", "algorithm", "way"), SMALL, indirect=["way"])
def test_every_schedule_every_way(g: Collectives, name: str, algorithm: str, way: str) -> None:
    check(g, name, f"{algorithm}@{way}", (11,), root=g.size - 1, way=way)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(("name", "algorithm", "way"), LARGE, indirect=["way"])
def test_large_messages(g: Collectives, name: str, algorithm: str, way: str) -> None:
    check(g, name, f"{algorithm}@{way}", (203,), way=way)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["allreduce", "reduce", "broadcast", "scan", "exscan", "alltoall"])
def test_large_messages_in_place(g: Collectives, name: str, way: str) -> None:
    for each in algorithms(name):
        if serves(g, each) and (name, str(each)) in (OVER_IPC if way == IPC else SOME):
            check(g, name, f"{each}@{way}", (203,), in_place=True, way=way)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("name", "algorithm"), NATIVES)
def test_natives(g: Collectives, name: str, algorithm: str, in_place: bool) -> None:
    if in_place and name in UNEVEN:
        pytest.skip("x and out have different shapes")
    check(g, name, algorithm, (11,), in_place=in_place)


def test_natives_of_a_library_that_reads_gpu_memory(
    g: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    if g.backend != "mpi4py" or REAL:
        pytest.skip("pretended for MPI only")
    from mpicoll.mpi.gpu_awareness import GpuAwareness

    monkeypatch.setattr(g.transport, "gpu", GpuAwareness(True, "pretended"))
    for name, algorithm in NATIVES:
        check(g, name, algorithm, (11,), way=DIRECT if algorithm == "native" else "")
    for name, algorithm in SCHEDULES:
        check(g, name, f"{algorithm}@{DIRECT}", (11,), way=DIRECT)


@pytest.mark.parametrize("name", UNEVEN)
def test_uneven_counts(g: Collectives, name: str, way: str) -> None:
    rows = [(3 * rank + 1) % 4 for rank in range(g.size)]
    counts = [[(i + 2 * j) % 3 for j in range(g.size)] for i in range(g.size)]
    for each in algorithms(name):
        if serves(g, each):
            given = counts if name == "alltoall" else rows
            check(g, name, f"{each}@{way}", (5,), way=way, counts=given)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(g: Collectives, dtype: str, way: str) -> None:
    carried(g, dtype) if not REAL else None
    if dtype != "bool":
        check(g, "allreduce", f"two_shot@{way}", (67,), dtype, way=way)
    check(g, "alltoall", f"naive@{way}", (67,), dtype, way=way)


@pytest.mark.parametrize(("op", "dtype"), pairs_of_op_and_dtype())
def test_operators(g: Collectives, op: str, dtype: str, way: str) -> None:
    check(g, "allreduce", f"one_shot@{way}", (67,), dtype, op=op, way=way)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["allreduce", "reduce", "scan", "exscan"])
def test_rank_order(g: Collectives, name: str) -> None:
    for each in algorithms(name):
        if serves(g, each) and g.planner.order.keeps(each, 0):
            check(g, name, f"{each}@{IPC}", (97,), "uint8", op=affine, way=IPC)


@pytest.mark.parametrize("name", ["allreduce", "broadcast", "alltoall", "reduce_scatter"])
def test_real_sizes(g: Collectives, name: str, way: str) -> None:
    algorithm = {"allreduce": "two_shot", "broadcast": "scatter_ring", "alltoall": "pairwise"}
    chosen = algorithm.get(name, "ring")
    if name == "alltoall" and g.size & (g.size - 1):
        chosen = "naive"
    check(g, name, f"{chosen}@{way}", (300_001,), way=way)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["allreduce", "broadcast", "alltoall", "scan"])
def test_runs_in_a_row(g: Collectives, name: str, way: str) -> None:
    """A run does not touch what the last one still has to copy."""
    arrays = g.transport.arrays
    shapes = [input_shape(name, g.size, rank, (40,), None) for rank in range(g.size)]
    x = on_gpu(g, np.zeros(shapes[g.rank]), "int32")
    out = on_gpu(g, np.zeros(shapes[0]), "int32")
    kept = [on_gpu(g, np.zeros(shapes[0]), "int32") for _ in range(3)]
    copies = [arrays.copier(arrays.flat(each), arrays.flat(out)) for each in kept]
    every = [[values(s, "int32", rank + 31 * turn, "sum") for rank, s in enumerate(shapes)]
             for turn in range(3)]  # fmt: skip
    schedule = {"broadcast": "chain(segments=8)", "alltoall": "naive"}.get(name, "linear")
    schedule = "ring" if name == "allreduce" else schedule
    with g.plan(name, x, out=out, algorithm=f"{schedule}@{way}") as plan:
        for inputs, copy in zip(every, copies, strict=True):
            arrays.from_host(x, inputs[g.rank])
            plan.run()
            copy()
        for inputs, each in zip(every, kept, strict=True):
            compare(g, each, expected(name, inputs, "sum", 0, None)[g.rank], "int32")


@pytest.mark.skipif(REAL, reason="the fake one counts")
def test_folds_of_many_operands_are_one(g: Collectives) -> None:
    arrays: Any = g.transport.arrays
    if g.size < 3 or g.transport.shared is None:
        pytest.skip("two operands are one fold")
    arrays.fused = 0
    check(g, "allreduce", "one_shot@ipc", (1000,), way=IPC)
    assert arrays.fused == 4  # once in every run
    check(g, "reduce_scatter", "direct@ipc", (1000,), way=IPC)
    assert arrays.fused == 8


def test_many_plans_at_once(g: Collectives) -> None:
    """Slots of different plans, and of one plan's runs, never mix."""
    plans = []
    for turn in range(12):
        x = on_gpu(g, np.full(50, g.rank + turn), "int64")
        plans.append((g.plan("allreduce", x, algorithm="one_shot@ipc"), turn))
    started = [(plan.start(), plan, turn) for plan, turn in plans]
    for request, plan, turn in reversed(started):
        request.wait()
        compare(g, plan.out, np.full(50, sum(r + turn for r in range(g.size))), "int64")


def test_methods_take_gpu_arrays(g: Collectives) -> None:
    for turn in range(3):
        for name in ROOTED:
            shapes = [input_shape(name, g.size, rank, (9,), None) for rank in range(g.size)]
            inputs = [values(s, "float32", rank + turn, "sum") for rank, s in enumerate(shapes)]
            out = getattr(g, name)(on_gpu(g, inputs[g.rank], "float32"), root=turn % g.size)
            wanted = expected(name, inputs, "sum", turn % g.size, None)[g.rank]
            compare(g, out, wanted, "float32")


def test_copies_for_methods_keep_within_their_budget(
    fresh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept plans make room in the order in which they came; a call above the budget is not kept."""
    part, _ = fresh
    monkeypatch.setattr(method_calls, "_MOST_GPU_BYTES", 1000)
    for count, kept in ((100, 1), (20, 2), (50, 2), (126, 2), (125, 1)):
        x = on_gpu(part, np.full(count, part.rank), "int32")
        out = part.allreduce(x)
        compare(part, out, np.full(count, sum(range(part.size))), "int32")
        assert len(part.plans.plans) == kept
