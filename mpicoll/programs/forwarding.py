"""Forward each tile of what a round has made as soon as it is made.

A round copies what it sends into slots when the round before it is over: of a large message, the
first tiles have left the near caches by then. Copied next to the work that made it, a tile is read
where it has just been written, and its reader finds it there when its own round begins.

To copy a tile earlier than its place in the program is always safe: it is not written again in
between, and its slot is free when those who read it in the run before have read it, which no
message of this run delays. A window's slots are free when its own tiles have been read: what passes
through one stays in its round.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate

from mpicoll.programs.instructions import (
    Instruction,
    Post,
    Publish,
    SharedProgram,
    WaitForSlot,
)
from mpicoll.programs.messages import Combine, Kind, Move, overlaps
from mpicoll.programs.reuse import end_of_folds, insert


def forward(made: SharedProgram) -> None:
    """Copy and announce each tile of a message after the work of the round before that made it."""
    if any(isinstance(each, Post) for each in made.instructions):
        return  # what another node sends is there when all of it is
    after: defaultdict[int, list[Instruction]] = defaultdict(list)
    replaced: list[int] = []
    for number, positions in _copies(made).items():
        publication = made.publications[number]
        if publication.window or publication.tiles == 1:
            continue
        places = [_after_work(made, position) for position in positions]
        places[0] = places[1]  # the wait for the slot, before the first copy
        if None in places:
            continue
        replaced += positions
        # A reader counts tiles: none comes before the one that it follows in the message.
        for position, place in zip(positions, accumulate(filter(None, places), max), strict=True):
            after[place].append(made.instructions[position])
    if replaced:
        insert(made, after, without=replaced)


def _copies(made: SharedProgram) -> dict[int, list[int]]:
    """Return where each message waits for its slot, is copied into it and is announced."""
    found: dict[int, list[int]] = {}
    for position, each in enumerate(made.instructions):
        if isinstance(each, WaitForSlot):
            found[each.publication] = [position]
        elif isinstance(each, Publish) and each.publication in found:
            found[each.publication].append(position)
        elif isinstance(each, Move) and each.target.buffer.kind is Kind.SLOT:
            found[each.target.buffer.number].append(position)
    return found


def _after_work(made: SharedProgram, position: int) -> int | None:
    """Return where an instruction may stand: after what made its source one round before."""
    each, number = made.instructions[position], made.rounds[position]
    if not isinstance(each, Move):
        return 1  # next to the copy before it
    for before in range(position - 1, -1, -1):
        made_by = made.instructions[before]
        if made.rounds[before] < number - 1:
            break
        if isinstance(made_by, Move | Combine) and overlaps(made_by.target, [each.source]):
            return end_of_folds(made.instructions, before) + 1
    return None
