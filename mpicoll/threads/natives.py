"""Every collective as its contract reads: blocks that are folded in rank order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpicoll.backend import Array, Arrays, NativeCall
from mpicoll.notation.contract import Place
from mpicoll.notation.schedule import Block


def fold(call: NativeCall, inputs: Sequence[Array | None], arrays: Arrays) -> None:
    """Write the caller's result, given every rank's flat input."""
    size = len(inputs)
    contents = call.collective.output_contents(Place(call.rank, size, call.root, 1))
    if call.out is None or not contents:
        return

    def part(rank: int, block: Block) -> Array:
        blocks = call.collective.input_blocks(Place(rank, size, call.root, 1))
        return _cut(call, inputs[rank], blocks)[block]

    targets = _cut(call, arrays.flat(call.out), list(contents))
    for block, contributions in contents.items():
        first, *later_contributions = contributions
        target = targets[block]
        arrays.copier(target, part(*first))()
        for contribution in later_contributions:
            arrays.folder(call.op, target, part(*contribution), target)()


def _cut(call: NativeCall, flat: Array | None, blocks: Sequence[Block]) -> dict[Block, Array]:
    """Cut a flat array into its blocks, which lie there in order."""
    assert flat is not None
    rows = [_rows(call, block) for block in blocks]
    width = len(flat) // max(1, sum(rows))
    parts, start = {}, 0
    for block, count in zip(blocks, rows, strict=True):
        parts[block] = flat[start : start + count * width]
        start += count * width
    return parts


def _rows(call: NativeCall, block: Block) -> int:
    """Return how many rows a block has; one without counts."""
    if call.counts is None:
        return 1
    counts: Any = call.counts
    return int(counts[block[0]][block[1]] if isinstance(block, tuple) else counts[block])
