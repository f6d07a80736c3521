"""Kernels that fold many tensors: their text, compiled as C where there is no GPU."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from torchcoll.kernels import source

STEPS = ((0, 1), (3, 2))
AS_C = """
#define __global__
struct {{ int x; }} blockIdx, threadIdx;
{kernel}
void run(const T *a, const T *b, T *c, int count) {{
    for (int i = 0; i < count; i++) {{
        blockIdx.x = i / 256;
        threadIdx.x = i % 256;
        fold(a, b, c, c, count);
    }}
}}
"""


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
    op: str, dtype: torch.dtype, expected: list[float], tmp_path: Path
) -> None:
    text = source(op, 3, STEPS, dtype)
    assert text is not None
    program = AS_C.format(kernel=text.replace('extern "C" ', "")).replace("fold(a", "fold(a", 1)
    (tmp_path / "fold.c").write_text(program)
    library = tmp_path / "fold.so"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "fold.c", "-o", library], check=True)
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    a, b, c = (np.array(each, kind) for each in ([2, 4, 2], [3, 3, 4], [4, 2, 6]))
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (a, b, c)]
    ctypes.CDLL(str(library)).run(*pointers, 3)
    np.testing.assert_array_equal(c, np.array(expected, kind))


def test_an_operator_without_a_formula_has_none() -> None:
    assert source("land", 3, STEPS, torch.int32) is None
