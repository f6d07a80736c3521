"""Folds of many tensors in one kernel, which torch compiles when it is first needed.

``torch.cuda._compile_kernel`` is private: where a torch has none, or cannot compile, folds are made
two by two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

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
    grid = (-(-count // _THREADS), 1, 1)
    call = partial(kernel, grid, (_THREADS, 1, 1), [*operands, out, count])
    if torch.cuda.device_count() == 1:
        return call
    device = out.device

    def on_device() -> None:
        with torch.cuda.device(device):
            call()

    return on_device


@cache
def _kernel(
    op: str, count: int, steps: Steps, dtype: torch.dtype, device: torch.device
) -> Callable[..., None] | None:
    compile_kernel = getattr(torch.cuda, "_compile_kernel", None)
    code = source(op, count, steps, dtype)
    if compile_kernel is None or code is None:
        return None
    try:
        with torch.cuda.device(device):
            made: Callable[..., None] = compile_kernel(code, "fold")
    except (RuntimeError, OSError):  # there is no compiler, NVRTC
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
