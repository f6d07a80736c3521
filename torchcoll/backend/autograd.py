"""What torch's own collectives do to autograd, beside moving bytes.

Each is an operator without a derivative, so torch warns where a gradient comes back through it.
gloo writes the results of some by `Tensor.copy_`. That counts as a change of the tensor, refuses a
leaf that requires a gradient, and cuts the history of any other tensor. Our calls write memory
directly, and tell autograd the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.autograd.graph import increment_version

from torchcoll.backend.tensors import Tensor, leaves, mapped
from torchcoll.operations import OPERATIONS, Operation, Part

_OPERATORS: Any = torch.library.Library("torchcoll", "DEF")  # type: ignore[no-untyped-call]
"""Operators that return their outputs. torch does to these what it does to its own."""
for _operation in filter(attrgetter("warns"), OPERATIONS):
    _OPERATORS.define(f"{_operation.name}(Tensor[] outputs, Tensor[] inputs) -> Tensor[]")
    _OPERATORS.impl(_operation.name, lambda outputs, inputs: outputs, "CPU")


def is_checked(outputs: Sequence[Tensor]) -> bool:
    """Whether torch checks and records who writes one of these tensors now.

    A view of a tensor that requires a gradient counts, too.
    """
    for tensor in outputs:
        if tensor.requires_grad or ((base := tensor._base) is not None and base.requires_grad):
            return torch.is_grad_enabled()
    return False


def run_on_copies(run: Callable[..., None], operation: Operation, parts: Sequence[Part],
                  *arguments: Any) -> None:  # fmt: skip
    """Run the calls of an operation on new tensors, and copy these to its outputs as gloo does.

    torch may refuse the copy. It comes last, so no other rank waits for this one in vain.
    """
    copies: list[Part] = []
    with torch.set_grad_enabled(operation.is_in_place):
        for x, out in parts:
            copy = mapped(Tensor.clone, out)
            copies.append((copy if x is out else x, copy))
    run(operation, copies, *arguments)
    with torch.enable_grad():
        for (_, out), (_, copy) in zip(parts, copies, strict=True):
            for output, result in zip(leaves(out), leaves(copy), strict=True):
                output.copy_(result)


def tell(
    operation: Operation, inputs: Sequence[Tensor], outputs: Sequence[Tensor], *,
    is_copied: bool = False,
) -> None:  # fmt: skip
    """Tell autograd of a call.

    Args:
        is_copied: whether `run_on_copies` runs the call.
    """
    if operation.copies and not is_copied:
        for tensor in outputs:
            increment_version(tensor)
    if operation.warns:
        inputs = inputs if operation.follows_inputs else ()
        for tensor in outputs if inputs is outputs else (*outputs, *inputs):
            if tensor.requires_grad and torch.is_grad_enabled():
                getattr(torch.ops.torchcoll, operation.name)(outputs, inputs)
                return
