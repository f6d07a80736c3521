"""Arrays on GPUs: every way that they travel, on real GPUs or on fake ones.

``MPICOLL_TEST_GPU=1`` asks for real ones.
"""

from __future__ import annotations

import gc
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import fake_gpu
import numpy as np
import pytest
from expect import expected, input_shape, values
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
from run_collective import SCHEDULES as FORMS

from mpicoll import ArgumentError, Collectives, RankLost, Unavailable, Unsupported
from mpicoll.algorithms.registry import algorithms, find
from mpicoll.backend import DIRECT, IPC, STAGED
from mpicoll.bench.record import case_records
from mpicoll.calls import method_calls
from mpicoll.cli.watchdog import Watchdog
from mpicoll.gpu import ipc as device
from mpicoll.measurement.candidate import Settings
from mpicoll.measurement.cases import CUDA, Wanted, cases, groups
from mpicoll.measurement.gpu_copy import copy_bandwidth
from mpicoll.measurement.measure import Bench
from mpicoll.memory import slots
from mpicoll.notation.elements import DTYPES
from mpicoll.records.description import Run
from mpicoll.selection import tables
from mpicoll.selection.auto import layout
from mpicoll.tune import run as tuning

REAL = os.environ.get("MPICOLL_TEST_GPU", "") not in ("", "0")
SCHEDULES = [(name, text) for name, text in EVERY if text != "auto" and "native" not in text]
SOME = SCHEDULES if REAL else FORMS
"""Through the host all are messages, and differ in nothing that fake GPUs would show."""
MESSAGES = "messages"
OVER_IPC = [
    each for each in SCHEDULES if each in SOME or not (OVER_TORCH and find(*each).needs.holds(3))
]
"""A program over IPC is the same whosever arrays lie there: MPI's ranks run it where three can."""
LARGE = [(*each, IPC) for each in OVER_IPC] + [(*each, MESSAGES) for each in SOME]
SMALL = [(*each, way) for each in SOME for way in (IPC, MESSAGES)]
"""Fewer, as small messages pass by one kind of slots, and large ones by all that there is."""
NATIVES = [(name, text) for name, text in EVERY if text == "auto" or "native" in text]


@pytest.fixture(scope="module")
def g(c: Collectives) -> Iterator[Collectives]:
    """A group of its own whose ranks have a GPU each, or share one."""
    part = c.split(0)
    assert part is not None
    if not REAL:
        fake_gpu.install(part)
    yield part
    part.free()


@pytest.fixture(params=[IPC, MESSAGES])
def way(request: pytest.FixtureRequest, g: Collectives) -> str:
    """By memory that ranks share, or by messages: staged, or direct where a library reads GPUs."""
    return IPC if request.param == IPC else g.transport.gpu_transport


@pytest.fixture
def fresh(c: Collectives) -> Iterator[Any]:
    """A group, on fake GPUs, that nothing has been opened on."""
    if REAL:
        pytest.skip("the fake ones")
    part = c.split(0)
    assert part is not None
    if part.size == 1 or part.transport.shared is None:
        pytest.skip("nothing is shared")
    arrays = fake_gpu.install(part)
    yield part, arrays
    part.free()


@pytest.fixture
def by_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hosts, instead of streams, wait for flags and raise them."""
    monkeypatch.setenv(device.ORDER, "0")


@pytest.fixture
def tiny(c: Collectives, g: Collectives, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every message a large one: in place, in pieces and tiles, and no double slots."""
    monkeypatch.setattr(device, "ZERO_COPY", 32)
    with suppress(Unavailable):
        store = g.routes.gpu_memory(g.gpu())
        monkeypatch.setattr(store, "tile", 64 if store.orders else 0)
    monkeypatch.setattr(slots, "RING_BYTES", 1200)
    monkeypatch.setattr(f"{type(c.transport).messages.__module__}.STAGED_PIECE", 64)


