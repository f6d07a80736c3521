"""Schedules bound to memory that ranks share: every transport, layout of nodes and hazard."""

from __future__ import annotations

import gc
import os
import random
from typing import Any

import numpy as np
import pytest
from expect import case, expected, input_shape, values
from layouts import Layout
from random_calls import play
from run_collective import EVERY, OVER_TORCH, affine, assert_equal, compare, device, serves
from run_collective import SCHEDULES as FORMS

from mpicoll import (
    ArgumentError,
    Collectives,
    Disagreement,
    RankLost,
    Unavailable,
    UnknownName,
    Unsupported,
    threads,
    tuning,
)
from mpicoll.algorithms.registry import algorithms, find
from mpicoll.backend import SharedMemory
from mpicoll.engine import compiled
from mpicoll.memory import segments, slots
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.notation.elements import user_op

SCHEDULES = [(name, text) for name, text in EVERY if text != "auto" and "native" not in text]
OVER_MESSAGES = FORMS if OVER_TORCH else SCHEDULES
"""A program sends the same messages whoever carries them: MPI's ranks run every one."""
LARGE = [("allreduce", "two_shot"), ("allreduce", "ring"), ("broadcast", "one_shot"),
         ("alltoall", "naive"), ("alltoall", "bruck(radix=2)"), ("reduce", "two_shot"),
         ("scan", "two_shot"), ("exscan", "chain(segments=8)"), ("reduce_scatter", "ring"),
         ("allgather", "direct"), ("gather", "binomial"), ("scatter", "binomial")]  # fmt: skip


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every message a large one: tiles, windows, in place, and no double slots."""
    monkeypatch.setattr(segments, "FETCHED_TILE", 64)
    monkeypatch.setattr(segments, "TILE", 64)
    monkeypatch.setattr(tuning, "WINDOW_SLOTS", 2)
    monkeypatch.setattr(segments, "FETCHED_ROW", 32)
    monkeypatch.setattr(slots, "RING_BYTES", 1200)


def shared(c: Collectives) -> SharedMemory:
    if c.transport.shared is None:
        pytest.skip(f"no shared memory: {c.transport.unshared}")
    return c.transport.shared


def place(c: Collectives, host: Any, dtype: str) -> Any:
    """Return an array in shared memory with NumPy's values."""
    array = c.allocate(host.shape, dtype)
    c.transport.arrays.from_host(array, host)
    return array


def check(
    c: Collectives, name: str, algorithm: str, row: tuple[int, ...], dtype: str = "int32",
    op: Any = "sum", root: int = 0, make: Any = device, in_place: bool = False,
) -> None:  # fmt: skip
    """Run a plan several times on changing inputs; compare each result."""
    shapes = tuple(input_shape(name, c.size, rank, row, None) for rank in range(c.size))
    x = make(c, case(name, shapes, dtype, op, root)[0][c.rank], dtype)
    out = x if in_place else None
    try:
        plan = c.plan(name, x, op=op, root=root, out=out, algorithm=algorithm)
    except (Unavailable, Unsupported) as refused:
        pytest.skip(str(refused))
    with plan:
        for turn in range(4):
            inputs, wanted = case(name, shapes, dtype, op, root, shift=31 * turn)
            c.transport.arrays.from_host(x, inputs[c.rank])
            if turn % 2:
                plan.start().wait()
            else:
                plan.run()
            compare(c, plan.out, wanted[c.rank], dtype)
            if not in_place:
                assert_equal(c.transport.arrays.to_host(x), inputs[c.rank])


@pytest.mark.kept_group
@pytest.mark.ranks(3)
@pytest.mark.parametrize("transport", ["point-to-point", "symmetric", "cma"])
@pytest.mark.parametrize(("name", "algorithm"), OVER_MESSAGES)
def test_every_schedule_over_every_transport(
    c: Collectives, name: str, algorithm: str, transport: str
) -> None:
    check(c, name, f"{algorithm}@{transport}", (11,))


@pytest.mark.kept_group
@pytest.mark.ranks(3, more=(Layout(4, per_node=2),))
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(("make", "transport"), [(place, "symmetric"), (device, "cma")])
@pytest.mark.parametrize(("name", "algorithm"), SCHEDULES)
def test_large_messages(
    c: Collectives, name: str, algorithm: str, transport: str, make: Any
) -> None:
    shared(c)
    check(c, name, f"{algorithm}@{transport}", (203,), root=c.size - 1, make=make)


