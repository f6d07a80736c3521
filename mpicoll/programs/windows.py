"""Let large messages pass through a few slots that are used again and again.

A message that its sender writes tile by tile, and that all its readers read tile by tile in the
same round, needs no slot for each tile: the sender writes a slot again when all have acknowledged
the tile that was there. That cannot lock ranks up where every message is published and awaited in
rounds of one number: the rank that is the furthest behind waits for nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from mpicoll.programs.messages import Combine, Move, Piece
from mpicoll.programs.shared_memory import (
    Acknowledge,
    Await,
    Instruction,
    Publish,
    SharedProgram,
    WaitForSlot,
)

SLOTS = 8
"""Slots of a window, a power of two."""


class Message(NamedTuple):
    """One end of a message: the round in which it is published or awaited."""

    round: int
    by_tile: bool


class Ends(NamedTuple):
    """A rank's ends of all messages, for each peer in the order of the schedule."""

    sent: dict[int, list[Message]]
    received: dict[int, list[Message]]


def ends(program: SharedProgram, tile: int) -> Ends:
    """Return a rank's ends of all messages.

    Args:
        tile: the elements of a tile.
    """
    written, read = _places(program, tile, "slot"), _places(program, tile, "from")
    raised, awaited = _flags(program, Publish), _flags(program, Await)
    published = [
        _end(program, written.get(number, {}), raised[number], each.tiles, before=True)
        for number, each in enumerate(program.publications)
    ]
    received: dict[int, list[Message]] = {}
    for number, each in enumerate(program.receipts):
        end = _end(program, read.get(number, {}), awaited[number], each.tiles, before=False)
        received.setdefault(each.peer, []).append(end)
    sent = {peer: [published[number] for number in sent] for peer, sent in program.sent.items()}
    return Ends(sent, received)


def windows(
    program: SharedProgram, rank: int, everyone: Mapping[int, Ends], slots: int
) -> list[int]:
    """Return the publications that may pass through a window, and have more tiles than slots.

    Args:
        everyone: the ends of every rank of the node.
    """
    if not _rounds_match(everyone):
        return []
    found = []
    for number, each in enumerate(program.publications):
        orders = ((peer, program.sent[peer].index(number)) for peer in each.readers)
        both = all(
            everyone[rank].sent[peer][order].by_tile
            and everyone[peer].received[rank][order].by_tile
            for peer, order in orders
        )
        if both and each.tiles > slots and not each.zero_copy:
            found.append(number)
    return found


def _rounds_match(everyone: Mapping[int, Ends]) -> bool:
    for rank, own in everyone.items():
        for peer, sent in own.sent.items():
            received = everyone[peer].received.get(rank, [])
            if [each.round for each in sent] != [each.round for each in received]:
                return False
    return True


def through_windows(
    program: SharedProgram, tile: int, publications: Sequence[int], receipts: Sequence[int]
) -> SharedProgram:
    """Return a program that waits for slots, and acknowledges, tile by tile."""
    before: dict[int, list[Instruction]] = {}
    after: dict[int, list[Instruction]] = {}
    written, read = _places(program, tile, "slot"), _places(program, tile, "from")
    awaited = _flags(program, Await)
    for number in publications:
        for t, (first, _) in written[number].items():
            before.setdefault(first, []).append(WaitForSlot(number, t))
    for number in receipts:
        for t in range(program.receipts[number].tiles):
            _, last = read[number].get(t, (0, awaited[number][t]))
            after.setdefault(last, []).append(Acknowledge(number, t))
    instructions: list[Instruction] = []
    rounds: list[int] = []
    for position, each in enumerate(program.instructions):
        replaced = (isinstance(each, WaitForSlot) and each.publication in publications) or (
            isinstance(each, Acknowledge) and each.receipt in receipts
        )
        made = [*before.get(position, ()), *([] if replaced else [each]), *after.get(position, ())]
        instructions += made
        rounds += [program.rounds[position]] * len(made)
    return replace(program, instructions=instructions, rounds=rounds)


Places = dict[int, dict[int, tuple[int, int]]]
"""For each message, for each of its tiles, the first and the last instruction that uses it."""


def _places(program: SharedProgram, tile: int, kind: str) -> Places:
    found: Places = {}
    for position, each in enumerate(program.instructions):
        for piece in each if isinstance(each, Move | Combine) else ():
            name, _, number = piece.buffer.partition(" ")
            if name != kind:
                continue
            tiles = found.setdefault(int(number), {})
            for t in _tiles(piece, tile):
                first, _ = tiles.get(t, (position, position))
                tiles[t] = first, position
    return found


def _tiles(piece: Piece, tile: int) -> range:
    """Return the tiles that a piece touches."""
    last = max(piece.start, piece.start + piece.length - 1)
    return range(piece.start // tile, last // tile + 1)


def _flags(program: SharedProgram, kind: type[Publish | Await]) -> dict[int, list[int]]:
    """Return for each message the instructions that raise, or await, the flags of its tiles."""
    found: dict[int, list[int]] = {}
    for position, each in enumerate(program.instructions):
        if isinstance(each, kind):
            found.setdefault(each[0], []).append(position)
    return found


def _end(
    program: SharedProgram, uses: Mapping[int, tuple[int, int]], flags: Sequence[int],
    tiles: int, *, before: bool,
) -> Message:  # fmt: skip
    """Return an end of a message, of which each tile is used next to its own flag alone.

    Args:
        before: a tile is used before its flag, not after it.
    """
    limits = [-1, *flags] if before else [*flags, len(program.instructions)]
    spans = list(pairwise(limits))
    within = len(flags) == tiles and all(
        t < tiles and spans[t][0] < first and last < spans[t][1]
        for t, (first, last) in uses.items()
    )
    rounds = {program.rounds[position] for position in flags}
    return Message(program.rounds[flags[0]], within and len(rounds) == 1)
