"""Messages over NCCL: what all ranks must do together and in one order.

On a fake of it; ``MPICOLL_TEST_GPU=1`` asks for the real one, where the ranks have it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import fake_nccl
import numpy as np
import pytest
from run_collective import compare

from mpicoll import ArgumentError, Collectives, RankLost, Unavailable
from mpicoll.backend import DIRECT
from mpicoll.gpu.nccl import BLOCKING

torch = pytest.importorskip("torch")
pytest.importorskip("torchcoll.groups")
requests = pytest.importorskip("torchcoll.requests")
COUNT = 50
REAL = os.environ.get("MPICOLL_TEST_GPU", "") not in ("", "0")


@pytest.fixture
def g(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collectives]:
    """A group of its own, whose ranks NCCL has not connected yet."""
    if c.backend != "torch" or c.size == 1:
        pytest.skip("NCCL is torch's, and carries messages between ranks")
    if REAL and c.transport.nccl is None:  # type: ignore[attr-defined]
        pytest.skip("these ranks have no NCCL")
    part = c.split(0)
    assert part is not None
    communicator = None if REAL else fake_nccl.install(part, monkeypatch)
    yield part
    part.deadline = 60.0
    part.exchange(None)
    if communicator is not None:
        communicator.close()
    part.free()


def on_gpu(g: Collectives, host: Any, dtype: str = "int32") -> Any:
    arrays = g.transport.arrays
    array = arrays.empty(host.shape, dtype, g.gpu())
    arrays.from_host(array, host)
    return array


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [("broadcast", "chain"), ("broadcast", "binomial"), ("reduce", "binomial"),
     ("allreduce", "ring"), ("allgather", "bruck")],
)  # fmt: skip
def test_schedules_travel_direct(g: Collectives, name: str, algorithm: str) -> None:
    x = on_gpu(g, np.arange(COUNT) + g.rank)
    plan = g.plan(name, x, algorithm=f"{algorithm}@{DIRECT}")
    assert plan.transport == DIRECT
    every = np.array([np.arange(COUNT) + rank for rank in range(g.size)])
    wanted = {"broadcast": every[0], "allgather": every}.get(name, every.sum(0))
    for turn in range(3):
        if turn:
            plan.start().wait()
        else:
            plan.run()
        if plan.out is not None:
            compare(g, plan.out, wanted, "int32")


@pytest.mark.parametrize("count", [COUNT, 40_000])
@pytest.mark.parametrize(("name", "algorithm"), [("broadcast", "binomial"), ("allreduce", "ring")])
def test_nccl_joins_nodes_whose_ranks_read_each_others_gpus(
    g: Collectives, name: str, algorithm: str, count: int
) -> None:
    if len(g.nodes) == 1:
        pytest.skip("takes two nodes")
    x = on_gpu(g, np.arange(count))
    with g.plan(name, x, algorithm=f"{algorithm}@ipc") as plan:
        assert plan.transport == f"ipc+{DIRECT}"
        for turn in range(3):
            g.transport.arrays.from_host(x, np.arange(count) + g.rank + turn)
            plan.start().wait() if turn % 2 else plan.run()
            every = np.array([np.arange(count) + rank + turn for rank in range(g.size)])
            compare(g, plan.out, every[0] if name == "broadcast" else every.sum(0), "int32")


def test_a_rank_may_have_no_message_at_all(g: Collectives) -> None:
    counts = [COUNT] * (g.size - 1) + [0]
    x = on_gpu(g, np.full(counts[g.rank], g.rank))
    plan = g.plan("gather", x, counts=counts, algorithm=f"naive@{DIRECT}")
    plan.run()
    if g.rank == 0:
        compare(g, plan.out, np.repeat(np.arange(g.size), counts), "int32")


def test_a_message_before_all_ranks_are_connected_is_refused(g: Collectives) -> None:
    x = on_gpu(g, np.zeros(COUNT))
    if g.rank == 0:
        with pytest.raises(Unavailable, match=r"let each call gpu_transports\(\)"):
            g.isend(x, 1)
    assert g.gpu_transports()[DIRECT] == ""
    if g.rank == 0:
        g.send(x, 1)
    if g.rank == 1:
        g.recv(x, 0)
        compare(g, x, np.zeros(COUNT), "int32")


def test_two_ranks_send_each_other_at_once(g: Collectives) -> None:
    g.gpu_transports()
    x, out = on_gpu(g, np.arange(COUNT) + g.rank), on_gpu(g, np.zeros(COUNT))
    peer = g.rank ^ 1
    if peer < g.size:
        g.sendrecv(x, peer, out)
        compare(g, out, np.arange(COUNT) + peer, "int32")
    right, left = (g.rank + 1) % g.size, (g.rank - 1) % g.size
    g.sendrecv(x, right, out, left)
    compare(g, out, np.arange(COUNT) + left, "int32")


def test_started_plans_do_not_take_each_others_messages(g: Collectives) -> None:
    """Each rank tests and waits in an order of its own."""
    plans = []
    for turn in range(4):
        x = on_gpu(g, np.full(COUNT, g.rank + turn))
        plans.append(g.plan("allreduce", x, algorithm=f"ring@{DIRECT}"))
    requests = []
    for turn, plan in enumerate(plans):
        requests.append(plan.start())
        if (turn + g.rank) % 2:
            requests[0].test()
    order = [(each + g.rank) % len(plans) for each in range(len(plans))]
    for turn in order:
        requests[turn].wait()
    for turn, plan in enumerate(plans):
        wanted = np.full(COUNT, sum(range(g.size)) + turn * g.size)
        compare(g, plan.out, wanted, "int32")


def test_host_and_gpu_do_not_mix_in_one_exchange(g: Collectives) -> None:
    g.gpu_transports()
    x, out = on_gpu(g, np.zeros(COUNT)), g.transport.arrays.empty((COUNT,), "int32")
    with pytest.raises(ArgumentError, match="one lies on a GPU and one on the host"):
        g.sendrecv(x, (g.rank + 1) % g.size, out, (g.rank - 1) % g.size)


def test_a_gpu_that_is_not_the_current_one_is_refused_on_all_ranks(
    g: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = on_gpu(g, np.zeros(COUNT))
    if g.rank == g.size - 1:
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    wanted = f"rank {g.size - 1} gives a tensor on {x.device} to NCCL, but its current GPU is 3"
    with pytest.raises(Unavailable, match=wanted):
        g.plan("allreduce", x, algorithm="ring")
    assert all(wanted in why for why in g.gpu_transports().values())


def test_what_starts_no_messages_together_is_refused(g: Collectives) -> None:
    if REAL:
        pytest.skip("torch's own does")
    if g.rank == g.size - 1:
        g.transport.nccl.group.supports_coalescing = False  # type: ignore[attr-defined]
    with pytest.raises(Unavailable, match=f"rank {g.size - 1}: what serves NCCL"):
        g.plan("allreduce", on_gpu(g, np.zeros(COUNT)), algorithm=f"ring@{DIRECT}")


def test_another_gpu_than_the_one_that_connects_the_ranks_is_refused(g: Collectives) -> None:
    if REAL:
        pytest.skip("takes a second GPU")
    g.transport.nccl.device = torch.device("cuda", 7)  # type: ignore[attr-defined]
    with pytest.raises(Unavailable, match="connected this group's ranks by cuda:7: make a group"):
        g.plan("allreduce", on_gpu(g, np.zeros(COUNT)), algorithm="ring")


def test_windows_hold_tensors(g: Collectives) -> None:
    if not REAL:
        pytest.skip("a fake has no memory of NCCL's")
    try:
        x = g.allocate(1000, "float32", like=g.gpu())
        out = g.allocate(1000, "float32", like=g.gpu())
    except Unavailable as refused:
        pytest.skip(str(refused))
    for turn in range(3):
        g.transport.arrays.from_host(x, np.arange(1000) + g.rank + turn)
        for algorithm in ("native", "auto"):
            g.plan("allreduce", x, out=out, algorithm=algorithm).run()
            wanted = sum(np.arange(1000) + rank + turn for rank in range(g.size))
            compare(g, out, wanted, "float32")


def test_nccl_divides_a_mean_itself(g: Collectives, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchcoll.operations import Operation

    averages: list[str] = []
    plain_of = Operation.of

    def of(operation: Operation, group: Any) -> Any:
        method = plain_of(operation, group)

        def post(*arguments: Any) -> Any:
            if getattr(arguments[-1], "reduceOp", None) != torch.distributed.ReduceOp.AVG:
                return method(*arguments)
            return averages.append(operation.method)

        return post

    monkeypatch.setattr(Operation, "of", of)
    x = on_gpu(g, np.full(4, 6.0), "float32")
    with g.plan("allreduce", x, op="avg", out=x, algorithm="native") as plan:
        plan.run()
    assert averages == ["allreduce"]
    compare(g, x, np.full(4, 6.0), "float32")


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the host wait for NCCL."""
    if REAL:
        pytest.skip("an abort ends the group: tests/gpu/test_real_nccl.py has launches of its own")
    monkeypatch.setenv(BLOCKING, "1")


def test_a_rank_that_does_not_come_is_lost(g: Collectives, waits: None) -> None:
    plan = g.plan("allreduce", on_gpu(g, np.zeros(COUNT)), algorithm=f"ring@{DIRECT}")
    if g.rank == 0:
        g.deadline = 0.3
        with pytest.raises(RankLost, match=r"rank 0 waits for rank \d.* did not come in \d"):
            plan.run()
        with pytest.raises(RankLost, match="aborted"):
            g.isend(on_gpu(g, np.zeros(COUNT)), 1)
        group: Any = g.transport.group  # type: ignore[attr-defined]
        assert requests.nccl_of(group).open is None, "what comes next would wait in it"


def test_a_gpu_message_that_meets_a_host_one_names_the_reason(g: Collectives, waits: None) -> None:
    g.gpu_transports()
    g.deadline = 0.3
    if g.rank == 0:
        request = g.isend(on_gpu(g, np.zeros(COUNT)), 1)
        with pytest.raises(RankLost, match="sending a message in GPU memory, which never meets"):
            request.wait()
    if g.rank == 1:
        request = g.irecv(g.transport.arrays.empty((COUNT,), "int32"), 0)
        with pytest.raises(RankLost, match="receiving a message in host memory, which never meets"):
            request.wait()
