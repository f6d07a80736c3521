"""Folds of many tensors in one kernel, on a real GPU: the same bits as folds two by two."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch")

import torch

from mpicoll.notation.elements import OPS
from torchcoll import kernels
from torchcoll.arrays import TorchArrays

if os.environ.get("MPICOLL_TEST_GPU", "") in ("", "0"):
    pytest.skip("needs a GPU: MPICOLL_TEST_GPU=1", allow_module_level=True)
pytestmark = pytest.mark.gpu
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@pytest.mark.parametrize(
    ("count", "start"), [(1, 0), (7, 0), (4096, 0), (100_003, 0), (100_003, 1)]
)
@pytest.mark.parametrize("operands", [2, 3, 8, 16])
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint32"])
def test_one_kernel_folds_as_many_do(
    dtype: str, op: str, operands: int, count: int, start: int
) -> None:
    """Of any bits, NaN and infinities among them; from addresses of any alignment."""
    kind = getattr(torch, dtype)
    source = torch.Generator("cuda").manual_seed(count + operands)
    bits = torch.randint(
        -(1 << 62), 1 << 62, (operands, count + start), generator=source, device="cuda"
    ).to(INTEGERS[kind.itemsize])
    given = [
        each.view(kind)[start:].clone() if not start else each.view(kind)[start:] for each in bits
    ]
    steps = ((0, 1), *((operands + k, k + 2) for k in range(operands - 2)))
    arrays = TorchArrays()
    wanted = given[0].clone()
    for each in given[1:]:
        arrays.folder(OPS[op], wanted, each, wanted)()
    out = given[-1]
    fused = kernels.fuse(op, given, steps, out)
    assert fused is not None
    fused()
    same = out.view(INTEGERS[kind.itemsize]) == wanted.view(INTEGERS[kind.itemsize])
    if kind.is_floating_point:
        same |= out.isnan() & wanted.isnan()
    assert bool(same.all()), (out[~same][:4], wanted[~same][:4])
