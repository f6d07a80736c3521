"""What only a real GPU shows: streams, kernels and dtypes of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from run_collective import compare

from mpicoll import Collectives, Unavailable
from mpicoll.interfaces import IPC, STAGED

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
