"""Announce each tile of a zero-copy message as soon as it is there.

A zero-copy message is announced as a whole, where its round begins. Its tiles have usually been
written one by one just before. With a flag for each tile, raised after the last work on that tile,
the reader begins while the sender still receives the rest. So a message passes through a chain of
ranks in the time of one hop, plus the time of one tile for each other hop.

A flag may always be raised earlier than its place in the program. Nobody writes the memory before
all readers have acknowledged it (`mpicoll.lowering.reuse`), and no instruction in between writes
that tile.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import accumulate

from mpicoll.lowering.instructions import Instruction, Post, Publish, SharedProgram
from mpicoll.lowering.messages import Combine, Move, Piece, overlaps
from mpicoll.lowering.reuse import insert


def announce(program: SharedProgram, tile: int) -> None:
    """Raise a flag for each tile of a zero-copy message, after the last work on it.

    Args:
        tile: elements of a tile.
    """
    if any(isinstance(instruction, Post) for instruction in program.instructions):
        return  # what another node sends is there when all of it is
    insertions: defaultdict[int, list[Instruction]] = defaultdict(list)
    replaced: list[int] = []
    for position, instruction in enumerate(program.instructions):
        if not isinstance(instruction, Publish):
            continue
        publication = program.publications[instruction.publication]
        if not publication.zero_copy or publication.tiles == 1:
            continue
        assert publication.piece is not None
        buffer, start, length = publication.piece
        places = [
            _written(program, Piece(buffer, start + at, min(tile, length - at)), position)
            for at in range(0, length, tile)
        ]
        if not any(places):
            continue  # it is there from the beginning
        program.publications[instruction.publication] = replace(publication, by_tile=True)
        replaced.append(position)
        # A reader may count them: none comes before the one that it follows in the message.
        for number, place in enumerate(accumulate(places, max)):
            insertions[place].append(Publish(instruction.publication, number))
    insert(program, insertions, without=replaced)


def _written(program: SharedProgram, piece: Piece, end: int) -> int:
    """Return the position after the last instruction that writes a piece, 0 where none does."""
    for position in range(end - 1, -1, -1):
        instruction = program.instructions[position]
        if isinstance(instruction, Move | Combine) and overlaps(instruction.target, [piece]):
            return position + 1
    return 0
