"""What torch's own collectives do to autograd, beside moving bytes.

Each is an operator without a derivative, so torch warns where a gradient comes back through it.
gloo writes the results of some by `Tensor.copy_`. That counts as a change of the tensor, refuses a
leaf that requires a gradient, and cuts the history of any other tensor. Our calls write memory
directly, and tell autograd the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import increment_version

from torchcoll.backend.order import Call
from torchcoll.backend.tensors import Tensor

Nested = Any
"""A tensor, None, or a sequence of these."""


class Operator(NamedTuple):
    """One of torch's collectives.

    Attributes:
        name: torch's own.
        title: of its record in torch's profiler, without the name of the backend.
        copies: whether gloo writes its results by `Tensor.copy_`.
        warns: whether torch warns of a gradient that comes back through it.
        follows_inputs: whether its outputs require a gradient where an input does.
        is_in_place: whether it reads what it writes by copies, so that gradients pass.
    """

    name: str
    title: str
    copies: bool = False
    warns: bool = False
    follows_inputs: bool = True
    is_in_place: bool = False


ALL_REDUCE = Operator("allreduce_", "all_reduce", warns=True)
ALL_REDUCE_COALESCED = Operator("allreduce_coalesced_", "all_reduce", copies=True, is_in_place=True)
BROADCAST = Operator("broadcast_", "broadcast", warns=True)
REDUCE = Operator("reduce_", "reduce")
ALL_GATHER = Operator("allgather_", "all_gather", copies=True)
ALL_GATHER_COALESCED = Operator("allgather_coalesced_", "all_gather", copies=True)
ALL_GATHER_SINGLE = Operator("_allgather_base_", "all_gather", copies=True, warns=True)
ALL_GATHER_SINGLE_COALESCED = Operator(
    "allgather_into_tensor_coalesced_", "all_gather_into_tensor_coalesced", copies=True
)
GATHER = Operator("gather_", "gather", copies=True)
SCATTER = Operator("scatter_", "scatter", warns=True, follows_inputs=False)
REDUCE_SCATTER = Operator("reduce_scatter_", "reduce_scatter", copies=True, warns=True)
REDUCE_SCATTER_SINGLE = Operator(
    "_reduce_scatter_base_", "_reduce_scatter_base", copies=True, warns=True
)
REDUCE_SCATTER_SINGLE_COALESCED = Operator(
    "reduce_scatter_tensor_coalesced_", "reduce_scatter_tensor_coalesced", copies=True
)
ALL_TO_ALL_SINGLE = Operator("alltoall_base_", "all_to_all")
ALL_TO_ALL = Operator("alltoall_", "all_to_all", copies=True, warns=True)
BARRIER = Operator("barrier", "barrier")

_OPERATORS: Any = torch.library.Library("torchcoll", "DEF")  # type: ignore[no-untyped-call]
"""Operators that return their outputs. torch does to these what it does to its own."""
for _operator in (
    ALL_REDUCE, BROADCAST, ALL_GATHER_SINGLE, SCATTER, REDUCE_SCATTER, REDUCE_SCATTER_SINGLE,
    ALL_TO_ALL,
):  # fmt: skip
    _OPERATORS.define(f"{_operator.name}(Tensor[] outputs, Tensor[] inputs) -> Tensor[]")
    _OPERATORS.impl(_operator.name, lambda outputs, inputs: outputs, "CPU")


def _count_writes_of_each(tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        increment_version(tensor)


_count_writes: Callable[[Sequence[Tensor]], None] = increment_version
"""Tell autograd that tensors are written."""
try:
    _count_writes(())
except TypeError:  # older versions of torch take one tensor
    _count_writes = _count_writes_of_each


def leaves(tensors: Nested) -> Iterator[Tensor]:
    """Return the tensors of nested sequences, in order."""
    if isinstance(tensors, Tensor):
        yield tensors
    elif isinstance(tensors, Sequence):
        for part in tensors:
            yield from leaves(part)


def is_checked(outputs: Sequence[Tensor]) -> bool:
    """Whether torch checks and records who writes one of these tensors now.

    A view of a tensor that requires a gradient counts, too.
    """
    for tensor in outputs:
        if tensor.requires_grad or (tensor._is_view() and _base(tensor).requires_grad):
            return torch.is_grad_enabled()
    return False


def copied(call: Call, *, is_in_place: bool) -> Call:
    """Return a call that writes new tensors and then copies these as gloo does.

    torch may refuse the copy. It comes last, so no other rank waits for this one in vain.

    Args:
        call: a function, its outputs, and its other arguments.
        is_in_place: see `Operator`.
    """
    function, outputs, *arguments = call

    def run() -> None:
        with torch.set_grad_enabled(is_in_place):
            results = _clone(outputs)
        function(results, *arguments)
        with torch.enable_grad():
            for output, result in zip(leaves(outputs), leaves(results), strict=True):
                output.copy_(result)

    return (run,)


def tell(
    operator: Operator, inputs: Sequence[Tensor], outputs: Sequence[Tensor], *,
    is_copied: bool = False,
) -> None:  # fmt: skip
    """Tell autograd of a call.

    Args:
        is_copied: whether the call is one that `copied` has returned.
    """
    if operator.copies and not is_copied:
        _count_writes(outputs)
    if operator.warns:
        inputs = inputs if operator.follows_inputs else ()
        for tensor in outputs if inputs is outputs else (*outputs, *inputs):
            if tensor.requires_grad and torch.is_grad_enabled():
                getattr(torch.ops.torchcoll, operator.name)(outputs, inputs)
                return


def _base(tensor: Tensor) -> Tensor:
    """Return the tensor of which another is a view."""
    base = tensor._base
    assert base is not None
    return base


def _clone(tensors: Nested) -> Nested:
    if isinstance(tensors, Tensor):
        return tensors.clone()
    return [_clone(part) for part in tensors]
