"""Folds of many tensors in one kernel, which torch compiles when it is first needed.

``torch.cuda._compile_kernel`` is private: where a torch has none, or cannot compile, folds are made
two by two. A call of its result takes longer than four small folds, since it builds the kernel's
arguments anew. The arguments of a plan never change, so the kernel is launched here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import torch

from mpicoll.backend import Array, Thunk
from mpicoll.gpu.driver import NO_CONTEXT, library
from mpicoll.lowering.fusing import Steps, formula

_THREADS = 256
_PACK_BYTES = 16
"""What a thread reads of an operand at once: the widest access that a GPU has."""
_MAX_ELEMENTS = (1 << 31) - _THREADS * _PACK_BYTES
"""Elements of one launch: torch hands numbers to a kernel as a C int."""
_TYPES = {
    torch.float32: "float", torch.float64: "double",
    torch.int8: "signed char", torch.int16: "short", torch.int32: "int", torch.int64: "long long",
    torch.uint8: "unsigned char", torch.uint16: "unsigned short", torch.uint32: "unsigned int",
    torch.uint64: "unsigned long long", torch.float16: "Half", torch.bfloat16: "Half",
}  # fmt: skip
_HALF = """
struct Half {
    unsigned short bits;
    Half() = default;
    __device__ Half(float x) { %s }
    __device__ operator float() const { float x; %s return x; }
};
"""
"""Folds in float, each of which rounds, as those of two operands do."""
_BITWISE = ("band", "bor", "bxor")
_CONVERSIONS = {
    torch.float16: (
        'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));',
        'asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));',
    ),
    # To the nearest, ties to even; a NaN stays one, made quiet.
    torch.bfloat16: (
        "unsigned raw = __float_as_uint(x);"
        " bits = x != x ? raw >> 16 | 0x40 : (raw + 0x7fff + (raw >> 16 & 1)) >> 16;",
        "x = __uint_as_float((unsigned)bits << 16);",
    ),
}


def fuse(op: str, operands: Sequence[Array], steps: Steps, out: Array) -> Thunk | None:
    """Bind a chain of folds into `out` as one kernel; return None where there is none.

    Every element is read before it is written, by the thread that writes it: so `out` may be an
    operand.
    """
    count = out.numel()
    if out.dtype not in _TYPES or not 0 < count < _MAX_ELEMENTS:
        return None
    addresses = [array.data_ptr() for array in (*operands, out)]
    is_aligned = not any(address % _PACK_BYTES for address in addresses)
    pack = _PACK_BYTES // out.element_size() if is_aligned else 1
    kernel_in_context = _kernel(op, len(operands), steps, out.dtype, pack, out.device)
    if kernel_in_context is None:
        return None
    kernel, context = kernel_in_context
    launch, bind = library().cuLaunchKernel, library().cuCtxSetCurrent
    values = [*map(ctypes.c_void_p, addresses), ctypes.c_int(count)]
    places = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    blocks = -(-count // (_THREADS * pack))
    shape = [ctypes.c_uint(extent) for extent in (blocks, 1, 1, _THREADS, 1, 1, 0)]
    device = out.device

    # The default argument keeps what `places` points to.
    def call(_values: object = values) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
        status = launch(kernel, *shape, stream, places, None)
        if status == NO_CONTEXT:  # the runtime binds it when a thread first uses the GPU by it
            bind(context)
            status = launch(kernel, *shape, stream, places, None)
        if status:
            raise RuntimeError(f"cuLaunchKernel: CUDA error {status}")

    return on_device(device, call)


def on_device(device: torch.device, call: Thunk) -> Thunk:
    """Return a call on a GPU: kernels go to the current one, wherever the tensors are."""
    if torch.cuda.device_count() <= 1:
        return call

    def run() -> None:
        with torch.cuda.device(device):
            call()

    return run


@cache
def _kernel(
    op: str, count: int, steps: Steps, dtype: torch.dtype, pack: int, device: torch.device
) -> tuple[ctypes.c_void_p, ctypes.c_void_p] | None:
    """Return a kernel of the driver, whose module stays loaded, and its context; None without."""
    compile_kernel = getattr(torch.cuda, "_compile_kernel", None)
    code = source(op, count, steps, dtype, pack)
    if compile_kernel is None or code is None:
        return None
    context = ctypes.c_void_p()
    try:
        with torch.cuda.device(device):
            kernel: ctypes.c_void_p = compile_kernel(code, "fold").func
            library().cuCtxGetCurrent(ctypes.byref(context))
    except (RuntimeError, OSError, AttributeError):  # there is no compiler, or another interface
        return None
    return kernel, context


def source(op: str, count: int, steps: Steps, dtype: torch.dtype, pack: int = 1) -> str | None:
    """Return the kernel's text; None for another operator.

    Args:
        pack: elements that a thread folds, which it reads at once where all of them are there.
    """
    code = formula(op, count, steps)
    if code is None or (dtype in _CONVERSIONS and op in _BITWISE):
        return None
    half = _HALF % _CONVERSIONS[dtype] if dtype in _CONVERSIONS else ""
    every = range(count)
    inputs = ", ".join(f"const T *p{index}" for index in every)
    packs = " ".join(f"const Pack q{index} = *(const Pack *)(p{index} + first);" for index in every)
    of_packs = " ".join(f"const T x{index} = q{index}.at[i];" for index in every)
    one_by_one = " ".join(f"const T x{index} = p{index}[i];" for index in every)
    return f"""{half}
typedef {_TYPES[dtype]} T;
struct alignas({pack} * sizeof(T)) Pack {{ T at[{pack}]; }};
extern "C" __global__ void fold({inputs}, T *result, int count) {{
    const int first = (blockIdx.x * {_THREADS} + threadIdx.x) * {pack};
    if (first + {pack} <= count) {{
        {packs}
        Pack made;
        #pragma unroll
        for (int i = 0; i < {pack}; i++) {{ {of_packs} T out; {code} made.at[i] = out; }}
        *(Pack *)(result + first) = made;
        return;
    }}
    for (int i = first; i < count; i++) {{ {one_by_one} T out; {code} result[i] = out; }}
}}
"""
