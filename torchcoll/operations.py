"""torch's collectives, a row for each: its names, our collective, and its part in autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from mpicoll.c_extension import _compiled

# torch's stubs lack its names for options.
c10d: Any = distributed_c10d
_RED: Any = dist.ReduceOp.RedOpType
REDUCE_OPS = {
    "sum": _RED.SUM, "avg": _RED.AVG, "prod": _RED.PRODUCT, "min": _RED.MIN, "max": _RED.MAX,
    "band": _RED.BAND, "bor": _RED.BOR, "bxor": _RED.BXOR,
}  # fmt: skip
"""torch's operators by our names."""
_BEFORE_2_13 = {
    "all_gather_single": "_allgather_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
    "all_to_all_single": "alltoall_base",
}
"""The names that a library's group has in an older torch."""
Nested = Any
"""A tensor, None, or a sequence of these."""
Part = tuple[Nested, Nested]
"""The input and the output of a call: a tensor, one for each rank, or None."""
FLAT, ROWS = _compiled.FLAT, _compiled.ROWS
INPUT_ROWS, OUTPUT_ROWS = _compiled.INPUT_ROWS, _compiled.OUTPUT_ROWS


class Operation(NamedTuple):
    """One of torch's collectives.

    Attributes:
        method: of a group, by its name in torch 2.13.
        collective: ours.
        arrange: returns the tensors that a call reads, those that it writes, and the input and
            output of each of our calls, given the arguments of the method before the options.
        options: torch's class of its options.
        title: of its record in torch's profiler, without the name of the backend.
        rows: which arrays have a part for each rank.
        copies: whether gloo writes its results by `Tensor.copy_`.
        warns: whether torch warns of a gradient that comes back through it.
        follows_inputs: whether its outputs require a gradient where an input does.
        is_in_place: whether it reads what it writes by copies, so that gradients pass.
    """

    method: str
    collective: str
    arrange: Callable[..., tuple[Any, Any, list[Part]]]
    options: Any
    title: str
    rows: int = FLAT
    copies: bool = False
    warns: bool = False
    follows_inputs: bool = True
    is_in_place: bool = False

    @property
    def methods(self) -> tuple[str, str]:
        """The names of the method in torch 2.13 and before."""
        return self.method, _BEFORE_2_13.get(self.method, self.method)

    def of(self, group: Any) -> Any:
        """Return the method of a group, by the name that this torch has."""
        current, previous = self.methods
        return getattr(group, current, None) or getattr(group, previous)

    @property
    def name(self) -> str:
        """The name of torch's operator."""
        return "barrier" if self.method == "barrier" else f"{self.methods[1]}_"

    @property
    def folds(self) -> bool:
        """Whether the options have an operator."""
        return hasattr(self.options, "reduceOp")

    @property
    def is_coalesced(self) -> bool:
        """Whether it consists of any number of calls."""
        return self.method.endswith("_coalesced")


def _vectors(tensors: Any) -> tuple[Any, Any, list[Part]]:
    if len(tensors) == 1:
        return tensors, tensors, [(tensors[0], tensors[0])]
    return tensors, tensors, [(x, x) for x in tensors]


def _pair(output: Tensor, tensor: Tensor) -> tuple[Any, Any, list[Part]]:
    return [tensor], [output], [(tensor, output)]


def _sized_pair(
    output: Tensor, tensor: Tensor, _output_sizes: Any, _input_sizes: Any
) -> tuple[Any, Any, list[Part]]:
    return _pair(output, tensor)


def _pairs(outputs: Any, tensors: Any) -> tuple[Any, Any, list[Part]]:
    return tensors, outputs, [*zip(tensors, outputs, strict=True)]


def _lists(outputs: Any, tensors: Any) -> tuple[Any, Any, list[Part]]:
    return tensors, outputs, [(tensors, outputs)]


def _row_outputs(outputs: Any, inputs: Any) -> tuple[Any, Any, list[Part]]:
    rows = outputs[0] if outputs else []
    return inputs, rows, [(x, rows) for x in inputs]


def _row_inputs(outputs: Any, inputs: Any) -> tuple[Any, Any, list[Part]]:
    rows = inputs[0] if inputs else []
    return rows, outputs, [(rows, out) for out in outputs]


def _coalesced_row_outputs(outputs: Any, inputs: Any) -> tuple[Any, Any, list[Part]]:
    return inputs, outputs, [(x, rows) for x, *rows in zip(inputs, *outputs, strict=True)]


def _nothing() -> tuple[Any, Any, list[Part]]:
    return [], [], [(None, None)]


BARE_ARGUMENTS: dict[Any, int] = {_vectors: 0, _row_outputs: 1, _row_inputs: 0}
"""The number of the argument that may be a tensor instead of a list of one, where there is one."""
BARRIER = Operation("barrier", "barrier", _nothing, c10d.BarrierOptions, "barrier")
OPERATIONS = (
    Operation("allreduce", "allreduce", _vectors, c10d.AllreduceOptions, "all_reduce", warns=True),
    Operation(
        "allreduce_coalesced", "allreduce", _vectors, c10d.AllreduceCoalescedOptions, "all_reduce",
        copies=True, is_in_place=True,
    ),
    Operation("broadcast", "broadcast", _vectors, c10d.BroadcastOptions, "broadcast", warns=True),
    Operation("reduce", "reduce", _vectors, c10d.ReduceOptions, "reduce"),
    Operation(
        "allgather", "allgather", _row_outputs, c10d.AllgatherOptions, "all_gather", OUTPUT_ROWS,
        copies=True,
    ),
    Operation(
        "allgather_coalesced", "allgather", _coalesced_row_outputs, c10d.AllgatherOptions,
        "all_gather", OUTPUT_ROWS, copies=True,
    ),
    Operation(
        "all_gather_single", "allgather", _pair, c10d.AllgatherOptions, "all_gather", OUTPUT_ROWS,
        copies=True, warns=True,
    ),
    Operation(
        "all_gather_single_coalesced", "allgather", _pairs, c10d.AllgatherOptions,
        "all_gather_into_tensor_coalesced", OUTPUT_ROWS, copies=True,
    ),
    Operation(
        "gather", "gather", _row_outputs, c10d.GatherOptions, "gather", OUTPUT_ROWS, copies=True
    ),
    Operation(
        "scatter", "scatter", _row_inputs, c10d.ScatterOptions, "scatter", INPUT_ROWS, warns=True,
        follows_inputs=False,
    ),
    Operation(
        "reduce_scatter", "reduce_scatter", _row_inputs, c10d.ReduceScatterOptions,
        "reduce_scatter", INPUT_ROWS, copies=True, warns=True,
    ),
    Operation(
        "reduce_scatter_single", "reduce_scatter", _pair, c10d.ReduceScatterOptions,
        "_reduce_scatter_base", INPUT_ROWS, copies=True, warns=True,
    ),
    Operation(
        "reduce_scatter_single_coalesced", "reduce_scatter", _pairs, c10d.ReduceScatterOptions,
        "reduce_scatter_tensor_coalesced", INPUT_ROWS, copies=True,
    ),
    Operation(
        "all_to_all_single", "alltoall", _sized_pair, c10d.AllToAllOptions, "all_to_all", ROWS
    ),
    Operation(
        "alltoall", "alltoall", _lists, c10d.AllToAllOptions, "all_to_all", ROWS, copies=True,
        warns=True,
    ),
    BARRIER,
)  # fmt: skip
BY_METHOD = {operation.method: operation for operation in OPERATIONS}
