"""Tensors as torch.distributed gives them, and as the collectives take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _python_dispatch
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from mpicoll.notation.elements import OPS, kind_of
from torchcoll.arrays import NAMES, vector
from torchcoll.operations import REDUCE_OPS, Nested

Tensor = torch.Tensor
# By hash, which is that of the kind for either type of torch's, and takes a tenth of a comparison.
OP_NAMES = {hash(dist.ReduceOp(kind)): name for name, kind in REDUCE_OPS.items()}
"""Our names of torch's operators."""
_PLAIN = Tensor.__torch_dispatch__


def leaves(tensors: Nested) -> Iterator[Tensor]:
    """Return the tensors of nested sequences, in order."""
    if isinstance(tensors, Tensor):
        yield tensors
    elif isinstance(tensors, Sequence):
        for part in tensors:
            yield from leaves(part)


def mapped(function: Callable[[Tensor], Tensor], side: Nested) -> Nested:
    """Return the result of a function for a tensor, or for each of a list; None for None."""
    if side is None or isinstance(side, Tensor):
        return None if side is None else function(side)
    return [function(tensor) for tensor in side]


@cache
def reduces(op: str | None, dtype: torch.dtype) -> bool:
    """Whether we have an operator for a dtype."""
    return op is not None and dtype in NAMES and kind_of(NAMES[dtype]) in OPS[op].kinds


def is_watched() -> bool:
    """Whether a mode of torch's, as CommDebugMode, is to see the operators of the next call."""
    return _python_dispatch._is_in_torch_dispatch_mode and torch._C._len_torch_dispatch_stack() > 0


def moves(tensor: Tensor) -> bool:
    """Whether we move a tensor: any dense one on the host, of whatever dtype.

    Not where operators on it are a program's own.
    """
    if not tensor.is_cpu or tensor.layout is not torch.strided:
        return False
    if type(tensor).__torch_dispatch__ is not _PLAIN:
        return False
    return tensor.dtype in NAMES or not tensor.is_quantized


def as_numpy(tensor: Tensor | None) -> Any:
    """Return NumPy's array on the memory of a tensor on the host; of int16 for bfloat16.

    `Tensor.numpy` forbids for good to resize that memory, as FSDP does after its collectives; a
    tensor that DLPack has made is another to torch, and the original stays as it was.

    Raises:
        TypeError, RuntimeError, BufferError: NumPy has no such array.
    """
    if tensor is None:
        return None
    plain = tensor.detach()
    plain = plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain
    return from_dlpack(to_dlpack(plain)).numpy()


def flat(tensor: Tensor) -> Tensor:
    """Return a tensor as a contiguous one of one dimension: a view where that is possible.

    One of a dtype that only torch knows is returned as bytes.
    """
    x = tensor
    if x.is_neg() or x.is_conj():
        x = x.resolve_conj().resolve_neg()
    if not x.is_contiguous():
        x = x.contiguous()
    if type(x) is Tensor and x.stride() == (1,) and x.dtype in NAMES:
        return x
    x = x.detach() if type(x) is Tensor else x.detach().as_subclass(Tensor)
    line: Tensor = vector(x)
    return line if line.dtype in NAMES else line.view(torch.uint8)


def give_back(tensor: Tensor, result: Tensor) -> None:
    """Copy a result that `flat` could not make a view of, without autograd's knowledge."""
    if tensor.numel() and result.data_ptr() != tensor.data_ptr():
        source = result if result.dtype == tensor.dtype else result.view(tensor.dtype)
        tensor.data.copy_(source.view(tensor.shape))
