"""Kernels that fold many tensors: their text, compiled as C++ where there is no GPU."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from mpicoll.notation.elements import OPS
from torchcoll import kernels
from torchcoll.arrays import TorchArrays
from torchcoll.kernels import source

STEPS = ((0, 1), (3, 2))
AS_CPP = """
#define __global__
#define __device__
#define asm(...)
static struct {{ int x; }} blockIdx, threadIdx;
static unsigned __float_as_uint(float x) {{ unsigned y; __builtin_memcpy(&y, &x, 4); return y; }}
static float __uint_as_float(unsigned x) {{ float y; __builtin_memcpy(&y, &x, 4); return y; }}
{kernel}
extern "C" void run(const T *a, const T *b, T *c, int count) {{
    for (int i = 0; i * {pack} < count; i++) {{
        blockIdx.x = i / 256;
        threadIdx.x = i % 256;
        fold(a, b, c, c, count);
    }}
}}
"""


def folded(text: str, pack: int, folder: Path, given: list[torch.Tensor]) -> torch.Tensor:
    """Return what a kernel makes of three operands, in the last of them."""
    (folder / "fold.cpp").write_text(AS_CPP.format(kernel=text, pack=pack))
    library = folder / "fold.so"
    command = ["c++", "-std=c++17", "-shared", "-fPIC", "-Wno-unknown-pragmas"]
    subprocess.run([*command, folder / "fold.cpp", "-o", library], check=True)
    pointers = [ctypes.c_void_p(each.data_ptr()) for each in given]
    ctypes.CDLL(str(library)).run(*pointers, len(given[2]))
    return given[2]


@pytest.mark.parametrize("pack", [1, 2])
@pytest.mark.parametrize(
    ("op", "dtype", "expected"),
    [
        ("sum", torch.float32, [9.0, 9.0, 12.0]),
        ("prod", torch.int64, [24, 24, 48]),
        ("max", torch.uint8, [4, 4, 6]),
        ("bxor", torch.int16, [2 ^ 3 ^ 4, 4 ^ 3 ^ 2, 2 ^ 4 ^ 6]),
    ],
)
def test_a_kernel_folds_into_an_operand(
    op: str, dtype: torch.dtype, expected: list[float], pack: int, tmp_path: Path
) -> None:
    text = source(op, 3, STEPS, dtype, pack)
    assert text is not None
    given = [torch.tensor(each, dtype=dtype) for each in ([2, 4, 2], [3, 3, 4], [4, 2, 6])]
    assert folded(text, pack, tmp_path, given).tolist() == expected


@pytest.mark.parametrize(
    ("op", "function"), [("sum", torch.add), ("prod", torch.mul), ("max", torch.maximum)]
)
def test_every_step_in_bfloat16_is_rounded(op: str, function: object, tmp_path: Path) -> None:
    """The bits are those of folds two by two, whatever the operands."""
    text = source(op, 3, STEPS, torch.bfloat16, 8)
    assert text is not None
    bits = torch.Generator().manual_seed(1)
    given = [
        torch.randint(-(1 << 15), 1 << 15, (1 << 12,), dtype=torch.int16, generator=bits).view(
            torch.bfloat16
        )
        for _ in range(3)
    ]
    wanted = function(function(given[0], given[1]), given[2])  # type: ignore[operator]
    found = folded(text, 8, tmp_path, given)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("on_gpu", [True, False])
def test_tensors_on_a_gpu_are_folded_by_one_kernel(
    on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "fuse", lambda *given: given)
    out: Any = SimpleNamespace(is_cuda=on_gpu)
    wanted = ("sum", [], STEPS, out) if on_gpu else None
    assert TorchArrays().fuser(OPS["sum"], [], STEPS, out) == wanted


@pytest.mark.parametrize(
    ("op", "dtype"), [("land", torch.int32), ("bxor", torch.float16), ("bor", torch.bfloat16)]
)
def test_an_operator_without_a_formula_has_none(op: str, dtype: torch.dtype) -> None:
    assert source(op, 3, STEPS, dtype) is None


@pytest.mark.parametrize("count", [0, 1 << 31])
def test_what_a_c_int_does_not_count_is_folded_two_by_two(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_kernel", lambda *_given: pytest.fail("it is compiled"))
    out: Any = SimpleNamespace(
        numel=lambda: count, dtype=torch.int8, data_ptr=lambda: 0, element_size=lambda: 1,
        device=None,
    )  # fmt: skip
    assert kernels.fuse("sum", [out, out], ((0, 1),), out) is None


def test_a_kernel_is_launched_by_a_thread_that_has_no_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CUDA_ERROR_INVALID_CONTEXT: such a thread has not used the GPU by the runtime yet."""
    bound: list[object] = []

    def launch(kernel: str, *_given: object) -> int:
        bound.append(kernel)
        return 0 if "context" in bound else 201

    driver = SimpleNamespace(cuLaunchKernel=launch, cuCtxSetCurrent=bound.append)
    monkeypatch.setattr(kernels, "library", lambda: driver)
    monkeypatch.setattr(kernels, "_kernel", lambda *_given: ("kernel", "context"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=0))
    given = torch.ones(3, 4)
    fold = kernels.fuse("sum", [given[0], given[1], given[2]], STEPS, given[2])
    assert fold is not None
    fold()
    fold()
    assert bound == ["kernel", "context", "kernel", "kernel"]
