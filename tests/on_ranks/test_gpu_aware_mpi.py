"""Natives of an MPI that reads GPU memory, pretended on fake GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import fake_gpu
import numpy as np
import pytest
from run_collective import compare

from mpicoll import Collectives, Unavailable
from mpicoll.backend import DIRECT, STAGED, NativeCall

messages = pytest.importorskip("mpicoll.mpi.messages")
natives = pytest.importorskip("mpicoll.mpi.natives")
pytest.importorskip("mpicoll.mpi.requests")
transports = pytest.importorskip("mpicoll.mpi.transport")
awareness = pytest.importorskip("mpicoll.mpi.gpu_awareness")
COUNT = 50


@pytest.fixture
def g(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collectives]:
    """A group of its own whose MPI says that it reads GPU memory."""
    if c.backend != "mpi4py":
        pytest.skip("of MPI")
    part = c.split(0)
    assert part is not None
    fake_gpu.install(part)
    monkeypatch.setattr(part.transport, "gpu", awareness.GpuAwareness(True, "pretended"))
    yield part
    part.free()


def on_gpu(g: Collectives, host: Any) -> Any:
    array = g.transport.arrays.empty(host.shape, "int32", g.gpu())
    g.transport.arrays.from_host(array, host)
    return array


@pytest.fixture
def started(g: Collectives, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each native that is started or persistent, whether its input is on the GPU."""
    found: list[bool] = []
    bind = natives.bind

    def noted(comm: Any, arrays: Any, peers: Any, call: NativeCall, *, persistent: bool) -> Any:
        native = bind(comm, arrays, peers, call, persistent=persistent)
        lies_on_gpu = not arrays.is_on_host(call.x)

        def start() -> Any:
            found.append(lies_on_gpu)
            return native.start()

        if persistent:
            found.append(lies_on_gpu)
        return native._replace(start=start)

    monkeypatch.setattr(natives, "bind", noted)
    return found


@pytest.mark.parametrize("open_mpi", [True, False])
@pytest.mark.parametrize("name", ["allreduce", "reduce", "scan", "allgather"])
def test_started_reductions_of_open_mpi_go_through_the_host(
    g: Collectives, started: list[bool], name: str, open_mpi: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transports, "_FOLDS_STARTED_ON_HOST", open_mpi)
    x = on_gpu(g, np.arange(COUNT) + g.rank)
    with g.plan(name, x, algorithm="native") as plan:
        assert plan.transport == DIRECT
        plan.run()
        assert not started
        every = np.array([np.arange(COUNT) + rank for rank in range(g.size)])
        wanted = {"allgather": every, "scan": every[: g.rank + 1].sum(0)}.get(name, every.sum(0))
        for _ in range(2):
            plan.start().wait()
            if plan.out is not None:
                compare(g, plan.out, wanted, "int32")
        assert started == [not open_mpi or name == "allgather"] * 2


def test_persistent_reductions_of_open_mpi_go_through_the_host(
    g: Collectives, started: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transports, "_FOLDS_STARTED_ON_HOST", True)
    x = on_gpu(g, np.full(COUNT, g.rank))
    try:
        plan = g.plan("allreduce", x, algorithm="native_persistent")
    except Unavailable as refused:
        pytest.skip(str(refused))
    with plan:
        assert (plan.transport, started) == (STAGED, [False])
        plan.run()
        compare(g, plan.out, np.full(COUNT, sum(range(g.size))), "int32")


def test_the_first_gpu_array_waits_for_a_trial(
    g: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process of a node tries, and all take the way that it finds."""
    transport: Any = g.transport
    claim = replace(transport.gpu, is_sure=False)
    monkeypatch.setattr(transport, "gpu", claim)
    tried: list[int] = []
    monkeypatch.setattr(
        "mpicoll.mpi.gpu_trial.obstacle", lambda gpu: tried.append(gpu) or "signal 11"
    )
    x = on_gpu(g, np.full(COUNT, g.rank))
    assert transport._needs_staging(x)
    with g.plan("allreduce", x, algorithm="native") as plan:
        assert plan.transport == STAGED
        plan.run()
        compare(g, plan.out, np.full(COUNT, sum(range(g.size))), "int32")
    assert len(tried) == (g.rank in [node[0] for node in g.nodes])
    assert "signal 11" in transport.gpu.reason


def test_bfloat16_travels_as_bytes() -> None:
    """Neither CuPy's DLPack nor mpi4py knows it."""
    memory = np.zeros(8, "uint16")
    array = SimpleNamespace(dtype=SimpleNamespace(name="bfloat16"), nbytes=16, view=memory.view)
    data, count, _ = messages.as_buffer(array)
    assert (data.dtype, count) == (np.uint8, 16)
