"""Folds of many tensors in one kernel, which torch compiles when it is first needed.

``torch.cuda._compile_kernel`` is private: where a torch has none, or cannot compile, folds are made
two by two. A call of what it returns takes longer than four small folds, as it builds the kernel's
arguments anew; those of a plan never change, so the kernel is launched here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import torch

from mpicoll.interfaces import Array, Thunk
from mpicoll.programs.fusing import Steps, formula

_THREADS = 256
_MOST = (1 << 31) - _THREADS
"""Elements of one launch: torch hands numbers to a kernel as a C int."""
_TYPES = {
    torch.float32: "float", torch.float64: "double",
    torch.int8: "signed char", torch.int16: "short", torch.int32: "int", torch.int64: "long long",
    torch.uint8: "unsigned char", torch.uint16: "unsigned short", torch.uint32: "unsigned int",
    torch.uint64: "unsigned long long",
}  # fmt: skip


def fuse(op: str, operands: Sequence[Array], steps: Steps, out: Array) -> Thunk | None:
    """Bind a chain of folds into `out` as one kernel; return None where there is none.

    Every element is read before it is written, by the thread that writes it: so `out` may be an
    operand.
    """
    count = out.numel()
    if out.dtype not in _TYPES or not 0 < count < _MOST:
        return None
    kernel = _kernel(op, len(operands), steps, out.dtype, out.device)
    if kernel is None:
        return None
    launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
    values = [*(ctypes.c_void_p(each.data_ptr()) for each in (*operands, out)), ctypes.c_int(count)]
    places = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    shape = [ctypes.c_uint(each) for each in (-(-count // _THREADS), 1, 1, _THREADS, 1, 1, 0)]
    device, several = out.device, torch.cuda.device_count() > 1

    # The default argument keeps what `places` points to.
    def call(_values: object = values) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
        if status := launch(kernel, *shape, stream, places, None):
            raise RuntimeError(f"cuLaunchKernel: CUDA error {status}")

    def on_device() -> None:
        with torch.cuda.device(device):
            call()

    return on_device if several else call


@cache
def _kernel(
    op: str, count: int, steps: Steps, dtype: torch.dtype, device: torch.device
) -> ctypes.c_void_p | None:
    """Return a kernel of the driver, whose module stays loaded; None where there is none."""
    compile_kernel = getattr(torch.cuda, "_compile_kernel", None)
    code = source(op, count, steps, dtype)
    if compile_kernel is None or code is None:
        return None
    try:
        with torch.cuda.device(device):
            made: ctypes.c_void_p = compile_kernel(code, "fold").func
    except (RuntimeError, OSError, AttributeError):  # there is no compiler, or another interface
        return None
    return made


def source(op: str, count: int, steps: Steps, dtype: torch.dtype) -> str | None:
    """Return the kernel's text; None for another operator."""
    code = formula(op, count, steps)
    if code is None:
        return None
    inputs = ", ".join(f"const T *p{index}" for index in range(count))
    reads = " ".join(f"T x{index} = p{index}[i];" for index in range(count))
    return f"""
typedef {_TYPES[dtype]} T;
extern "C" __global__ void fold({inputs}, T *result, int count) {{
    int i = blockIdx.x * {_THREADS} + threadIdx.x;
    if (i < count) {{ {reads} T out; {code} result[i] = out; }}
}}
"""
