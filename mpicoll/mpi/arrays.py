"""NumPy and CuPy memory: the few operations that plans and checks need.

Its counterpart is `torchcoll.arrays`.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mpicoll.backend import Array, Stopwatch, Stream, Thunk
from mpicoll.errors import Unavailable, UnknownName
from mpicoll.memory.numpy_arrays import UFUNCS, NumpyArrays
from mpicoll.notation.elements import DTYPES, ReduceOp

if TYPE_CHECKING:
    from mpicoll.lowering.fusing import Steps

_NOT_FUSED = ("bool", "bfloat16")
"""Their C types do not fold as the library's own calls do."""
_KINDS: dict[tuple[Any, int], int] = {}
"""A number for each dtype on each GPU."""


def is_cupy(x: object) -> bool:
    """Whether `x` is a CuPy array, without importing CuPy."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(x, cupy.ndarray)


class MpiArrays(NumpyArrays):
    """`mpicoll.backend.Arrays` for NumPy and CuPy arrays."""

    def owns(self, x: object) -> bool:
        return isinstance(x, np.ndarray) or is_cupy(x)

    def unfit(self, x: Array, *, written: bool) -> str | None:
        return None if is_cupy(x) else NumpyArrays.unfit(self, x, written=written)

    def dtype(self, x: Array) -> str:
        if not is_cupy(x):
            return NumpyArrays.dtype(self, x)
        if x.dtype.name not in DTYPES:
            raise UnknownName("dtype", str(x.dtype), DTYPES)
        return str(x.dtype.name)

    def span(self, x: Array) -> tuple[int, int]:
        if not is_cupy(x):
            return NumpyArrays.span(self, x)
        start = int(x.data.ptr)
        return start, start + x.nbytes

    def describe(self, x: object) -> tuple[int, int, int, tuple[int, ...]] | None:
        if not is_cupy(x):
            return None
        array: Any = x
        if not array.flags.c_contiguous:
            return None
        kind = _KINDS.setdefault((array.dtype, array.data.device_id), len(_KINDS))
        return int(array.data.ptr), array.nbytes, kind, array.shape

    def empty(self, shape: tuple[int, ...], dtype: str, like: Array | None = None) -> Array:
        if like is None or not is_cupy(like):
            return super().empty(shape, dtype)
        if dtype not in DTYPES:
            raise UnknownName("dtype", dtype, DTYPES)
        cupy = sys.modules["cupy"]
        try:
            with like.device:
                return cupy.empty(shape, numpy_dtype(dtype))
        except TypeError:
            raise Unavailable(f"CuPy {cupy.__version__} has no {dtype}: CuPy 14 has it") from None

    def copy(self, target: Array, source: Array) -> None:
        if type(target) is np.ndarray and type(source) is np.ndarray:
            target[...] = source
        else:
            self.copier(target, source)()

    def copier(self, target: Array, source: Array) -> Thunk:
        if is_cupy(target) and is_cupy(source) and target.dtype == source.dtype:
            copy = target.data.copy_from_device_async
            return _on_gpu(target, partial(copy, source.data, target.nbytes))
        if is_cupy(target) or is_cupy(source):
            return _on_gpu(target, partial(operator.setitem, target, ..., source))
        return super().copier(target, source)

    def folder(self, op: ReduceOp, lhs: Array, rhs: Array, out: Array) -> Thunk:
        if op.function is not None or not is_cupy(out):
            return _on_gpu(out, super().folder(op, lhs, rhs, out))
        fold = getattr(sys.modules["cupy"], UFUNCS[op.name])
        # CuPy copies an operand that may share memory with `out` and is another object
        # (_copy_in_args_if_needed of cupy/_core/_kernel.pyx).
        lhs, rhs = (out if _is_same(operand, out) else operand for operand in (lhs, rhs))
        return _on_gpu(out, partial(fold, lhs, rhs, out=out))

    def fuser(
        self, op: ReduceOp, operands: Sequence[Array], steps: Steps, out: Array
    ) -> Thunk | None:
        if not is_cupy(out) or op.function is not None or out.dtype.name in _NOT_FUSED:
            return None
        kernel = _kernel(op.name, len(operands), steps)
        if kernel is None:
            return None
        operands_on_gpu = (out if _is_same(operand, out) else operand for operand in operands)
        return _on_gpu(out, partial(kernel, *operands_on_gpu, out))

    def divider(self, x: Array, divisor: int) -> Thunk:
        if is_cupy(x):
            return _on_gpu(x, partial(sys.modules["cupy"].true_divide, x, divisor, x))
        return super().divider(x, divisor)

    def to_host(self, x: Array) -> Any:
        host = x.get() if is_cupy(x) else x
        return host.astype("float32") if host.dtype.name == "bfloat16" else host

    def from_host(self, x: Array, values: Any) -> None:
        if not is_cupy(x):
            x[...] = np.asarray(values)
            return
        with x.device:
            x[...] = sys.modules["cupy"].asarray(values)

    def synchronize(self, x: Array) -> None:
        if is_cupy(x):
            with x.device:
                sys.modules["cupy"].cuda.get_current_stream().synchronize()

    def is_on_host(self, x: Array | None) -> bool:
        return not is_cupy(x)

    def gpu(self, x: Array) -> int:
        return int(x.device.id)

    def gpu_name(self, x: Array) -> str:
        facts = sys.modules["cupy"].cuda.runtime.getDeviceProperties(self.gpu(x))
        return str(facts["name"].decode())

    def on_gpu(self, turn: int) -> Array:
        try:
            import cupy

            count = cupy.cuda.runtime.getDeviceCount()
        except ImportError as error:
            raise Unavailable(f"no CuPy ({error}): pip install 'mpicoll[cuda13]'") from None
        except Exception as error:  # CuPy's own error class cannot be named without CuPy
            raise Unavailable(f"CuPy finds no GPU: {error}") from None
        from mpicoll.gpu.current import uses_gpu

        if not uses_gpu():
            cupy.cuda.Device(turn % count).use()
        return cupy.empty(0, "uint8")

    def stopwatch(self) -> Stopwatch:
        from mpicoll.gpu.streams import EventStopwatch

        cuda = sys.modules["cupy"].cuda
        return EventStopwatch(cuda.Event, cuda.get_elapsed_time)

    def current_stream(self, gpu: int) -> Stream:
        return CupyStream(gpu, sys.modules["cupy"].cuda.get_current_stream(gpu))

    def at(self, address: int, dtype: str, count: int, like: Array) -> Array:
        if not is_cupy(like):
            return NumpyArrays.at(self, address, dtype, count, like)
        cupy = sys.modules["cupy"]
        kind = numpy_dtype(dtype)
        # The GPU of `like` reads it, whichever it lies on: CuPy need not know of the other.
        memory = cupy.cuda.UnownedMemory(address, count * kind.itemsize, self, like.device.id)
        return cupy.ndarray((count,), kind, cupy.cuda.MemoryPointer(memory, 0))


@cache
def _kernel(op: str, count: int, steps: Steps) -> Any:
    """Return a kernel for any dtype, compiled when it first runs; None for another operator."""
    from mpicoll.lowering.fusing import formula

    code = formula(op, count, steps)
    if code is None:
        return None
    inputs = ", ".join(f"T x{index}" for index in range(count))
    name = f"mpicoll_{op}_{count}"
    return sys.modules["cupy"].ElementwiseKernel(inputs, "T out", code, name)


def _is_same(x: Array, y: Array) -> bool:
    """Whether two flat CuPy arrays are the same memory, read alike."""
    return is_cupy(x) and (x.data.ptr, x.shape, x.dtype) == (y.data.ptr, y.shape, y.dtype)


def _on_gpu(x: Array, thunk: Thunk) -> Thunk:
    """Return a call on the GPU of a CuPy array; CuPy's go to the current one, wherever arrays are.

    Where there is one GPU only, the call is as it is: to make it current takes a microsecond.
    """
    if not is_cupy(x) or _gpus() == 1:
        return thunk
    device = x.device

    def call() -> None:
        with device:
            thunk()

    return call


@cache
def _gpus() -> int:
    return int(sys.modules["cupy"].cuda.runtime.getDeviceCount())


class CupyStream(NamedTuple):
    """`mpicoll.backend.Stream` of CuPy."""

    gpu: int
    stream: Any

    @property
    def handle(self) -> int:
        return int(self.stream.ptr)

    def use(self) -> AbstractContextManager[Any]:
        stack = ExitStack()
        stack.enter_context(sys.modules["cupy"].cuda.Device(self.gpu))
        stack.enter_context(self.stream)
        return stack

    def follow(self, other: Any) -> None:
        # The null stream is that of the current GPU.
        with other.use():
            event = other.stream.record()
        with self.use():
            self.stream.wait_event(event)

    def is_capturing(self) -> bool:
        # No graph captures the null stream; to ask about it is an error while another is captured.
        return bool(self.stream.ptr) and bool(self.stream.is_capturing())


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return NumPy's dtype; bfloat16 is that of ml_dtypes, as CuPy knows it from version 14 on.

    Raises:
        Unavailable: ml_dtypes is not installed.
    """
    if dtype != "bfloat16":
        return np.dtype(dtype)
    try:
        import ml_dtypes
    except ImportError:
        raise Unavailable("bfloat16 under CuPy needs ml_dtypes: pip install ml_dtypes") from None
    kind: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return kind
