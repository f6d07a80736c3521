"""Run one collective on all ranks and compare with NumPy."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from expect import affine, case, input_shape

from mpicoll import Collectives, Unavailable, Unsupported
from mpicoll.algorithms.registry import Algorithm, algorithms
from mpicoll.calls.natives import COMPOSITIONS
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.notation.elements import OPS

ROWS = ("gather", "allgather", "scatter", "reduce_scatter")
UNEVEN = (*ROWS, "alltoall")
REDUCING = tuple(name for name, each in COLLECTIVES.items() if each.reduces)
ROOTED = tuple(name for name, each in COLLECTIVES.items() if each.rooted)
EVERY = [
    (name, algorithm)
    for name in COLLECTIVES
    if name != "barrier"
    for algorithm in (
        "auto",
        "native",
        "native_persistent",
        *(f"native:{pair}" for pair in COMPOSITIONS.get(name, ())),
        *map(str, algorithms(name)),
    )
]
EVERY_REDUCTION = [(name, algorithm) for name, algorithm in EVERY if name in REDUCING]

SCHEDULES = [
    ("broadcast", "binomial"), ("broadcast", "scatter_ring"), ("reduce", "binomial"),
    ("reduce", "one_shot"), ("allreduce", "ring"), ("allreduce", "one_shot"),
    ("allreduce", "recursive_doubling"), ("gather", "binomial"), ("allgather", "bruck(radix=2)"),
    ("scatter", "binomial"), ("reduce_scatter", "recursive_halving"),
    ("reduce_scatter", "direct"), ("alltoall", "pairwise"), ("alltoall", "bruck(radix=2)"),
    ("scan", "recursive_doubling"), ("exscan", "linear"),
]  # fmt: skip
"""A few of each form: folds on either side, of many operands; vectors, blocks, packed ones."""

OVER_TORCH = os.environ.get("MPICOLL_TEST_BACKEND") == "torch"
"""Whether these are ranks of a launch over torch."""


def device(c: Collectives, host: Any, dtype: str, like: Any = None) -> Any:
    """Return a backend array with NumPy's values, on the device of `like`."""
    arrays = c.transport.arrays
    array = arrays.empty(host.shape, dtype, like)
    arrays.from_host(array, host)
    return array


def on_gpu(c: Collectives, host: Any, dtype: str) -> Any:
    """Return an array on this rank's GPU with NumPy's values."""
    return device(c, host, dtype, c.gpu())


def buffers(c: Collectives, name: str, host: Any, dtype: str, counts: Any) -> tuple[Any, Any]:
    """Return ``x`` and ``out`` that share memory, in the collective's own in-place form."""
    x = device(c, host, dtype)
    if name not in ROWS:
        return x, x
    start = c.rank if counts is None else slice(sum(counts[: c.rank]), sum(counts[: c.rank + 1]))
    if name in ("scatter", "reduce_scatter"):
        return x, x[start]
    shape = (c.size, *host.shape) if counts is None else (sum(counts), *host.shape[1:])
    out = device(c, np.zeros(shape, host.dtype), dtype)
    own = out[start]
    c.transport.arrays.from_host(own, host)
    return own, out


def run(
    c: Collectives, name: str, algorithm: str, *, dtype: str = "int32", op: Any = "sum",
    root: int = 0, row: tuple[int, ...] = (11,), counts: Any = None, in_place: bool = False,
) -> None:  # fmt: skip
    """Run a plan twice, blocking and started, and compare both results."""
    shapes = tuple(input_shape(name, c.size, rank, row, counts) for rank in range(c.size))
    inputs, results = case(name, shapes, dtype, op, root, as_tuples(counts))
    own, wanted = inputs[c.rank], results[c.rank]
    x, out = buffers(c, name, own, dtype, counts) if in_place else (device(c, own, dtype), None)
    try:
        plan = c.plan(name, x, op=op, root=root, counts=counts, out=out, algorithm=algorithm)
    except (Unavailable, Unsupported) as refused:
        pytest.skip(str(refused))
    with plan:
        assert algorithm.partition("@")[0] in ("auto", plan.algorithm)
        plan.run()
        compare(c, plan.out, wanted, dtype)
        c.transport.arrays.from_host(x, own)
        finish(plan.start())
        compare(c, plan.out, wanted, dtype)
    if not in_place:
        assert_equal(c.transport.arrays.to_host(x), own, "x was modified")


def serves(c: Collectives, algorithm: Algorithm) -> bool:
    """Whether an algorithm serves these ranks, on these nodes."""
    try:
        algorithm.rounds(c.rank, c.size, 0, c.nodes)
    except Unsupported:
        return False
    return True


def finish(request: Any) -> None:
    """Poll a few times, then wait."""
    for _ in range(3):
        if request.test():
            return
    request.wait()


def compare(c: Collectives, out: Any, wanted: Any, dtype: str) -> None:
    """Assert that a result is exactly what is wanted, where anything is."""
    if wanted is None:
        return
    arrays = c.transport.arrays
    assert arrays.dtype(out) == dtype
    rounded = arrays.to_host(device(c, wanted, dtype, out))
    assert_equal(arrays.to_host(out), rounded)


def assert_equal(found: Any, wanted: Any, text: str = "") -> None:
    """Assert that arrays are equal; NumPy's own takes longer to find that they are."""
    if not np.array_equal(found, wanted):
        np.testing.assert_array_equal(found, wanted, text)


def as_tuples(counts: Any) -> Any:
    """Return counts as what can be a key."""
    return tuple(map(as_tuples, counts)) if isinstance(counts, list) else counts


def library(c: Collectives) -> str:
    """Return whose arrays these ranks have, ``numpy`` or ``torch``."""
    made = c.transport.arrays.empty((0,), "uint8")
    return type(made).__module__.partition(".")[0]


def carried(c: Collectives, dtype: str) -> None:
    """Skip where these ranks have no arrays of such a dtype."""
    if dtype == "bfloat16" and library(c) == "numpy":
        pytest.skip("NumPy has no bfloat16")


def pairs_of_op_and_dtype() -> list[tuple[str, str]]:
    """Return every operator with one dtype of each kind that it takes."""
    sample = {"b": "bool", "i": "int64", "u": "uint8", "f": "float64", "c": "complex128"}
    return [(op.name, sample[kind]) for op in OPS.values() for kind in op.kinds]


__all__ = [
    "EVERY", "EVERY_REDUCTION", "OVER_TORCH", "ROOTED", "SCHEDULES", "UNEVEN", "affine", "carried",
    "compare", "device", "library", "pairs_of_op_and_dtype", "run", "serves",
]  # fmt: skip
