"""What every collective must return, computed by NumPy from all ranks' inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce
from itertools import accumulate
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]
Function = Callable[[Any, Any], Any]

FUNCTIONS: dict[str, Function] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "avg": np.add,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "land": np.logical_and,
    "lor": np.logical_or,
}


def affine(left: Any, right: Any) -> Any:
    """Compose affine maps packed as ``16 a + b`` modulo 16: associative, not commutative."""
    a, b = left // 16, left % 16
    d, e = right // 16, right % 16
    return (a * d % 16) * 16 + (d * b + e) % 16


def expected(
    name: str, inputs: list[Values], op: str | Function, root: int, counts: Any
) -> list[Values | None]:
    """Return every rank's result; None where a rank has none or it is undefined."""
    size = len(inputs)
    dtype = inputs[0].dtype

    def fold(some: list[Values]) -> Values:
        function = FUNCTIONS[op] if isinstance(op, str) else op
        folded = reduce(lambda a, b: np.asarray(function(a, b)).astype(dtype), some)
        return (folded / len(some)).astype(dtype) if op == "avg" else folded

    def rows(whole: Values) -> list[Values]:
        if counts is None:
            return list(whole)
        return np.split(whole, list(accumulate(counts))[:-1])

    def only(value: Values) -> list[Values | None]:
        return [value if rank == root else None for rank in range(size)]

    if name == "barrier":
        return [None] * size
    if name == "broadcast":
        return [inputs[root]] * size
    if name == "reduce":
        return only(fold(inputs))
    if name == "allreduce":
        return [fold(inputs)] * size
    if name in ("gather", "allgather"):
        whole = np.stack(inputs) if counts is None else np.concatenate(inputs)
        return only(whole) if name == "gather" else [whole] * size
    if name == "scatter":
        return list(rows(inputs[root]))
    if name == "reduce_scatter":
        return list(rows(fold(inputs)))
    if name == "scan":
        return [fold(inputs[: rank + 1]) for rank in range(size)]
    if name == "exscan":
        return [None, *(fold(inputs[:rank]) for rank in range(1, size))]
    assert name == "alltoall"
    if counts is None:
        return [np.stack([inputs[source][rank] for source in range(size)]) for rank in range(size)]
    parts = [
        np.split(inputs[source], list(accumulate(counts[source]))[:-1]) for source in range(size)
    ]
    return [np.concatenate([parts[source][rank] for source in range(size)]) for rank in range(size)]


def input_shape(name: str, size: int, rank: int, row: tuple[int, ...], counts: Any) -> Any:
    """Return the shape of a rank's input; `row` follows the axis that `counts` counts."""
    if counts is not None:
        if name == "alltoall":
            return (sum(counts[rank]), *row)
        return (counts[rank] if name in ("gather", "allgather") else sum(counts), *row)
    return (size, *row) if name in ("scatter", "reduce_scatter", "alltoall") else row


def values(shape: tuple[int, ...], dtype: str, rank: int, op: Any = "sum") -> Values:
    """Return a rank's input: small integers, on which every operator is exact."""
    random = np.random.default_rng([rank, *shape])
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    host = "float32" if dtype == "bfloat16" else dtype
    if callable(op):
        return random.integers(0, 256, shape).astype(host)
    if op == "prod":
        return random.choice(np.array([1, 2]), shape).astype(host)
    return random.integers(0 if dtype.startswith("u") else -3, 4, shape).astype(host)


@lru_cache(maxsize=512)
def case(
    name: str, shapes: tuple[tuple[int, ...], ...], dtype: str, op: str | Function, root: int,
    counts: Any = None, shift: int = 0,
) -> tuple[list[Values], list[Values | None]]:  # fmt: skip
    """Return all ranks' inputs and results, which nobody may change: all ask for the same ones.

    Args:
        counts: as tuples.
        shift: inputs of another turn.
    """
    inputs = [values(shape, dtype, rank + shift, op) for rank, shape in enumerate(shapes)]
    return inputs, expected(name, inputs, op, root, counts)
