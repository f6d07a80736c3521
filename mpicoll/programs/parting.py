"""Send each block in two parts: one passes through slots, the other is fetched.

A root that scatters large rows to one rank has the most to do: it copies that rank's row into
slots, and then its own. If that row is fetched, the other rank has: the system copies more slowly
than it reads slots. So the larger part passes through slots, and the other rank fetches the rest
while the root copies its own row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from mpicoll.notation.schedule import Block, Op, Receive, Round, Send, Temp

_HANDED = 3 / 4
"""Of a block, what passes through slots: it costs the root as much as fetching the rest costs the
reader where that is slow."""
_UNIT = 1024
"""Elements of which the first part is a multiple: then both lie in whole lines, and alike in their
pages."""


class Part(NamedTuple):
    """A part of a block: the one that passes through slots, or the one that is fetched."""

    block: Block
    fetched: bool


def in_two_parts(
    rounds: Sequence[Round], sizes: Mapping[Block, int], before: Sequence[Block],
    after: Sequence[Block],
) -> tuple[list[Round], dict[Block, int], list[Block], list[Block]]:  # fmt: skip
    """Return a schedule that does in two rounds what each round does, a part of the blocks in each.

    The arguments are those of `messages.lower`, and so is what is returned.
    """
    parted = [
        tuple(_of_part(op, fetched) for op in ops) for ops in rounds for fetched in (False, True)
    ]
    lengths: dict[Block, int] = {}
    for block, length in sizes.items():
        handed = int(length * _HANDED) // _UNIT * _UNIT
        lengths[Part(block, False)], lengths[Part(block, True)] = handed, length - handed
    return parted, lengths, _parts(before), _parts(after)


def _parts(blocks: Iterable[Block]) -> list[Block]:
    return [Part(block, fetched) for block in blocks for fetched in (False, True)]


def _of_part(op: Op, fetched: bool) -> Op:
    if isinstance(op, Send | Receive):
        return replace(op, blocks=tuple(_part(block, fetched) for block in op.blocks))
    return replace(op, target=_part(op.target, fetched), source=_part(op.source, fetched))


def _part(block: Block, fetched: bool) -> Block:
    if isinstance(block, Temp):
        return block._replace(block=Part(block.block, fetched))
    return Part(block, fetched)


def is_handed(blocks: Iterable[Block]) -> bool:
    """Whether blocks pass through slots where others would have to fetch them."""
    return any(isinstance(block, Part) and not block.fetched for block in blocks)