@pytest.mark.kept_group
@pytest.mark.threads_only
@pytest.mark.ranks(3, more=(Layout(4, per_node=2),))
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("make", [device, place])
@pytest.mark.parametrize("transport", ["symmetric", "cma"])
@pytest.mark.parametrize("name", ["allreduce", "reduce", "broadcast", "scan", "exscan", "alltoall"])
def test_large_messages_in_place(c: Collectives, name: str, transport: str, make: Any) -> None:
    shared(c)
    for each in algorithms(name):
        if serves(c, each):
            check(c, name, f"{each}@{transport}", (203,), make=make, in_place=True)


@pytest.mark.kept_group
@pytest.mark.threads_only
@pytest.mark.ranks(3, more=(Layout(4, per_node=2),))
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["allreduce", "reduce", "reduce_scatter", "scan", "exscan"])
@pytest.mark.parametrize("transport", ["symmetric", "cma"])
def test_large_messages_keep_rank_order(c: Collectives, name: str, transport: str) -> None:
    shared(c)
    for each in algorithms(name):
        if serves(c, each) and c.planner.order.keeps(each, 0):
            check(c, name, f"{each}@{transport}", (97,), "uint8", op=affine)


@pytest.mark.kept_group
@pytest.mark.ranks(2)
@pytest.mark.parametrize("transport", ["symmetric", "cma"])
@pytest.mark.parametrize(("name", "algorithm"), LARGE)
def test_real_sizes(c: Collectives, name: str, algorithm: str, transport: str) -> None:
    shared(c)
    check(c, name, f"{algorithm}@{transport}", (300_001,))


@pytest.mark.parametrize(
    ("transports", "runs"),
    [(("symmetric", "cma"), 10_000), (("symmetric", "cma", "point-to-point"), 1000)],
    ids=["shared", "mixed"],
)
def test_many_random_collectives(c: Collectives, transports: tuple[str, ...], runs: int) -> None:
    """Mixed collectives, sizes and algorithms in quick succession: a stale flag would show."""
    shared(c)
    ways = [each for each in transports if each in c.transports] or c.transports
    choose = random.Random(c.size)
    plans = []
    for _ in range(60):
        name = choose.choice([each for each in COLLECTIVES if each != "barrier"])
        fits = [each for each in algorithms(name) if serves(c, each)]
        text = f"{choose.choice(fits)}@{choose.choice(ways)}"
        width, root = choose.choice([1, 2, 13, 100, 1000, 5000]), choose.randrange(c.size)
        root = root if COLLECTIVES[name].rooted else 0
        inputs = [values(input_shape(name, c.size, rank, (width,), None), "int64", rank)
                  for rank in range(c.size)]  # fmt: skip
        wanted = expected(name, inputs, "sum", root, None)[c.rank]
        x = device(c, inputs[c.rank], "int64")
        plans.append((c.plan(name, x, root=root, algorithm=text), x, inputs[c.rank], wanted))
    arrays = c.transport.arrays
    if c.backend == "threads" or len(c.nodes) > 1:
        runs //= 100
    elif c.size > 2:
        runs //= 25
    elif c.backend == "torch":
        runs //= 4
    for turn in range(runs):
        plan, x, own, wanted = choose.choice(plans)
        scale = turn % 1000 + 1
        arrays.from_host(x, own * scale)
        plan.run()
        if wanted is not None and not np.array_equal(arrays.to_host(plan.out), wanted * scale):
            pytest.fail(f"run {turn}: {plan} is wrong on rank {c.rank}")
    for plan, *_ in plans:
        plan.free()


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("seed", [1, 2])
def test_random_calls(c: Collectives, seed: int) -> None:
    """Methods, plans and started plans in any mixture; more by ``support/random_calls.py``."""
    play(c, 300 if c.backend == "threads" else 500, seed)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "ring"])
def test_a_freed_plan_leaves_nothing_to_garbage_collection(c: Collectives, algorithm: str) -> None:
    """Its arrays are as long as a message, and lists of plans are long, too."""
    memory, x = shared(c), device(c, np.ones(1 << 16), "float64")
    gc.collect()
    gc.disable()
    try:
        plan = c.plan("allreduce", x, algorithm=f"{algorithm}@symmetric")
        run, numbers = plan.run, set(memory.plans)
        run()
        plan.free()
        with pytest.raises(RuntimeError, match="has been freed"):
            run()
        del plan, run
        assert max(numbers) not in memory.plans
    finally:
        gc.enable()


@pytest.mark.ranks(2)
def test_a_plan_takes_no_memory_for_blocks_that_stay_where_they_lie(c: Collectives) -> None:
    memory, x = shared(c), device(c, np.ones(1 << 16), "float64")
    with c.plan("allreduce", x, algorithm="two_shot@symmetric"):
        buffers = memory.plans[max(memory.plans)].buffers
        assert sum(memory.arrays.flat(each).nbytes for each in buffers[2:]) == 0


