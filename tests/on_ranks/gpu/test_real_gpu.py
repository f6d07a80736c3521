"""What only a real GPU shows: streams, kernels and dtypes of its own."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from run_collective import compare

from mpicoll import Collectives, Unavailable, Unsupported
from mpicoll.backend import IPC, STAGED

pytestmark = pytest.mark.gpu
SIZE = 1 << 20


@pytest.fixture(scope="module")
def like(c: Collectives) -> Any:
    """An empty array on this rank's GPU."""
    reasons = c.gpu_transports()
    if all(reasons.values()):
        pytest.skip(f"needs a GPU: {next(iter(reasons.values()))}")
    return c.gpu()


def plan(c: Collectives, x: Any, way: str, algorithm: str = "two_shot", op: str = "sum") -> Any:
    try:
        return c.plan("allreduce", x, op=op, algorithm=f"{algorithm}@{way}")
    except Unavailable as refused:
        pytest.skip(str(refused))


@pytest.mark.parametrize("way", [IPC, STAGED])
def test_the_callers_stream_is_respected(c: Collectives, like: Any, way: str) -> None:
    """Work that is still under way on the caller's stream comes first, and what follows last."""
    if c.backend == "mpi4py":
        import cupy as library

        stream: Any = library.cuda.Stream(non_blocking=True)
        on_stream, ones, matrix = stream, library.ones, library.ones((2048, 2048), "float32")
    else:
        import torch as library

        stream = library.cuda.Stream()
        on_stream = library.cuda.stream(stream)
        matrix = library.ones((2048, 2048), device="cuda")

        def ones(shape: Any, dtype: Any) -> Any:
            return library.ones(shape, dtype=getattr(library, dtype), device="cuda")

    c.transport.arrays.synchronize(matrix)
    with on_stream:
        x = ones(SIZE, "float32")
        with plan(c, x, way) as bound:
            for turn in range(1, 4):
                for _ in range(20):
                    matrix = matrix @ matrix * 0
                x += 1 + matrix[0, 0]
                bound.run()
                compare(c, bound.out + 0, np.full(SIZE, (turn + 1) * c.size), "float32")


def two_streams(c: Collectives) -> tuple[Any, Any]:
    """Return two streams of the library, each with what makes it the caller's."""
    if c.backend == "mpi4py":
        import cupy

        return tuple(cupy.cuda.Stream(non_blocking=True) for _ in range(2))  # type: ignore[return-value]
    import torch

    return tuple(torch.cuda.stream(torch.cuda.Stream()) for _ in range(2))  # type: ignore[return-value]


def keep_busy(like: Any, c: Collectives) -> None:
    """Put some milliseconds of work on the caller's stream."""
    arrays = c.transport.arrays
    x, y = (arrays.empty((64 << 20,), "uint8", like) for _ in range(2))
    copy = arrays.copier(x, y)
    for _ in range(100):
        copy()


@pytest.mark.parametrize("way", [IPC, STAGED])
@pytest.mark.parametrize("started", [False, True])
def test_runs_and_waits_on_different_streams(
    c: Collectives, like: Any, way: str, started: bool
) -> None:
    """The order of runs is that of the calls, and a wait on another stream gets the results."""
    arrays = c.transport.arrays
    x, out = (arrays.empty((SIZE,), "int32", like) for _ in range(2))
    arrays.from_host(x, np.zeros(SIZE))
    arrays.synchronize(x)
    first, second = two_streams(c)
    try:
        bound = c.plan("allreduce", x, out=out, algorithm=f"ring@{way}")
    except Unavailable as refused:
        pytest.skip(str(refused))
    with bound as plan:
        for turn in range(4):
            with first:
                keep_busy(like, c)
                arrays.from_host(x, np.full(SIZE, c.rank + turn))
                request = plan.start() if started else plan.run()
            with second:
                request.wait() if started else plan.run()
                compare(c, out, np.full(SIZE, sum(range(c.size)) + turn * c.size), "int32")


def recorded(c: Collectives, run: Any) -> Any:
    """Return what repeats a call that a CUDA graph has recorded."""
    if c.backend == "mpi4py":
        import cupy

        with cupy.cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            try:
                run()
            finally:
                graph = stream.end_capture()
            return lambda: (graph.launch(stream), stream.synchronize())
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return lambda: (graph.replay(), torch.cuda.synchronize())