def check(
    g: Collectives, name: str, algorithm: str, row: tuple[int, ...], dtype: str = "int32",
    op: Any = "sum", root: int = 0, in_place: bool = False, way: str = "", counts: Any = None,
    skips: bool = True,
) -> None:  # fmt: skip
    """Run a plan several times on changing inputs; compare each result.

    Args:
        skips: a plan may be refused.
    """
    arrays = g.transport.arrays
    shapes = [input_shape(name, g.size, rank, row, counts) for rank in range(g.size)]
    x = on_gpu(g, values(shapes[g.rank], dtype, g.rank, op), dtype)
    try:
        plan = g.plan(
            name, x, op=op, root=root, counts=counts, out=x if in_place else None,
            algorithm=algorithm,
        )  # fmt: skip
    except (Unavailable, Unsupported) as refused:
        if not skips:
            raise
        pytest.skip(str(refused))
    with plan:
        if way and g.size > 1:
            assert way in plan.transport.split("+")
        for turn in range(4):
            inputs = [values(s, dtype, rank + 31 * turn, op) for rank, s in enumerate(shapes)]
            arrays.from_host(x, inputs[g.rank])
            if turn % 2:
                request = plan.start()
                while turn == 3 and not request.test():
                    time.sleep(0)
                request.wait()
            else:
                plan.run()
            wanted = expected(name, inputs, op, root, counts)[g.rank]
            if wanted is not None:
                assert not arrays.is_on_host(plan.out)
                compare(g, plan.out, wanted, dtype)
            if not in_place:
                np.testing.assert_array_equal(arrays.to_host(x), inputs[g.rank])


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


def test_a_part_of_a_group_has_the_turn_of_the_whole(c: Collectives) -> None:
    """Each process takes one GPU of its node, whichever group asks first."""
    part = c.split(c.rank)
    assert part is not None
    assert part.transport.gpu_turn == c.transport.gpu_turn
    part.free()


@pytest.mark.skipif(REAL, reason="the fake one is at hand at once")
def test_the_first_array_of_a_group_is_not_kept(fresh: Any) -> None:
    part, arrays = fresh
    x = arrays.empty((1000,), "int32", arrays.on_gpu(part.rank))
    part.routes.gpu_memory(x)
    kept = weakref.ref(x)
    del x
    gc.collect()
    assert kept() is None


@pytest.mark.skipif(REAL, reason="a real GPU is done by then")
@pytest.mark.usefixtures("by_hosts")
def test_a_new_plan_waits_for_what_the_last_one_reads(fresh: Any) -> None:
    """Its slots may lie where other ranks' slots lay, which this rank's GPU may still read."""
    part, arrays = fresh
    x = on_gpu(part, np.full(100, part.rank), "int32")
    with part.plan("allreduce", x, algorithm="one_shot@ipc") as plan:
        plan.run()
    assert arrays.stream(x).work
    with part.plan("allreduce", x, algorithm="one_shot@ipc"):
        assert not arrays.stream(x).work


@pytest.mark.skipif(REAL, reason="the fake one counts")
@pytest.mark.usefixtures("by_hosts")
def test_neighbouring_flags_wait_for_the_gpu_once(fresh: Any) -> None:
    part, arrays = fresh
    x = on_gpu(part, np.zeros((part.size, 9)), "int32")
    with part.plan("alltoall", x, algorithm="naive@ipc") as plan:
        plan.run()
        waits: list[object] = []
        gpu = arrays.gpus[arrays.gpu(x)]
        inner = gpu.current.synchronize
        gpu.current.synchronize = lambda: (waits.append(None), inner())
        plan.run()
        plan.run()
    assert len(waits) == 2  # one in each run, however many ranks there are


@pytest.mark.parametrize(
    ("name", "row", "lack"),
    [(name, row, "unordered") for name in ("allreduce", "alltoall", "scan", "broadcast")
     for row in (11, 20_000)] + [("allreduce", 11, "wordless")],
)  # fmt: skip
def test_hosts_keep_the_order_where_one_gpu_cannot(
    fresh: Any, name: str, row: int, lack: str
) -> None:
    part, arrays = fresh
    x = on_gpu(part, np.zeros(1), "int32")
    if part.rank == part.size - 1:
        setattr(arrays.gpus[arrays.gpu(x)], lack, "not supported")
    assert part.routes.gpu_memory(x).unordered == f"rank {part.size - 1}: not supported"
    for algorithm in (text for given, text in SOME if given == name):
        check(part, name, f"{algorithm}@ipc", (row,), way=IPC)