@pytest.mark.ranks(2, more=(Layout(4, per_node=2),))
def test_memory_of_freed_plans_is_used_again(c: Collectives) -> None:
    """Plans come and go without growing the segments."""
    memory = shared(c)
    x = device(c, np.arange(4000.0), "float64")
    wanted = np.arange(4000.0) * c.size
    for _ in range(3):
        with c.plan("allreduce", x, algorithm="one_shot@symmetric") as plan:
            plan.run()
    del plan
    before = memory.allocator.segments
    for _ in range(100):  # in total more than the first segment
        with c.plan("allreduce", x, algorithm="one_shot@symmetric") as plan:
            plan.run()
            compare(c, plan.out, wanted, "float64")
        del plan
    assert memory.allocator.segments == before


def test_a_slow_reader_keeps_its_message(c: Collectives) -> None:
    """The root runs ahead and frees its plan; what others have not read yet stays."""
    import time

    shared(c)
    x = device(c, np.full(64, 7), "int32") if c.rank == 0 else device(c, np.zeros(64), "int32")
    plan = c.plan("broadcast", x, out=x, algorithm="one_shot@symmetric")
    if c.rank:
        time.sleep(0.02)
    plan.run()
    plan.free()
    del plan
    other = device(c, np.full(64, 9), "int32")
    with c.plan("allreduce", other, algorithm="one_shot@symmetric") as plan:
        plan.run()
    compare(c, x, np.full(64, 7), "int32")


def test_a_plan_is_started_once(c: Collectives) -> None:
    x = device(c, np.ones(4), "float32")
    with c.plan("allreduce", x, algorithm="one_shot") as plan:
        request = plan.start()
        if not request.test():
            with pytest.raises(RuntimeError, match="under way"):
                plan.start()
        request.wait()


@pytest.mark.parametrize("shape", [(), 5, (3, 4), (0,)])
def test_allocate(c: Collectives, shape: Any) -> None:
    x = c.allocate(shape, "float32")
    assert tuple(x.shape) == ((shape,) if isinstance(shape, int) else shape)
    assert c.transport.arrays.dtype(x) == "float32"
    c.transport.arrays.from_host(x, np.full(x.shape, c.rank + 1))
    total = np.full(x.shape, sum(range(1, c.size + 1)))
    compare(c, c.allreduce(x), total, "float32")


def test_allocated_memory_returns(c: Collectives) -> None:
    """An array that is gone gives its memory back; a view keeps it."""
    memory = shared(c)
    view = c.allocate((1000, 1000), "float64")[1:]
    segments = memory.allocator.segments
    for _ in range(50):
        x = c.allocate((1000, 1000), "float64")
        del x
    assert memory.allocator.segments <= segments + 1
    assert memory.find(view) is not None
    assert memory.user_areas


