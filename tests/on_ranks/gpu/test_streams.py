"""Streams of GPUs: which of them wait, for whom, and what a graph cannot capture."""

from __future__ import annotations

import time
from typing import Any

import fake_gpu
import numpy as np
import pytest
from gpu_plans import REAL, SOME, check
from run_collective import compare, on_gpu

from mpicoll import Collectives, RankLost, Unsupported
from mpicoll.backend import IPC, STAGED


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
