"""NumPy memory: the few operations that plans and checks need.

`mpicoll.mpi.arrays` adds CuPy's arrays; `torchcoll.arrays` folds tensors on the host with it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from ctypes import c_char
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mpicoll.backend import Array, Memory, Thunk
from mpicoll.c_extension import numpy_layout
from mpicoll.errors import ArgumentError, Unavailable, UnknownName
from mpicoll.notation.elements import DTYPES, ReduceOp, unfit

if TYPE_CHECKING:
    from mpicoll.lowering.fusing import Steps

UFUNCS = {
    "sum": "add",
    "avg": "add",
    "prod": "multiply",
    "min": "minimum",
    "max": "maximum",
    "band": "bitwise_and",
    "bor": "bitwise_or",
    "bxor": "bitwise_xor",
    "land": "logical_and",
    "lor": "logical_or",
}
"""NumPy's function for each operator; CuPy's and torch's have the same names."""
CARRIED = tuple(name for name in DTYPES if name != "bfloat16")
_WIDTHS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
"""Kinds of dtypes: one holds the values of those before it, as far as they go."""
# NumPy takes microseconds to name a dtype.
_NAMES = {np.dtype(name): name for name in CARRIED}


class NumpyArrays:
    """`mpicoll.backend.Arrays` for NumPy arrays."""

    def owns(self, x: object) -> bool:
        return isinstance(x, np.ndarray)

    def unfit(self, x: Array, *, written: bool) -> str | None:
        if type(x) is not np.ndarray and isinstance(x, np.matrix | np.ma.MaskedArray):
            return f"is a {type(x).__name__}, with rules of its own: give a plain numpy.ndarray"
        if written and not x.flags.writeable:
            return "is read-only: give an array that can be written"
        return None

    def dtype(self, x: Array) -> str:
        name = _NAMES.get(x.dtype)
        if name is None:
            raise UnknownName("dtype", str(x.dtype), CARRIED)
        return name

    def flat(self, x: Array) -> Array:
        if not x.flags.c_contiguous:
            library = "numpy" if isinstance(x, np.ndarray) else "cupy"
            raise ArgumentError(
                f"the array of shape {x.shape} is not C-contiguous: "
                f"give {library}.ascontiguousarray(x)"
            )
        return x.reshape(-1)

    def span(self, x: Array) -> tuple[int, int]:
        start = int(x.__array_interface__["data"][0])
        return start, start + x.nbytes

    def describe(self, x: object) -> tuple[int, int, int, tuple[int, ...]] | None:
        return None

    def layout(self) -> tuple[Array, object] | None:
        return numpy_layout()

    def empty(self, shape: tuple[int, ...], dtype: str, like: Array | None = None) -> Array:
        return np.empty(shape, _carried(dtype))

    def copy(self, target: Array, source: Array) -> None:
        target[...] = source

    def copier(self, target: Array, source: Array) -> Thunk:
        if not source.size:
            return partial(operator.setitem, target, ..., source)
        # Between plain bytes, less than half the time of NumPy's own assignment.
        return partial(operator.setitem, _bytes(target), slice(None), _bytes(source))

    def folder(self, op: ReduceOp, lhs: Array, rhs: Array, out: Array) -> Thunk:
        if op.function is None:
            fold = getattr(np, UFUNCS[op.name])
            if op.name in ("min", "max"):
                if lhs.dtype.kind == "f":
                    return partial(_fold_extremes, fold, lhs, rhs, out)
                return partial(fold, lhs, rhs, out=out)
            # Given by position, `out` saves a ufunc half of its overhead.
            return partial(fold, lhs, rhs, out)
        function = op.function
        return lambda: operator.setitem(out, ..., _fitting(op, function(lhs, rhs), out))

    def fuser(
        self, op: ReduceOp, operands: Sequence[Array], steps: Steps, out: Array
    ) -> Thunk | None:
        return None  # NumPy has no call that folds many arrays into one of ours

    def divider(self, x: Array, divisor: int) -> Thunk:
        return partial(np.true_divide, x, divisor, x)

    def to_host(self, x: Array) -> Any:
        return x

    def from_host(self, x: Array, values: Any) -> None:
        x[...] = np.asarray(values)

    def synchronize(self, x: Array) -> None:
        pass

    def is_on_host(self, x: Array | None) -> bool:
        return True

    def _no_gpu(self, *_: Any, **__: Any) -> Any:
        raise Unavailable("NumPy arrays lie on the host")

    gpu = gpu_name = on_gpu = stopwatch = current_stream = _no_gpu

    def over(self, memory: Memory, dtype: str, shape: tuple[int, ...]) -> Array:
        return np.frombuffer(memory, _carried(dtype), prod(shape)).reshape(shape)

    def at(self, address: int, dtype: str, count: int, like: Array) -> Array:
        kind = np.dtype(dtype)
        memory = (c_char * (count * kind.itemsize)).from_address(address)
        return np.frombuffer(memoryview(memory), kind)


def _carried(dtype: str) -> str:
    if dtype not in CARRIED:
        raise UnknownName("dtype", dtype, CARRIED)
    return dtype


def _fold_extremes(fold: Any, lhs: Array, rhs: Array, out: Array) -> None:
    """Fold floats by NumPy's minimum or maximum, with -0 less than +0, which it does not say."""
    zeros = (lhs == 0) & (rhs == 0)
    signs = np.signbit(lhs) | np.signbit(rhs)
    if fold is np.maximum:
        signs = np.signbit(lhs) & np.signbit(rhs)
    fold(lhs, rhs, out=out)
    out[zeros] = np.where(signs[zeros], -0.0, 0.0)


def _fitting(op: ReduceOp, result: Any, out: Array) -> Any:
    """Return the result of a user's function, checked, as NumPy would spread or cut it to fit."""
    shape, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
    if shape != out.shape or _WIDTHS.get(getattr(dtype, "kind", ""), 4) > _WIDTHS[out.dtype.kind]:
        raise unfit(op, result, shape, dtype, (out.shape, out.dtype))
    return result


def _bytes(x: Array) -> Memory:
    return memoryview(x.reshape(-1).view(np.uint8))