@pytest.mark.parametrize(
    ("shape", "dtype", "text"),
    [((-1,), "float32", "shape"), ("x", "float32", "shape"), ((2,), "float33", "float33")],
)
def test_allocate_refuses_on_every_rank(c: Collectives, shape: Any, dtype: str, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        c.allocate(shape, dtype)
    if c.size > 1:
        bad = c.rank == c.size - 1
        with pytest.raises(ArgumentError if bad else Disagreement, match="shape"):
            c.allocate((-1,) if bad else (4,), "float32")


def test_names_of_transports(c: Collectives) -> None:
    x = device(c, np.ones(4), "float32")
    with pytest.raises(UnknownName, match="did you mean 'symmetric'"):
        c.plan("allreduce", x, algorithm="ring@symetric")
    with pytest.raises(ArgumentError, match="its own transport"):
        c.plan("allreduce", x, algorithm="native@symmetric")
    for name in c.transports if c.size > 1 else ():
        with c.plan("allreduce", x, algorithm=f"ring@{name}") as plan:
            wide = "" if len(c.nodes) == 1 or name == c.transports[0] else "+point-to-point"
            assert (plan.algorithm, plan.transport) == ("ring", name + wide)


def test_groups_of_groups(c: Collectives) -> None:
    """Groups within groups, made and freed again and again, each with memory of its own."""
    for turn in range(4):
        part = c.split(c.rank % 2)
        assert part is not None
        inner = part.split(part.rank // 2)
        assert inner is not None
        for group in (c, part, inner):
            x = device(group, np.full(50, group.rank + turn), "int64")
            got = group.allreduce(x, algorithm="one_shot")
            compare(group, got, np.full(50, sum(r + turn for r in range(group.size))), "int64")
        inner.free()
        part.free()


def test_an_array_outlives_its_group(c: Collectives) -> None:
    part = c.split(0)
    assert part is not None
    x = part.allocate((100,), "float64")
    part.transport.arrays.from_host(x, np.arange(100.0))
    part.free()
    compare(c, x, np.arange(100.0), "float64")


def test_a_plan_outlives_its_group(c: Collectives) -> None:
    """Its memory stays mapped: running it on is an error or works, but never a crash."""
    part = c.split(0)
    assert part is not None
    x = device(part, np.ones(8), "float64")
    plan = part.plan("allreduce", x, algorithm="one_shot")
    plan.run()
    part.free()
    if part.size > 1 and c.transport.shared and len(c.nodes) == 1:
        plan.run()
        compare(c, plan.out, np.full(8, c.size), "float64")


@pytest.mark.launch_only
def test_a_forked_child_does_no_harm(c: Collectives) -> None:
    """A child that ends, with or without cleaning up, leaves the shared memory to its parent."""
    memory = shared(c)
    x = c.allocate((64,), "float64")
    for status in (0, 1):
        child = os.fork()
        if not child:
            del x
            memory.allocator._collect()
            os._exit(status)
        os.waitpid(child, 0)
    c.transport.arrays.from_host(x, np.ones(64))
    compare(c, c.allreduce(x, algorithm="one_shot"), np.full(64, c.size), "float64")


def test_deadline_is_checked(c: Collectives) -> None:
    before = c.deadline
    with pytest.raises(ArgumentError, match="positive"):
        c.deadline = 0
    c.deadline = 17
    assert c.deadline == 17
    if c.transport.shared:
        c.deadline = before


def test_large_items_are_exchanged(c: Collectives) -> None:
    """Mailbox of more than one page, of different lengths."""
    mine = bytes([c.rank]) * (50_000 * c.rank + 3)
    found = c.exchange(mine)
    assert [(each[:1], len(each)) for each in found] == [
        (bytes([rank]), 50_000 * rank + 3) for rank in range(c.size)
    ]


def test_catalogue_is_over_shared_memory_by_default(c: Collectives) -> None:
    if c.size == 1 or c.transport.shared is None:
        pytest.skip("needs ranks that share memory")
    x = device(c, np.ones(4), "float32")
    with c.plan("allreduce", x, algorithm=str(find("allreduce", "ring"))) as plan:
        assert plan.transport.partition("+")[0] in ("symmetric", "cma")


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize(
    ("name", "algorithm"),
    [("allreduce", "two_shot"), ("allreduce", "lane_ring(segments=4)"), ("broadcast", "one_shot"),
     ("broadcast", "pipelined_circulant(segments=8)")],
)  # fmt: skip
def test_memory_does_not_grow_with_the_message(c: Collectives, name: str, algorithm: str) -> None:
    """A plan of 16 MiB holds at most 4, and gives right results again and again."""
    group, count = c.split(0), (16 << 20) // 8
    assert group is not None
    memory, x = shared(group), device(c, np.ones(count), "int64")
    with group, group.plan(name, x, algorithm=f"{algorithm}@symmetric") as plan:
        assert memory.allocator.used <= 4 << 20
        for _ in range(3):
            plan.run()
            compare(c, plan.out, np.full(count, c.size if name == "allreduce" else 1), "int64")


@pytest.mark.parametrize("op", ["sum", "user"])
def test_a_rank_whose_memory_cannot_be_read_is_named(
    op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where it has been killed, and the system notices before this rank looks."""

    def of_nobody(table: Any, code: int, *given: Any, **named: Any) -> None:
        if code == compiled.FETCH:
            named["extra"] = 1 << 30  # Linux has no process of such a number
        add(table, code, *given, **named)

    def run(c: Collectives) -> tuple[str, int | None]:
        if "cma" not in c.transports:
            pytest.skip("the system does not let processes read each other's memory")
        monkeypatch.setattr(compiled.Table, "_row", of_nobody)
        fold = user_op(lambda left, right: left + right, commutative=True)
        plan = c.plan(
            "allreduce", np.ones(300_000), op="sum" if op == "sum" else fold,
            algorithm="two_shot@cma",
        )  # fmt: skip
        with pytest.raises(RankLost) as lost:
            plan.run()
        with pytest.raises(RuntimeError, match="failed in the middle of its last run"):
            plan.run()
        return str(lost.value), lost.value.rank

    add = compiled.Table._row
    errors = [error for error in threads(2)(run) if "reading memory of rank" in error[0]]
    assert errors
    assert all(
        f"allreduce two_shot: reading memory of rank {rank}: No such process" in text
        for text, rank in errors
    )