@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "ring", "rabenseifner"])
@pytest.mark.parametrize("count", [100, SIZE])
def test_a_graph_repeats_a_plan(c: Collectives, like: Any, algorithm: str, count: int) -> None:
    """Between its repetitions the plan runs as ever."""
    arrays = c.transport.arrays
    x = arrays.empty((count,), "int32", like)
    arrays.from_host(x, np.ones(count))
    with plan(c, x, IPC, algorithm) as bound:
        if not c.routes.gpu_memory(x).orders:
            pytest.skip("hosts wait here")
        bound.run()  # makes the kernels
        arrays.synchronize(x)
        repeat = recorded(c, bound.run)
        for turn in range(1, 7):
            arrays.from_host(x, np.full(count, turn + c.rank))
            arrays.synchronize(x)
            bound.run() if turn % 3 == 0 else repeat()
            wanted = turn * c.size + sum(range(c.size))
            compare(c, bound.out, np.full(count, wanted), "int32")


def test_a_graph_cannot_record_what_a_host_waits_for(c: Collectives, like: Any) -> None:
    x = c.transport.arrays.empty((100,), "int32", like)
    c.transport.arrays.from_host(x, np.ones(100))
    with plan(c, x, c.transport.gpu_transport) as bound:
        bound.run()
        c.transport.arrays.synchronize(x)

        def run() -> None:
            with pytest.raises(Unsupported, match="CUDA graph"):
                bound.run()

        if c.transport.gpu_transport == STAGED:
            recorded(c, run)
        bound.run()
        compare(c, bound.out, np.full(100, c.size), "int32")


def test_plans_share_memory_from_a_pool_without_handles(c: Collectives, like: Any) -> None:
    """cudaMallocAsync's memory cannot be opened by others: it passes through slots."""
    if c.backend != "mpi4py":
        pytest.skip("torch's allocator is chosen when the process starts")
    import cupy

    with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
        x = c.transport.arrays.empty((SIZE,), "int32", like)
        c.transport.arrays.from_host(x, np.arange(SIZE))
        with plan(c, x, IPC) as bound:
            for _ in range(3):
                bound.run()
            compare(c, bound.out, np.arange(SIZE) * c.size, "int32")


def test_page_locked_memory_is_kept_until_it_has_been_copied(c: Collectives, like: Any) -> None:
    arrays, outs = c.transport.arrays, []
    for turn in range(8):
        x = arrays.empty((SIZE,), "int32", like)
        arrays.from_host(x, np.full(SIZE, turn))
        keep_busy(like, c)  # uploads wait, while the next message lands on the host
        with c.plan("broadcast", x, out=x, algorithm=f"binomial@{c.transport.gpu_transport}") as p:
            p.run()
        del p
        gc.collect()
        outs.append(x)
    for turn, out in enumerate(outs):
        compare(c, out, np.full(SIZE, turn), "int32")


def test_the_driver_works_in_a_thread_without_a_context(c: Collectives, like: Any) -> None:
    """The first calls of a group may come from any thread."""
    found: list[Any] = []

    def use() -> None:
        try:
            driver = c.transport.driver(c.transport.arrays.gpu(like))
            address = driver.allocate(1 << 20)
            found.append(driver.export(address + 5).offset)
            driver.free(address)
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert found == [5]


@pytest.mark.parametrize("op", ["min", "max"])
def test_nan_stays(c: Collectives, like: Any, op: str) -> None:
    x = c.transport.arrays.empty((100,), "float32", like)
    host = np.arange(100.0, dtype="float32")
    host[c.rank] = np.nan
    c.transport.arrays.from_host(x, host)
    with plan(c, x, IPC, "one_shot", op) as bound:
        bound.run()
        found = c.transport.arrays.to_host(bound.out)
    assert np.isnan(found[: c.size]).all()
    np.testing.assert_array_equal(found[c.size :], np.arange(c.size, 100.0))


@pytest.mark.parametrize("way", [IPC, STAGED])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint64", "complex64"])
def test_dtypes_fold_on_the_gpu(c: Collectives, like: Any, dtype: str, way: str) -> None:
    arrays = c.transport.arrays
    try:
        x = arrays.empty((SIZE + 3,), dtype, like)
    except Unavailable as refused:
        pytest.skip(str(refused))
    arrays.from_host(x, np.arange(SIZE + 3) % 7 + c.rank)
    with plan(c, x, way) as bound:
        for _ in range(2):
            bound.run()
        found = arrays.to_host(bound.out)
    wanted = np.arange(SIZE + 3) % 7 * c.size + c.size * (c.size - 1) // 2
    np.testing.assert_array_equal(found, wanted.astype(found.dtype))


def test_the_stopwatch_reads_the_gpu(c: Collectives, like: Any) -> None:
    arrays = c.transport.arrays
    x, y = (arrays.empty((SIZE,), "float32", like) for _ in range(2))
    watch = arrays.stopwatch()
    copy = arrays.copier(x, y)
    copy()
    watch.start()
    for _ in range(100):
        copy()
    watch.stop()
    assert 0 < watch.nanoseconds() < 10**9
