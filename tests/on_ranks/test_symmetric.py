"""torch's kernels over symmetric memory: on real GPUs, or on a fake of them.

``MPICOLL_TEST_GPU=1`` asks for real ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import fake_symmetric
import numpy as np
import pytest
from expect import expected, input_shape, values
from run_collective import compare

from mpicoll import Collectives, Unavailable

torch = pytest.importorskip("torch")
REAL = os.environ.get("MPICOLL_TEST_GPU", "") not in ("", "0")
KERNELS = [
    ("allreduce", "symm_one_shot"), ("allreduce", "symm_two_shot"), ("allreduce", "symm_multimem"),
    ("allreduce", "symm_multimem_one_shot"), ("reduce_scatter", "symm_two_shot"),
    ("allgather", "symm_multimem"),
]  # fmt: skip
SYMMETRIC, COPIED = "symmetric", "symmetric+copied"


@pytest.fixture
def g(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collectives]:
    """A group whose ranks have GPUs with symmetric memory; real ones may be one for all."""
    if c.backend != "torch" or c.size == 1:
        pytest.skip("symmetric memory is torch's, and of several ranks")
    part = c.split(0)
    assert part is not None
    if not REAL:
        fake_symmetric.install(part, monkeypatch)
    if part.size > 2 or REAL:
        monkeypatch.setenv("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES", "1")
    yield part
    part.free()


def symmetric(g: Collectives, shape: tuple[int, ...], dtype: str, monkeypatch: Any) -> Any:
    """Return a tensor in symmetric memory, which torch tells from version 2.12 on."""
    from torch.distributed import _symmetric_memory as memory

    from torchcoll import symmetric as module

    empty, like = module.c10d._SymmetricMemory.empty_strided_p2p, g.gpu()
    stride = torch.empty(shape, device="meta").stride()
    made = empty(shape, stride, getattr(torch, dtype), like.device)
    memory.rendezvous(made, g.transport.group)  # type: ignore[attr-defined]
    if not hasattr(module.c10d._SymmetricMemory, "is_symm_mem_tensor"):
        start, stop = g.transport.arrays.span(made)
        monkeypatch.setattr(
            module, "_offset",
            lambda x: -1 if x is None or not start <= x.data_ptr() < stop else x.storage_offset(),
        )  # fmt: skip
    return made


def operands(
    g: Collectives, name: str, shape: tuple[int, ...], dtype: str, in_place: bool, make: Any
) -> tuple[Any, Any]:
    """Return x and out, from `make` where the kernel would share them."""
    plain = g.transport.arrays.empty
    row = shape[1:] if name == "reduce_scatter" else shape
    if name == "allgather":
        out = make((g.size, *shape), dtype)
        return (out[g.rank] if in_place else plain(shape, dtype, g.gpu())), out
    x = make(shape, dtype)
    if not in_place:
        return x, plain(row, dtype, g.gpu())
    return x, x[g.rank] if name == "reduce_scatter" else x


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lies_there", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("name", "kernel"), KERNELS)
def test_a_kernel(
    g: Collectives, name: str, kernel: str, in_place: bool, lies_there: bool, dtype: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    arrays = g.transport.arrays

    def make(shape: tuple[int, ...], dtype: str) -> Any:
        if lies_there:
            return symmetric(g, shape, dtype, monkeypatch)
        return arrays.empty(shape, dtype, g.gpu())

    shapes = [input_shape(name, g.size, rank, (104,), None) for rank in range(g.size)]
    x, out = operands(g, name, shapes[g.rank], dtype, in_place, make)
    op = "avg" if kernel == "symm_one_shot" else "sum"
    try:
        plan = g.plan(name, x, op=op, out=out, algorithm=f"native:{kernel}")
    except Unavailable as refused:
        pytest.skip(str(refused))
    with plan:
        needs = {"symm_one_shot": False, "symm_multimem_one_shot": False, "symm_two_shot": True}
        alike = name != "allreduce" or needs.get(kernel, True) == in_place
        assert plan.transport == (SYMMETRIC if lies_there and alike else COPIED)
        for turn in range(4):
            inputs = [values(s, dtype, rank + 7 * turn, op) for rank, s in enumerate(shapes)]
            arrays.from_host(x, inputs[g.rank])
            if turn % 2:
                plan.start().wait()
            else:
                plan.run()
            compare(g, plan.out, expected(name, inputs, op, 0, None)[g.rank], dtype)
            if not in_place:
                np.testing.assert_array_equal(arrays.to_host(x), inputs[g.rank])


@pytest.mark.parametrize(
    ("dtype", "op", "count", "reason"),
    [
        ("float16", "sum", 8, "fold float32 and bfloat16, not float16"),
        ("float32", "max", 8, "no op 'max'"),
        ("bfloat16", "sum", 3, "multiples of 4 bytes, not 6"),
    ],
)
def test_what_a_kernel_cannot_do_is_said_on_all_ranks(
    g: Collectives, dtype: str, op: str, count: int, reason: str
) -> None:
    x = g.transport.arrays.empty((count,), dtype, g.gpu())
    with pytest.raises(Unavailable, match=reason):
        g.plan("allreduce", x, op=op, algorithm="native:symm_one_shot")


def test_one_rank_alone_is_why_all_are_refused(g: Collectives) -> None:
    x = g.transport.arrays.empty((64,), "float32", g.gpu())
    part = x[:8] if g.rank else x[1:9]
    with pytest.raises(Unavailable, match="rank 0: an array begins at no multiple of 16 bytes"):
        g.plan("allreduce", part, algorithm="native:symm_one_shot")


def test_memory_of_some_ranks_alone_is_not_shared(
    g: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = symmetric(g, (64,), "float32", monkeypatch)
    x = whole if g.rank else g.transport.arrays.empty((64,), "float32", g.gpu())
    with g.plan("allreduce", x, algorithm="native:symm_one_shot") as plan:
        assert plan.transport == COPIED


def test_ranks_that_share_a_gpu(g: Collectives, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES", raising=False)
    gpus = g.exchange(g.transport.arrays.gpu(g.gpu()))
    if len(set(gpus)) == len(gpus):
        pytest.skip("each has a GPU of its own")
    x = g.transport.arrays.empty((64,), "float32", g.gpu())
    with pytest.raises(Unavailable, match="set TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES=1"):
        g.plan("allreduce", x, algorithm="native:symm_one_shot")


def test_kernels_are_listed_where_they_serve(g: Collectives) -> None:
    assert "native:symm_two_shot" in g.algorithms("reduce_scatter")
    assert "native:symm_one_shot" not in g.algorithms("reduce_scatter")
    assert not any("symm" in each for each in g.algorithms("broadcast"))
