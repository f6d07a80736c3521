"""Tensor memory: the few operations that plans and checks need.

Its counterpart is `mpicoll.mpi.arrays`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from mpicoll.backend import Array, Memory, Stopwatch, Stream, Thunk
from mpicoll.errors import ArgumentError, Unavailable, UnknownName
from mpicoll.memory.numpy_arrays import UFUNCS, NumpyArrays
from mpicoll.notation.elements import DTYPES, ReduceOp, unfit

if TYPE_CHECKING:
    from mpicoll.lowering.fusing import Steps

_SIGNED = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}
# The others NumPy folds: in a fifth of torch's time on small arrays, and in no more on large ones.
_FOLDED_BY_TORCH = (torch.float16, torch.bfloat16)
HOST = torch.device("cpu")
_HOST = NumpyArrays()
NAMES = {getattr(torch, name): name for name in DTYPES}
"""Our names of the dtypes."""
_KINDS: dict[tuple[torch.dtype, int], int] = {}
"""A number for each dtype on each device."""


def _kind(dtype: str) -> torch.dtype:
    if dtype not in DTYPES:
        raise UnknownName("dtype", dtype, DTYPES)
    kind: torch.dtype = getattr(torch, dtype)
    return kind


def _fitting(op: ReduceOp, result: Any, out: torch.Tensor) -> torch.Tensor:
    """Return the result of a user's function, checked, as torch would spread or cut it to fit."""
    if not isinstance(result, torch.Tensor):
        raise unfit(op, result, None, None, (tuple(out.shape), out.dtype))
    if result.shape != out.shape or not torch.can_cast(result.dtype, out.dtype):
        shape, dtype = tuple(result.shape), result.dtype
        raise unfit(op, result, shape, dtype, (tuple(out.shape), out.dtype))
    return result


class TorchArrays:
    """`mpicoll.backend.Arrays` for tensors.

    They are made on `device` unless they are like another; never on torch's default device.
    """

    def __init__(self, device: torch.device = HOST) -> None:
        self.device = device

    def owns(self, x: object) -> bool:
        return isinstance(x, torch.Tensor)

    def unfit(self, x: Array, *, written: bool) -> str | None:
        if x.is_nested:
            return "is a nested tensor, which has no one shape: give its parts one by one"
        if not (x.is_cpu or x.is_cuda):
            return f"is on device {x.device}: give a tensor on cpu or cuda"
        return None

    def dtype(self, x: Array) -> str:
        name = NAMES.get(x.dtype)
        if name is None:
            raise UnknownName("dtype", str(x.dtype).removeprefix("torch."), DTYPES)
        return name

    def flat(self, x: Array) -> Array:
        if x.layout != torch.strided:
            raise ArgumentError(f"the tensor has the layout {x.layout}: give x.to_dense()")
        if not x.is_contiguous():
            raise ArgumentError(
                f"the tensor of shape {tuple(x.shape)} is not C-contiguous: give x.contiguous()"
            )
        if x.is_conj() or x.is_neg():
            raise ArgumentError(
                "the tensor is a lazy conjugate or negative: "
                "give x.resolve_conj() or x.resolve_neg()"
            )
        return vector(x.detach())

    def span(self, x: Array) -> tuple[int, int]:
        start = int(x.data_ptr())
        return start, start + x.numel() * x.element_size()

    def describe(self, x: object) -> tuple[int, int, int, tuple[int, ...]] | None:
        if type(x) is not torch.Tensor or not (x.is_cpu or x.is_cuda) or x.layout != torch.strided:
            return None
        if x.is_nested or not x.is_contiguous() or x.is_conj() or x.is_neg():
            return None
        kind = _KINDS.setdefault((x.dtype, x.get_device()), len(_KINDS))
        return x.data_ptr(), x.nbytes, kind, tuple(x.shape)

    def layout(self) -> tuple[Array, object] | None:
        exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
        return None if exchange is None else (torch.zeros(1, device=HOST), exchange)

    def empty(self, shape: tuple[int, ...], dtype: str, like: Array | None = None) -> Array:
        device = self.device if like is None else like.device
        return torch.empty(shape, dtype=_kind(dtype), device=device)

    def copy(self, target: Array, source: Array) -> None:
        self.copier(self.flat(target), self.flat(source))()

    def copier(self, target: Array, source: Array) -> Thunk:
        if target.is_cuda or source.is_cuda or not source.numel():
            return partial(target.copy_, source)
        # Between plain bytes, a twentieth of the time of a small copy_.
        return partial(operator.setitem, _memory(target), slice(None), _memory(source))

    def folder(self, op: ReduceOp, lhs: Array, rhs: Array, out: Array) -> Thunk:
        if op.function is None:
            if not out.is_cuda and out.dtype not in _FOLDED_BY_TORCH:
                return _HOST.folder(op, *(operand.numpy() for operand in (lhs, rhs, out)))
            signed = _SIGNED.get(out.dtype)
            if signed is not None:
                return _fold_unsigned(op, *(operand.view(signed) for operand in (lhs, rhs, out)))
            return partial(getattr(torch, UFUNCS[op.name]), lhs, rhs, out=out)
        function = op.function
        return lambda: out.copy_(_fitting(op, function(lhs, rhs), out))

    def fuser(
        self, op: ReduceOp, operands: Sequence[Array], steps: Steps, out: Array
    ) -> Thunk | None:
        if not out.is_cuda or op.function is not None:
            return None
        from torchcoll import kernels

        return kernels.fuse(op.name, operands, steps, out)

    def divider(self, x: Array, divisor: int) -> Thunk:
        return partial(x.div_, divisor)

    def to_host(self, x: Array) -> np.ndarray[Any, Any]:
        host: torch.Tensor = x.detach().cpu()
        return (host.float() if host.dtype == torch.bfloat16 else host).numpy()

    def from_host(self, x: Array, values: Any) -> None:
        name = "float32" if x.dtype == torch.bfloat16 else self.dtype(x)
        x.detach().copy_(torch.from_numpy(np.array(values, name)))

    def synchronize(self, x: Array) -> None:
        if x.is_cuda:
            torch.cuda.current_stream(x.device).synchronize()

    def is_on_host(self, x: Array | None) -> bool:
        return x is None or not x.is_cuda

    def gpu(self, x: Array) -> int:
        return int(x.device.index)

    def gpu_name(self, x: Array) -> str:
        return torch.cuda.get_device_name(x.device)

    def over(self, memory: Memory, dtype: str, shape: tuple[int, ...]) -> Array:
        if not (count := prod(shape)):
            return self.empty(shape, dtype)
        return torch.frombuffer(memory, dtype=_kind(dtype), count=count).view(shape)

    def on_gpu(self, turn: int) -> Array:
        if not torch.cuda.is_available():
            raise Unavailable(f"torch {torch.__version__} finds no GPU")
        from mpicoll.gpu.current import uses_gpu

        if not uses_gpu():
            torch.cuda.set_device(turn % torch.cuda.device_count())
        return torch.empty(0, dtype=torch.uint8, device="cuda")

    def stopwatch(self) -> Stopwatch:
        from mpicoll.gpu.streams import EventStopwatch

        new_event = partial(torch.cuda.Event, enable_timing=True)
        return EventStopwatch(new_event, torch.cuda.Event.elapsed_time)

    def current_stream(self, gpu: int) -> Stream:
        return TorchStream(torch.cuda.current_stream(gpu))

    def at(self, address: int, dtype: str, count: int, like: Array) -> Array:
        kind = getattr(torch, dtype)
        # The GPU of `like` reads it, whichever it lies on: torch need not know of the other.
        storage = torch._C._construct_storage_from_data_pointer(
            address, like.device, count * kind.itemsize
        )
        return torch.empty(0, dtype=kind, device=like.device).set_(storage, 0, (count,), (1,))


