"""GPU memory that ranks share: pairs without peer access, memory without handles, and tiles."""

from __future__ import annotations

import gc
import os
import weakref
from functools import partial
from typing import Any

import fake_gpu
import numpy as np
import pytest
from gpu_plans import REAL, check
from run_collective import compare, on_gpu, serves

from mpicoll import Collectives, Unavailable
from mpicoll.algorithms.registry import algorithms
from mpicoll.backend import IPC, STAGED
from mpicoll.gpu import ipc as device


@pytest.mark.skipif(REAL, reason="the fake one is at hand at once")
def test_the_first_array_of_a_group_is_not_kept(fresh: Any) -> None:
    part, arrays = fresh
    x = arrays.empty((1000,), "int32", arrays.on_gpu(part.rank))
    part.routes.gpu_memory(x)
    kept = weakref.ref(x)
    del x
    gc.collect()
    assert kept() is None


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
