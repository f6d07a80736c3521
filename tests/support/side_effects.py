"""What collectives of torch.distributed do beside moving bytes, as a program sees it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

MISSING = "an autograd kernel was not registered"


def _vectors(count: int = 4) -> list[torch.Tensor]:
    return [torch.full((count,), 7.0) for _ in range(dist.get_world_size())]


def _vector(count: int) -> torch.Tensor:
    return torch.full((count,), 7.0)


def _if_root(tensors: list[torch.Tensor], root: int) -> list[torch.Tensor] | None:
    return tensors if dist.get_rank() == root else None


COLLECTIVES: dict[str, Callable[..., Any]] = {
    "all_reduce": lambda x, **how: dist.all_reduce(x, **how),
    "all_reduce_coalesced": lambda x, **how: dist.all_reduce_coalesced([x], **how),
    "broadcast": lambda x, **how: dist.broadcast(x, 1, **how),
    "reduce": lambda x, **how: dist.reduce(x, 0, **how),
    "all_gather": lambda x, **how: dist.all_gather([x, *_vectors()[1:]], _vector(4), **how),
    "all_gather_single": lambda x, **how: all_gather_single(
        x, _vector(len(x) // dist.get_world_size()), **how
    ),
    "gather": lambda x, **how: dist.gather(_vector(4), _if_root([x, *_vectors()[1:]], 0), 0, **how),
    "scatter": lambda x, **how: dist.scatter(x, _if_root(_vectors(), 1), 1, **how),
    "reduce_scatter": lambda x, **how: dist.reduce_scatter(x, _vectors(), **how),
    "reduce_scatter_single": lambda x, **how: reduce_scatter_single(
        x, _vector(len(x) * dist.get_world_size()), **how
    ),
    "all_to_all_single": lambda x, **how: dist.all_to_all_single(x, _vector(len(x)), **how),
    "all_to_all": lambda x, **how: dist.all_to_all([x, *_vectors()[1:]], _vectors(), **how),
}
"""Collectives that write a tensor, each by its name."""
OUTPUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda leaf: torch.zeros(len(leaf)),
    "strided": lambda leaf: torch.zeros(len(leaf), 2)[:, 0],
    "leaf": lambda leaf: leaf,
    "view of a leaf": lambda leaf: leaf.view(-1),
    "computed": lambda leaf: leaf * 2,
}
"""Tensors to be written, each by its kind and from a leaf that requires a gradient."""
CASES = [
    case for case in product(COLLECTIVES, OUTPUTS, (False, True))
    # gloo writes the output of this collective by views, and torch refuses that for their sake.
    if not (case[0] == "all_gather_single" and case[1] not in ("plain", "strided") and case[2])
]  # fmt: skip
"""Collectives, outputs, and whether gradients are enabled."""


class Effects(NamedTuple):
    """What a program sees of a call.

    Attributes:
        error: "leaf" where torch refuses to write a leaf; empty where there is no error.
        is_changed: whether autograd counts the output as changed.
        value: the first number of the output.
        gradient: of what the output was computed from, where it was.
        is_warned: whether torch warns as the gradient comes back.
    """

    error: str
    is_changed: bool
    value: float
    gradient: float | None
    is_warned: bool


def observe(
    name: str, kind: str, enabled: bool, *, group: dist.ProcessGroup, is_async: bool
) -> Effects:
    """Return the effects of a collective."""
    leaf = torch.zeros(4 * dist.get_world_size() if "single" in name else 4, requires_grad=True)
    x, error = OUTPUTS[kind](leaf), ""
    version = x._version
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with torch.set_grad_enabled(enabled):
                work = COLLECTIVES[name](x, group=group, async_op=is_async)
                if is_async:
                    work.wait()
        except RuntimeError as raised:
            error = "leaf" if "leaf Variable that requires grad" in str(raised) else str(raised)
        is_changed = x._version != version
        if kind == "computed":
            x.sum().backward()
    return Effects(
        error, is_changed, float(x.detach()[0]),
        None if leaf.grad is None else float(leaf.grad[0]),
        any(MISSING in str(each.message) for each in caught),
    )  # fmt: skip