class HostTensors(TorchArrays):
    """`mpicoll.backend.Arrays` for tensors on the host alone."""

    def owns(self, x: object) -> bool:
        return super().owns(x) and self.is_on_host(x)


class TorchStream(NamedTuple):
    """`mpicoll.backend.Stream` of torch."""

    stream: torch.cuda.Stream

    @property
    def handle(self) -> int:
        return self.stream.cuda_stream

    def use(self) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self.stream)

    def follow(self, other: Any) -> None:
        self.stream.wait_stream(other.stream)

    def is_capturing(self) -> bool:
        # torch tells it of the current stream of the current device, which may be another one.
        if torch.cuda.current_device() == self.stream.device_index:
            return torch.cuda.is_current_stream_capturing()
        with self.use():
            return torch.cuda.is_current_stream_capturing()


def vector(x: Array) -> Array:
    """Return a contiguous tensor as one of one dimension and stride 1.

    Torch calls a tensor of one element, or of none, contiguous whatever its strides.
    """
    flat = x.view(-1)
    return flat if flat.numel() > 1 else flat.as_strided((flat.numel(),), (1,))


def as_bytes(x: Array) -> Array:
    """Return the bytes of a contiguous tensor, of any dtype if it only moves."""
    return vector(x).view(torch.uint8)


def _memory(x: Array) -> Memory:
    return memoryview(as_bytes(x.detach()).numpy())


def _fold_unsigned(op: ReduceOp, lhs: Array, rhs: Array, out: Array) -> Thunk:
    """Fold the wide unsigned integers, for which torch lacks kernels, as signed ones.

    Two's complement makes the bits the same, but for the order: min and max compare
    with the sign bit flipped.
    """
    function = getattr(torch, UFUNCS[op.name])
    if op.name not in ("min", "max"):
        return partial(function, lhs, rhs, out=out)
    sign = torch.iinfo(out.dtype).min

    def fold() -> None:
        torch.bitwise_xor(function(lhs ^ sign, rhs ^ sign), sign, out=out)

    return fold