def test_hosts_keep_the_order_where_what_a_stream_writes_does_not_arrive(
    fresh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, _ = fresh
    if part.rank == part.size - 1:
        monkeypatch.setattr(fake_gpu.Batch, "put", lambda self, stream: None)
    why = f"rank {part.size - 1}: what a stream writes to memory of the host does not arrive"
    assert part.routes.gpu_memory(part.gpu()).unordered == why
    check(part, "allreduce", "ring@ipc", (11,), way=IPC)


def needs_streams(g: Collectives, plan: Any, x: Any) -> None:
    """Skip a test where no stream has to wait; fake ones can wait for flags."""
    if plan.transport != IPC:
        pytest.skip("nothing is shared")
    orders = g.routes.gpu_memory(x).orders
    if REAL and not orders:
        pytest.skip("hosts wait here")
    assert orders


def test_a_run_returns_before_the_others_begin(g: Collectives) -> None:
    """Streams wait for the other ranks, instead of hosts."""
    x = on_gpu(g, np.full(1000, g.rank + 1), "int32")
    with g.plan("allreduce", x, algorithm="ring") as plan:
        needs_streams(g, plan, x)
        for turn in range(1, 4):
            for rank in range(g.size):
                if g.rank == rank:
                    g.transport.arrays.from_host(x, np.full(1000, turn * (g.rank + 1)))
                    plan.run()
                g.exchange(None)
            compare(g, plan.out, np.full(1000, turn * sum(range(g.size + 1))), "int32")


@pytest.mark.skipif(REAL, reason="real ranks share a GPU, or have one each")
@pytest.mark.parametrize(("asked", "by_hosts", "tile"), [
    (None, False, 8 << 20), (None, True, 0), ("64", False, 64), ("0", False, 0),
])  # fmt: skip
def test_tiles_are_announced_between_gpus(
    fresh: Any, asked: str | None, by_hosts: bool, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where streams keep the order, and each rank has a GPU of its own or the user asks for it."""
    part, _ = fresh
    if by_hosts:
        monkeypatch.setenv(device.ORDER, "0")
    if asked is not None and part.rank == 0:
        monkeypatch.setenv(device.TILE, asked)
    shares = part.size > fake_gpu.GPUS
    assert part.routes.gpu_memory(part.gpu()).tile == (0 if shares and asked is None else tile)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.usefixtures("tiny")
def test_hosts_announce_tiles_where_streams_do_not(
    fresh: Any, in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layout has a flag for each tile, whoever raises it."""
    part, _ = fresh
    monkeypatch.setenv(device.ORDER, "0")
    monkeypatch.setattr(part.routes.gpu_memory(part.gpu()), "tile", 64)
    for name, text in (("broadcast", "binomial"), ("allreduce", "ring"), ("scan", "linear")):
        check(part, name, f"{text}@ipc", (203,), way=IPC, in_place=in_place)


def test_no_number_of_bytes_is_told(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    part, _ = fresh
    if part.rank == 0:
        monkeypatch.setenv(device.TILE, "8M")
    with pytest.raises(Unavailable, match="rank 0: MPICOLL_IPC_TILE='8M' is no number of bytes"):
        part.routes.gpu_memory(part.gpu())


def test_a_rank_that_does_not_come_ends_the_wait_of_a_stream(c: Collectives) -> None:
    """The stream is let go at the deadline, and the plan's next run says why."""
    part = c.split(0)
    assert part is not None
    if not REAL:
        fake_gpu.install(part)
    x = on_gpu(part, np.ones(1000), "int32")
    plan = part.plan("allreduce", x, algorithm="ring")
    needs_streams(part, plan, x)
    last = part.size - 1
    if part.rank != last:
        before, part.deadline = part.deadline, 0.5
        plan.run()
        part.transport.arrays.synchronize(x)
        for begin in (plan.run, plan.start):
            with pytest.raises(RankLost, match=r"allreduce ring, round \d+ of \d+: rank"):
                begin()
        part.deadline = before
    part.exchange(None)
    if part.rank == last:  # it learns of it when it waits itself
        with pytest.raises(RankLost, match="which has left it"):  # noqa: PT012
            while True:
                plan.run()
                time.sleep(0.1)
    plan.free()
    part.free()


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


def test_messages_between_host_and_gpu(g: Collectives) -> None:
    """What a rank sends from its GPU, another may receive on the host."""
    if g.size == 1 and not REAL:
        pytest.skip("torch's copies know nothing of the fake stream")
    if g.transport.gpu_transport == DIRECT and OVER_TORCH:
        pytest.skip("NCCL's messages from GPU memory never meet gloo's into host memory")
    right, left = (g.rank + 1) % g.size, (g.rank - 1) % g.size
    arrays = g.transport.arrays
    sent = on_gpu(g, np.arange(1000) + g.rank, "int32")
    for received in (arrays.empty((1000,), "int32"), arrays.empty((1000,), "int32", g.gpu())):
        request = g.isend(sent, right, 3)
        g.recv(received, left, 3)
        request.wait()
        compare(g, received, np.arange(1000) + left, "int32")


@pytest.mark.skipif(REAL, reason="a real stream may do at once what a fake one does late")
@pytest.mark.parametrize("tests", [False, True])
def test_a_message_arrives_on_the_stream_on_which_it_was_awaited(fresh: Any, tests: bool) -> None:
    """It is not written before that stream has read what was there; whoever waits finds it."""
    part, arrays = fresh
    right, left = (part.rank + 1) % part.size, (part.rank - 1) % part.size
    sent = on_gpu(part, np.arange(1000) + part.rank, "int32")
    received, before = (on_gpu(part, np.full(1000, -1), "int32") for _ in range(2))
    arrays.synchronize(received)
    first, second = (fake_gpu.Stream(arrays.gpus[arrays.gpu(sent)]) for _ in range(2))
    request = part.isend(sent, right, 3)
    with first.use():
        arrays.copy(before, received)
        receiving = part.irecv(received, left, 3)
        while tests and not receiving.test():
            time.sleep(0)
    with second.use():
        receiving.wait()
        compare(part, received, np.arange(1000) + left, "int32")
        compare(part, before, np.full(1000, -1), "int32")
    request.wait()


@pytest.mark.skipif(REAL, reason="a graph that is spoiled ends the others' calls, too")
def test_a_graph_captures_no_message_by_the_host(fresh: Any) -> None:
    part, arrays = fresh
    x = on_gpu(part, np.ones(10), "int32")
    arrays.synchronize(x)
    arrays.stream(x).capturing = True
    peer = (part.rank + 1) % part.size
    begins = [partial(each, x, peer, 3) for each in (part.isend, part.irecv)]
    with part.plan("allreduce", x, algorithm="native") as plan:
        for begin in (*begins, plan.run, plan.start):
            with pytest.raises(Unsupported, match="CUDA graph"):
                begin()
        arrays.stream(x).capturing = False
        plan.run()
        compare(part, plan.out, np.full(10, part.size), "int32")


def test_what_cannot_be_had_is_told(g: Collectives) -> None:
    x = on_gpu(g, np.zeros(4), "float32")
    host = g.transport.arrays.empty((4,), "float32")
    with pytest.raises(Unavailable, match="for arrays on a GPU: ipc is theirs"):
        g.plan("allreduce", x, algorithm="ring@symmetric")
    with pytest.raises(Unavailable, match="no ipc transport for arrays on the host"):
        g.plan("allreduce", host, algorithm="ring@ipc")
    other = DIRECT if g.transport.gpu_transport == STAGED else STAGED
    with pytest.raises(Unavailable, match=f"GPU arrays travel {g.transport.gpu_transport} here"):
        g.plan("allreduce", x, algorithm=f"ring@{other}")
    ways = g.gpu_transports()
    assert ways[g.transport.gpu_transport] == ""
    assert ways[other]


def test_host_and_gpu_do_not_mix(g: Collectives) -> None:
    if g.size == 1:
        pytest.skip("one rank cannot disagree")
    x = on_gpu(g, np.zeros(4), "float32")
    if g.rank:
        x = g.transport.arrays.empty((4,), "float32")
    with pytest.raises(ArgumentError, match="device"):
        g.allreduce(x)


@pytest.mark.parametrize("other", ["the host", "GPU"])
def test_input_and_output_lie_on_one_device(g: Collectives, other: str) -> None:
    """One rank's mistake is everyone's error, before any data is sent."""
    arrays = g.transport.arrays
    if REAL and other == "GPU":
        pytest.skip("takes a second GPU")
    x, out = (on_gpu(g, np.zeros(4), "float32") for _ in range(2))
    if g.rank == g.size - 1:
        like = None if other == "the host" else arrays.on_gpu(arrays.gpu(x) + 1)
        out = arrays.empty((4,), "float32", like)
    for call in (g.plan, lambda name, x, out: g.allreduce(x, out=out)):
        with pytest.raises(ArgumentError, match=f"out lies on {other}.* where x lies on GPU"):
            call("allreduce", x, out=out)


@pytest.mark.skipif(REAL, reason="a real driver cannot be made to refuse")
@pytest.mark.parametrize("broken", ["no driver", "no handles", "wrong memory", "switched off"])
def test_gpus_that_share_no_memory(
    c: Collectives, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank that cannot share makes all take the other way, and says why."""
    part = c.split(0)
    assert part is not None
    if c.size == 1 or part.transport.shared is None:
        pytest.skip("nothing is shared")
    arrays: Any = fake_gpu.install(part)
    if part.rank == part.size - 1:
        if broken == "no driver":
            monkeypatch.setattr(part.transport, "driver", _no_driver)
        elif broken == "no handles":
            for gpu in arrays.gpus:
                gpu.refuses = "no handles"
        elif broken == "switched off":
            monkeypatch.setenv(device.SWITCH, "0")
        else:
            for gpu in arrays.gpus:
                monkeypatch.setattr(gpu, "open", lambda handle: arrays.memory.base)
    x = on_gpu(part, np.ones(4), "float32")
    with pytest.raises(Unavailable, match=f"rank {part.size - 1}"):
        part.plan("allreduce", x, algorithm="ring@ipc")
    with part.plan("allreduce", x, algorithm="ring") as plan:
        assert plan.transport == STAGED
        plan.run()
        compare(part, plan.out, np.full(4, part.size), "float32")
    part.free()


@pytest.mark.skipif(REAL, reason="a real driver cannot be made to refuse")
def test_a_pair_that_shares_no_memory_sends_messages(
    c: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other pairs of the node still read each other's memory."""
    part = c.split(0)
    assert part is not None
    if c.size < 3 or part.transport.shared is None:
        pytest.skip("takes another pair")
    arrays: Any = fake_gpu.install(part)
    ours = f"/proc/{os.getpid()}/"
    last = part.exchange(ours)[-1]
    if part.rank == 0:
        for gpu in arrays.gpus:
            opens = gpu.open

            def refuse(handle: bytes, opens: Any = opens) -> int:
                if handle.startswith(last.encode()):
                    raise Unavailable("peer access is not supported between these two devices")
                return int(opens(handle))

            monkeypatch.setattr(gpu, "open", refuse)
    store = part.routes.gpu_memory(part.gpu())
    lost = {0: part.size - 1, part.size - 1: 0}.get(part.rank)
    assert set(range(part.size)) - store.peers == {part.rank, lost} - {None}
    assert f"rank 0 cannot open the memory of rank {part.size - 1}" in store.partial
    assert part.gpu_transports()[IPC] == ""
    for name in ("allreduce", "gather", "alltoall"):
        for each in filter(partial(serves, part), algorithms(name)):
            for row in ((11,), (40_000,)):
                check(part, name, f"{each}@ipc", row, way=STAGED)
    part.free()


def _no_driver(device: int) -> Any:
    raise Unavailable("no CUDA driver: libcuda.so.1 is missing")


@pytest.mark.skipif(REAL, reason="real memory has handles")
def test_memory_without_a_handle_is_copied(g: Collectives, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver opens its own memory only, messages go through slots."""
    if g.size == 1 or g.transport.shared is None:
        pytest.skip("nothing is shared")
    check(g, "allreduce", "two_shot@ipc", (300_001,), way=IPC)
    arrays: Any = g.transport.arrays
    for gpu in arrays.gpus:
        monkeypatch.setattr(gpu, "pooled", "virtual memory has no handle")
    check(g, "allreduce", "two_shot@ipc", (300_001,), way=IPC, skips=False)
    check(g, "reduce", "binomial@ipc", (300_001,), way=IPC, skips=False)


@pytest.mark.skipif(REAL, reason="real memory has handles")
def test_segments_have_handles_where_the_framework_has_none(fresh: Any) -> None:
    """As under expandable segments, cudaMallocAsync and RMM."""
    part, arrays = fresh
    for gpu in arrays.gpus:
        gpu.pooled = "a pool's memory has no handle"
    check(part, "allreduce", "two_shot@ipc", (300_001,), way=IPC, skips=False)


@pytest.mark.skipif(REAL, reason="a real driver cannot be made to refuse")
def test_memory_that_one_rank_cannot_open_is_copied(fresh: Any) -> None:
    """The others must not wait for a run that this rank cannot begin."""
    part, arrays = fresh
    check(part, "allreduce", "two_shot@ipc", (1000,), way=IPC)
    if part.rank == part.size - 1:
        for gpu in arrays.gpus:
            gpu.closed = "no peer access"
    check(part, "allreduce", "two_shot@ipc", (100_000,), way=IPC, skips=False)


@pytest.mark.skipif(REAL, reason="a real GPU is not filled by one rank")
@pytest.mark.parametrize("error", [MemoryError, RuntimeError])
@pytest.mark.parametrize("gives_out", [True, False])
def test_a_gpu_without_room_is_known_to_all(
    fresh: Any, error: type[Exception], gives_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For scratch memory, or for the output."""
    part, arrays = fresh
    x, out = (on_gpu(part, np.ones(100), "float32") for _ in range(2))
    part.routes.gpu_memory(x)
    # Only some schedules need scratch memory: all ask for some, if none.
    if part.rank == part.size - 1:

        def empty(*_given: object) -> Any:
            raise error("out of memory")

        monkeypatch.setattr(arrays, "empty", empty)
    with pytest.raises(Unavailable, match=f"rank {part.size - 1}: out of memory"):
        part.plan("allreduce", x, out=out if gives_out else None, algorithm="two_shot@ipc")


@pytest.mark.skipif(REAL, reason="needs two GPUs for a rank")
def test_arrays_on_another_gpu_than_the_first(fresh: Any) -> None:
    """Each GPU has a stream of its own to wait for."""
    part, arrays = fresh
    for turn in (part.rank, part.rank + 1, 0, 1):
        like = arrays.on_gpu(turn)
        x, out = (arrays.empty((1000,), "int32", like) for _ in range(2))
        with part.plan("allreduce", x, out=out, algorithm="one_shot@ipc") as plan:
            arrays.from_host(x, np.full(1000, part.rank + turn))
            plan.run()
            wanted = sum(part.exchange(part.rank + turn))
            compare(part, out, np.full(1000, wanted), "int32")


@pytest.mark.skipif(REAL, reason="test_real_gpu.py has its own")
@pytest.mark.parametrize("way", [IPC, STAGED])
def test_a_started_plan_stays_on_its_stream(fresh: Any, way: str) -> None:
    """Whoever waits for it on another stream gets its results there, too."""
    part, arrays = fresh
    x, out = (on_gpu(part, np.zeros(1000), "int32") for _ in range(2))
    first, second = (fake_gpu.Stream(arrays.gpus[arrays.gpu(x)]) for _ in range(2))
    with part.plan("allreduce", x, out=out, algorithm=f"ring@{way}") as plan:
        for turn in range(3):
            with first.use():
                arrays.from_host(x, np.full(1000, part.rank + turn))
                request = plan.start()
            with second.use():
                request.wait()
                assert len(second.work) <= 1  # it only follows the first
                wanted = sum(range(part.size)) + turn * part.size
                compare(part, out, np.full(1000, wanted), "int32")
            first.synchronize()


@pytest.mark.skipif(REAL, reason="test_real_gpu.py has its own")
def test_runs_on_two_streams_are_in_order(fresh: Any) -> None:
    part, arrays = fresh
    x, out = (on_gpu(part, np.zeros(1000), "int32") for _ in range(2))
    arrays.synchronize(x)
    streams = [fake_gpu.Stream(arrays.gpus[arrays.gpu(x)]) for _ in range(2)]
    with part.plan("allreduce", x, out=out, algorithm="one_shot@ipc") as plan:
        with streams[0].use():
            arrays.from_host(x, np.full(1000, part.rank))
            plan.run()
        with streams[1].use():
            plan.run()
            arrays.synchronize(x)
        assert not streams[0].work


@pytest.mark.skipif(REAL, reason="test_real_gpu.py has its own")
@pytest.mark.usefixtures("by_hosts")
@pytest.mark.parametrize("way", [IPC, STAGED])
def test_a_captured_stream_is_refused(fresh: Any, way: str) -> None:
    """A plan that a graph cannot capture says so, and stays as it is."""
    part, arrays = fresh
    x = on_gpu(part, np.ones(10), "int32")
    stream = arrays.stream(x)
    with part.plan("allreduce", x, algorithm=f"ring@{way}") as plan:
        stream.capturing = True
        for begin in (plan.run, plan.start):
            with pytest.raises(Unsupported, match="CUDA graph"):
                begin()
        stream.capturing = False
        plan.run()
        compare(part, plan.out, np.full(10, part.size), "int32")


@pytest.mark.skipif(REAL, reason="the fake one counts")
def test_mappings_are_closed_with_their_plans(g: Collectives) -> None:
    if g.size == 1 or g.transport.shared is None:
        pytest.skip("nothing is shared")
    store = g.routes.gpu_memory(g.gpu())
    gc.collect()
    before = len(store.opened)
    for _ in range(3):
        check(g, "allreduce", "two_shot@ipc", (100_000,), way=IPC)
    gc.collect()
    assert len(store.opened) == before


def test_the_harness_measures_gpu_arrays(g: Collectives) -> None:
    """Records say where the arrays lay, which way they went, and both times."""
    wanted = Wanted(
        collectives=("allreduce", "scatter"), sizes=(4096,), device=CUDA,
        algorithms=("ring@ipc", "ring@staged", "binomial@ipc", "auto"),
    )  # fmt: skip
    bench = Bench({g.backend: g}, Settings(samples=3, min_samples=3), Watchdog(0))
    found = [
        record
        for group in groups(wanted, g.size)
        for record in case_records(
            bench, bench.measure(cases(group, bench.worlds, wanted), 1.0), Run()
        )
    ]
    assert {each.device for each in found} == {CUDA}
    ran = [each for each in found if not each.message]
    assert {each.algorithm for each in ran} >= {"native", "auto"}
    for each in ran:
        assert each.correct is True
        assert each.time_us.median > 0
        assert each.host_us is not None and each.host_us.median > 0
        asked = each.algorithm.partition("@")[2]
        if asked and g.size > 1:
            assert each.transport == asked


def test_a_table_is_measured_on_gpus(g: Collectives, tmp_path: Path) -> None:
    """`auto` of arrays there reads it, and no other's."""
    path = Path(g.exchange(str(tmp_path / "table.json"))[0])
    wanted = Wanted(("allreduce",), (), (4096,), device=CUDA)
    given = (g.backend,), 1.0, path, 0.0, None
    tuning.run(tuning.Options(wanted, *given, resume=False), {g.backend: lambda interface: g})
    key = g.backend, g.transport.library, layout(g.nodes), path
    gpu = g.transport.arrays.gpu_name(g.gpu())
    assert "allreduce" in tables.load(*key, gpu)
    assert tables.load(*key) == {}


def test_copy_bandwidth_is_that_of_one_rank(g: Collectives) -> None:
    found = g.exchange(copy_bandwidth(g, g.gpu(), 1 << 20))
    assert found[0] > 0 and set(found) == {found[0]}
