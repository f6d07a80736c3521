"""torch's collectives, a row for each: its names, our collective, and its part in autograd."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch.distributed import distributed_c10d

from mpicoll.c_extension import _compiled
from torchcoll.groups import BEFORE_2_13

# torch's stubs lack its names for options.
c10d: Any = distributed_c10d
FLAT, ROWS = _compiled.FLAT, _compiled.ROWS
INPUT_ROWS, OUTPUT_ROWS = _compiled.INPUT_ROWS, _compiled.OUTPUT_ROWS


class Operation(NamedTuple):
    """One of torch's collectives.

    Attributes:
        method: of a group, by its name in torch 2.13.
        collective: ours.
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
    options: Any
    title: str
    rows: int = FLAT
    copies: bool = False
    warns: bool = False
    follows_inputs: bool = True
    is_in_place: bool = False

    @property
    def name(self) -> str:
        """The name of torch's operator."""
        old_method = BEFORE_2_13.get(self.method, self.method)
        return old_method if self.method == "barrier" else f"{old_method}_"

    @property
    def folds(self) -> bool:
        """Whether the options have an operator."""
        return hasattr(self.options, "reduceOp")

    @property
    def is_rooted(self) -> bool:
        """Whether the options have a root."""
        return hasattr(self.options, "rootRank")

    @property
    def is_coalesced(self) -> bool:
        """Whether it consists of any number of calls."""
        return self.method.endswith("_coalesced")


ALL_REDUCE = Operation("allreduce", "allreduce", c10d.AllreduceOptions, "all_reduce", warns=True)
ALL_REDUCE_COALESCED = Operation(
    "allreduce_coalesced", "allreduce", c10d.AllreduceCoalescedOptions, "all_reduce", copies=True,
    is_in_place=True,
)  # fmt: skip
BROADCAST = Operation("broadcast", "broadcast", c10d.BroadcastOptions, "broadcast", warns=True)
REDUCE = Operation("reduce", "reduce", c10d.ReduceOptions, "reduce")
ALL_GATHER = Operation(
    "allgather", "allgather", c10d.AllgatherOptions, "all_gather", OUTPUT_ROWS, copies=True
)
ALL_GATHER_COALESCED = Operation(
    "allgather_coalesced", "allgather", c10d.AllgatherOptions, "all_gather", OUTPUT_ROWS,
    copies=True,
)  # fmt: skip
ALL_GATHER_SINGLE = Operation(
    "all_gather_single", "allgather", c10d.AllgatherOptions, "all_gather", OUTPUT_ROWS, copies=True,
    warns=True,
)  # fmt: skip
ALL_GATHER_SINGLE_COALESCED = Operation(
    "all_gather_single_coalesced", "allgather", c10d.AllgatherOptions,
    "all_gather_into_tensor_coalesced", OUTPUT_ROWS, copies=True,
)  # fmt: skip
GATHER = Operation("gather", "gather", c10d.GatherOptions, "gather", OUTPUT_ROWS, copies=True)
SCATTER = Operation(
    "scatter", "scatter", c10d.ScatterOptions, "scatter", INPUT_ROWS, warns=True,
    follows_inputs=False,
)  # fmt: skip
REDUCE_SCATTER = Operation(
    "reduce_scatter", "reduce_scatter", c10d.ReduceScatterOptions, "reduce_scatter", INPUT_ROWS,
    copies=True, warns=True,
)  # fmt: skip
REDUCE_SCATTER_SINGLE = Operation(
    "reduce_scatter_single", "reduce_scatter", c10d.ReduceScatterOptions, "_reduce_scatter_base",
    INPUT_ROWS, copies=True, warns=True,
)  # fmt: skip
REDUCE_SCATTER_SINGLE_COALESCED = Operation(
    "reduce_scatter_single_coalesced", "reduce_scatter", c10d.ReduceScatterOptions,
    "reduce_scatter_tensor_coalesced", INPUT_ROWS, copies=True,
)  # fmt: skip
ALL_TO_ALL_SINGLE = Operation(
    "all_to_all_single", "alltoall", c10d.AllToAllOptions, "all_to_all", ROWS
)
ALL_TO_ALL = Operation(
    "alltoall", "alltoall", c10d.AllToAllOptions, "all_to_all", ROWS, copies=True, warns=True
)
BARRIER = Operation("barrier", "barrier", c10d.BarrierOptions, "barrier")
