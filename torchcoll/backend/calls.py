"""Run torch.distributed's collectives by ours: on tensors of any layout, one call at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mpicoll.errors import ArgumentError
from torchcoll.arrays import HOST
from torchcoll.backend.channels import OneNode
from torchcoll.backend.tensors import as_numpy, flat, give_back, leaves, mapped
from torchcoll.operations import FLAT, INPUT_ROWS, OUTPUT_ROWS, ROWS, Nested, Operation, Part


def run_call(
    group: Any, operation: Operation, parts: Sequence[Part], op: Any, root: int, sizes: Any
) -> None:
    """Run a call of a `Group` on the input and output of each part, as `Group._run` has them."""
    for x, out in parts:
        source = mapped(flat, x)
        target = source if out is x else mapped(flat, out)
        lengths = _lengths(group, operation, (x, out), (source, target), sizes)
        if group._size == 1:
            for result, tensor in zip(leaves(target), leaves(source), strict=True):
                give_back(result, tensor)
        else:
            run = _by_channel if isinstance(group.opened(), OneNode) else _by_library
            run(group, operation, source, target, op, root, lengths)
        for tensor, result in zip(leaves(out), leaves(target), strict=True):
            if result is not tensor:
                give_back(tensor, result)


def agree(opened: Any, description: str) -> None:
    """Return where all ranks leave this call to the library; collective.

    Raises:
        ArgumentError: on all ranks, where one of them does not.
    """
    from mpicoll.calls.arguments import digest_of  # rarely needed

    digest = digest_of(description)
    different = ArgumentError(f"this rank calls {description}, and others something else")
    if isinstance(opened, OneNode):
        if not opened.agree(digest):
            raise different
    elif not opened.plans.matches(digest):
        opened.plans.agree(different)


def _lengths(group: Any, operation: Operation, tensors: Part, flats: Part, sizes: Any) -> Any:
    """Return the elements that an alltoall sends to each rank, and gets; None if all as many.

    Raises:
        ArgumentError: the sizes do not cut the tensors.
    """
    if operation.rows != ROWS or not (any(sizes) or isinstance(tensors[0], list)):
        return None
    if not any(sizes):
        return tuple(tuple(tensor.numel() for tensor in side) for side in flats)
    pairs = zip(tensors, flats, sizes, strict=True)
    return tuple(_cut(tensor, x, rows, group._size) for tensor, x, rows in pairs)


def _by_channel(
    group: Any, operation: Operation, x: Nested, out: Nested, op: Any, root: int, lengths: Any
) -> None:
    rank = group._rank
    if lengths and lengths[0][rank] != lengths[1][rank]:
        raise _unequal(rank, rank, lengths[0][rank], lengths[1][rank])
    run, counts = group.opened().channel.run_next, lengths if isinstance(x, Tensor) else None
    for source in (x, mapped(Tensor.clone, x)):  # they may overlap
        if run(operation.collective, source, out, op, root, counts, "auto", operation.rows):
            return
    shapes = [[tuple(tensor.shape) for tensor in leaves(side)] for side in (x, out)]
    raise ArgumentError(
        f"{operation.collective} of {group._size} ranks has input {shapes[0]} and output "
        f"{shapes[1]}, which do not fit each other"
    )


def _by_library(
    group: Any, operation: Operation, x: Nested, out: Nested, op: Any, root: int, lengths: Any
) -> None:
    """Run a call on whole tensors: of a row for each rank, or of counts."""
    source, target = x, out
    counts = _all_lengths(group, *lengths) if lengths else None
    if isinstance(x, list):
        source, counts = torch.cat(x), counts or tuple(tensor.numel() for tensor in x)
    if isinstance(out, list):
        counts = counts or tuple(tensor.numel() for tensor in out)
        target = out[0].new_empty(sum(tensor.numel() for tensor in out))
    if counts and len({*(counts if operation.rows != ROWS else sum(counts, ()))}) == 1:
        counts = None
    if operation.rows and source is not None and target is not None:
        # Whether they overlap is known to this rank alone, and all must run the same plan.
        source = source.clone() if _overlap(source, target) else source
    rows = operation.rows if not counts else FLAT
    source = _rows(source, group._size) if rows & INPUT_ROWS else source
    result = _rows(target, group._size) if rows & OUTPUT_ROWS else target
    _run_plan(group, operation.collective, source, result, op, root, counts)
    if isinstance(out, list):
        pieces = torch.split(target, [tensor.numel() for tensor in out])
        for tensor, piece in zip(out, pieces, strict=True):
            tensor.copy_(piece)


def _run_plan(group: Any, name: str, x: Tensor | None, out: Tensor | None, *arguments: Any) -> None:
    arrays = map(as_numpy, (x, out)) if group.is_over_mpi else (x, out)
    group.opened()._call(name, *arrays, *arguments, group.algorithms[name])


def _all_lengths(group: Any, sent: Sequence[int], received: Sequence[int]) -> Any:
    """Return the lengths from each rank to each; a rank knows its own."""
    size = group._size
    lengths = torch.tensor([*sent, *received], dtype=torch.int64, device=HOST)
    every = lengths.new_empty((size, 2 * size))
    _run_plan(group, "allgather", lengths, every, "sum", 0, None)
    table = every.tolist()
    for source in range(size):
        for target in range(size):
            lengths_of_pair = table[source][target], table[target][size + source]
            if lengths_of_pair[0] != lengths_of_pair[1]:
                raise _unequal(source, target, *lengths_of_pair)
    return tuple(tuple(row[:size]) for row in table)


def _rows(x: Tensor | None, size: int) -> Tensor | None:
    if x is None:
        return None
    return x.view(size, -1) if x.numel() else x.new_empty((size, 0))


def check_lengths(operation: Operation, x: Nested, out: Nested, size: int) -> None:
    """Check that one tensor has as many elements as a row of the other for each rank.

    Raises:
        ArgumentError: it has not, or another dtype.
    """
    if not (operation.rows and isinstance(x, Tensor) and isinstance(out, Tensor)):
        return
    if operation.rows == ROWS:
        for array, label in ((x, "input"), (out, "output")):
            if array.numel() % size:
                raise ArgumentError(
                    f"the {label} of {operation.method} has {array.numel()} elements: without "
                    f"sizes, a multiple of the {size} ranks"
                )
        return
    whole, part, large, small = x, out, "input", "output"
    if operation.rows == OUTPUT_ROWS:
        whole, part, large, small = out, x, small, large
    if whole.dtype != part.dtype:
        raise ArgumentError(f"the {large} is {whole.dtype}, the {small} {part.dtype}: they agree")
    if whole.numel() != size * part.numel():
        raise ArgumentError(
            f"the {large} has {whole.numel()} elements: {size} ranks need {size} times the "
            f"{part.numel()} of the {small}"
        )


def _overlap(x: Tensor, out: Tensor) -> bool:
    start, out_start = x.data_ptr(), out.data_ptr()
    return start < out_start + out.nbytes and out_start < start + x.nbytes


def _cut(tensor: Tensor, x: Tensor, sizes: Any, ranks: int) -> tuple[int, ...]:
    """Return the elements for each rank, given rows of the first axis."""
    rows = tensor.shape[0] if tensor.dim() else 1
    row_counts = list(sizes) if sizes else [rows // ranks] * ranks
    if len(row_counts) != ranks or sum(row_counts) != rows:
        raise ArgumentError(f"sizes {row_counts} do not cut {rows} rows for {ranks} ranks")
    width = x.numel() // rows if rows else 0
    return tuple(width * count for count in row_counts)


def _unequal(source: int, target: int, sent: int, expected: int) -> ArgumentError:
    return ArgumentError(
        f"rank {source} sends {sent} elements to rank {target}, which expects {expected}"
    )
