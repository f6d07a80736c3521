"""Run torch.distributed's collectives by ours: on tensors of any layout, one call at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from mpicoll.calls.arguments import digest_of
from mpicoll.errors import ArgumentError
from mpicoll.notation.contract import collective
from torchcoll.arrays import HOST
from torchcoll.backend.channels import OneNode
from torchcoll.backend.tensors import Room, Tensor, flat, give_back, hand_out

Tensors = Sequence[Tensor]


class TensorCalls:
    """The collectives of one group on tensors.

    The ranks share memory from the first call on. Lists have one tensor for each rank.

    Args:
        opened: makes the group's collectives, with all its ranks.
        algorithms: the algorithm of each collective.
    """

    def __init__(
        self, rank: int, size: int, opened: Callable[[], Any], algorithms: Mapping[str, str]
    ) -> None:
        self.rank, self.size, self.algorithms = rank, size, algorithms
        self.room = Room()
        self._opened = opened

    def allreduce(self, tensor: Tensor, op: Any) -> None:
        x = flat(tensor)
        self.run("allreduce", x, x, op)
        if x is not tensor:
            give_back(tensor, x)

    def broadcast(self, tensor: Tensor, root: int) -> None:
        x = flat(tensor)
        self.run("broadcast", x, x, "sum", root)
        if x is not tensor:
            give_back(tensor, x)

    def reduce(self, tensor: Tensor, op: Any, root: int) -> None:
        x = flat(tensor)
        self.run("reduce", x, x if self.rank == root else None, op, root)
        if x is not tensor and self.rank == root:
            give_back(tensor, x)

    def allgather(self, outputs: Tensors, tensor: Tensor) -> None:
        counts = tuple(output.numel() for output in outputs)
        if len(set(counts)) > 1:
            self._allgather_uneven(outputs, tensor, counts)
            return
        x, rows = flat(tensor), self.room.for_rows(outputs)
        self.run("allgather", x, rows)
        hand_out(outputs, rows)

    def _allgather_uneven(self, outputs: Tensors, tensor: Tensor, counts: Any) -> None:
        x = flat(tensor)
        width = x.numel() // max(tensor.numel(), 1) or 1
        counts = tuple(width * count for count in counts)
        whole = x.new_empty(sum(counts))
        self.run("allgather", x, whole, counts=counts)
        hand_out(outputs, torch.split(whole, counts))

    def all_gather_single(self, output: Tensor, tensor: Tensor) -> None:
        x, whole = flat(tensor), flat(output)
        self.run("allgather", x, whole.view(self.size, -1) if x.numel() else self._none(x))
        if whole is not output:
            give_back(output, whole)

    def gather(self, outputs: Tensors, tensor: Tensor, root: int) -> None:
        if self.rank != root:
            self.run("gather", flat(tensor), None, "sum", root)
            return
        rows = self.room.for_rows(outputs)
        self.run("gather", flat(tensor), rows, "sum", root)
        hand_out(outputs, rows)

    def scatter(self, output: Tensor, inputs: Tensors, root: int) -> None:
        x = flat(output)
        self.run(
            "scatter", self.room.rows_of(inputs) if self.rank == root else None, x, "sum", root
        )
        if x is not output:
            give_back(output, x)

    def reduce_scatter(self, output: Tensor, inputs: Tensors, op: Any) -> None:
        x = flat(output)
        counts = tuple(block.numel() for block in inputs)
        if len(set(counts)) > 1:
            whole = torch.cat([flat(block) for block in inputs])
            self.run("reduce_scatter", whole, x, op, counts=counts)
        else:
            self.run("reduce_scatter", self.room.rows_of(inputs), x, op)
        if x is not output:
            give_back(output, x)

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, op: Any) -> None:
        x, whole = flat(output), flat(tensor)
        rows = whole.detach().view(self.size, -1) if x.numel() else self._none(x)
        self.run("reduce_scatter", rows, x, op)
        if x is not output:
            give_back(output, x)

    def all_to_all_single(
        self, output: Tensor, tensor: Tensor, output_sizes: Any, input_sizes: Any
    ) -> None:
        x, whole = flat(tensor), flat(output)
        if not output_sizes and not input_sizes:
            for array, label in ((x, "input"), (whole, "output")):
                if array.numel() % self.size:
                    raise ArgumentError(
                        f"the {label} of all_to_all_single has {array.numel()} elements: without "
                        f"sizes, a multiple of the {self.size} ranks"
                    )
            self._alltoall(x, whole)
        else:
            sent = _lengths(tensor, x, input_sizes, self.size)
            received = _lengths(output, whole, output_sizes, self.size)
            self._alltoall_uneven(x, whole, sent, received)
        if whole is not output:
            give_back(output, whole)

    def all_to_all(self, outputs: Tensors, tensors: Tensors) -> None:
        parts = [flat(tensor) for tensor in tensors]
        rooms = [flat(output) for output in outputs]
        whole = rooms[0].new_empty(sum(room.numel() for room in rooms))
        sent, received = [part.numel() for part in parts], [room.numel() for room in rooms]
        self._alltoall_uneven(torch.cat(parts), whole, sent, received)
        hand_out(outputs, torch.split(whole, received))

    def _alltoall(self, x: Tensor, whole: Tensor) -> None:
        size = self.size
        if x.numel():
            self.run("alltoall", x.detach().view(size, -1), whole.view(size, -1))
        else:
            self.run("barrier", None, None)

    def _alltoall_uneven(self, x: Tensor, out: Tensor, sent: Any, received: Any) -> None:
        """Exchange blocks of lengths that each rank knows of its own only."""
        size = self.size
        if size > 1 and isinstance(self._opened(), OneNode):
            if sent[self.rank] != received[self.rank]:
                raise ArgumentError(
                    f"rank {self.rank} sends {sent[self.rank]} elements to rank {self.rank}, which "
                    f"expects {received[self.rank]}"
                )
            self.run("alltoall", x, out, counts=(tuple(sent), tuple(received)))
            return
        lengths = torch.tensor([*sent, *received], dtype=torch.int64, device=HOST)
        every = lengths.new_empty((size, 2 * size))
        self.run("allgather", lengths, every)
        table = every.tolist()
        counts = tuple(tuple(row[:size]) for row in table)
        wanted = tuple(tuple(row[size:]) for row in table)
        if counts != tuple(zip(*wanted, strict=True)):
            source, target = next(
                (source, target)
                for source in range(size)
                for target in range(size)
                if counts[source][target] != wanted[target][source]
            )
            raise ArgumentError(
                f"rank {source} sends {counts[source][target]} elements to rank {target}, which "
                f"expects {wanted[target][source]}"
            )
        if len({count for row in counts for count in row}) == 1:
            self._alltoall(x, out)
        else:
            self.run("alltoall", x, out, counts=counts)

    def allgather_coalesced(self, outputs: Sequence[Tensors], tensors: Tensors) -> None:
        for tensor, *row in zip(tensors, *outputs, strict=True):
            self.allgather(row, tensor)

    def repeat(self, outputs: Tensors, call: Callable[..., None], *arguments: Any) -> None:
        """Run a collective for the output, and the arguments, of each place in some lists."""
        for output, *values in zip(outputs, *arguments, strict=True):
            call(output, *values)

    def run(
        self, name: str, x: Tensor | None, out: Tensor | None, op: str = "sum", root: int = 0,
        counts: Any = None,
    ) -> None:  # fmt: skip
        """Run one of our collectives."""
        if self.size == 1:
            if x is not None and out is not None:
                give_back(out, x)
            return
        opened = self._opened()
        opened._call(name, x, out, op, root, counts, self.algorithms[name])

    def agree(self, description: str) -> None:
        """Return where all ranks leave this call to the library; collective.

        Raises:
            ArgumentError: on all ranks, where one of them does not.
        """
        if self.size == 1:
            return
        opened = self._opened()
        digest = digest_of(description)
        different = ArgumentError(f"this rank calls {description}, and others something else")
        if isinstance(opened, OneNode):
            if not opened.agree(digest):
                raise different
        elif not opened.plans.matches(digest):
            opened.plans.agree(different)

    def _none(self, like: Tensor) -> Tensor:
        return like.new_empty((self.size, 0))


class SpanningTensorCalls(TensorCalls):
    """The collectives of a group on several nodes, whose ranks compare no call.

    An input that overlaps the rows of the output is copied: this rank alone knows that it does, and
    all ranks must run the same plan.
    """

    def run(
        self, name: str, x: Tensor | None, out: Tensor | None, op: str = "sum", root: int = 0,
        counts: Any = None,
    ) -> None:  # fmt: skip
        is_vector = collective(name).unit == "vector"
        if not is_vector and x is not None and out is not None and _overlap(x, out):
            x = x.clone()
        super().run(name, x, out, op, root, counts)


def _overlap(x: Tensor, out: Tensor) -> bool:
    start, out_start = x.data_ptr(), out.data_ptr()
    return start < out_start + out.nbytes and out_start < start + x.nbytes


def _lengths(tensor: Tensor, x: Tensor, sizes: Any, ranks: int) -> list[int]:
    """Return the elements for each rank, given rows of the first axis."""
    rows = tensor.shape[0] if tensor.dim() else 1
    row_counts = list(sizes) if sizes else [rows // ranks] * ranks
    if len(row_counts) != ranks or sum(row_counts) != rows:
        raise ArgumentError(f"sizes {row_counts} do not cut {rows} rows for {ranks} ranks")
    width = x.numel() // rows if rows else 0
    return [width * count for count in row_counts]
