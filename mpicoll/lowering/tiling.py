"""Divide the work of a step into passes, one for each tile of its messages.

A tile is still in the cache when it is read, and its readers need not wait for other tiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import ge

from mpicoll.lowering.instructions import SharedProgram
from mpicoll.lowering.messages import Combine, Kind, Move, Piece, overlaps

Action = Move | Combine
Anchors = Mapping[Action, tuple[int, int]]
"""For each action on a message where it begins in it, and how many tiles that message has."""


@dataclass(frozen=True)
class Passes:
    """A step in passes: its work before them, on each tile after the messages, and after them.

    Attributes:
        tile: elements of a tile.
        anchors: of the work on each tile.
    """

    count: int
    prologue: Sequence[Action]
    tile_actions: Sequence[Action]
    epilogue: Sequence[Action]
    tile: int = 0
    anchors: Anchors = field(default_factory=dict)

    def flags(self, tiles: int, index: int) -> Iterator[int]:
        """Yield the flags of a message of so many tiles in one pass."""
        if self.count == 1:
            yield from range(tiles)
        elif index < tiles:
            yield index

    def part(self, actions: Iterable[Action], index: int) -> Iterator[Action]:
        """Cut actions down to one tile of their messages; the last one takes the rest."""
        if self.count == 1:
            yield from actions
            return
        for action in actions:
            start, tiles = self.anchors[action]
            stop = start + action.target.length
            first = max(index * self.tile, start)
            last = stop if index == tiles - 1 else min((index + 1) * self.tile, stop)
            if index < tiles and first < last:
                shift = first - start
                yield type(action)(
                    *(Piece(piece.buffer, piece.start + shift, last - first) for piece in action)
                )


def divide(
    program: SharedProgram, tile: int, count: int, copied: Sequence[Move],
    actions_after: Sequence[Action],
) -> Passes:  # fmt: skip
    """Divide a step into passes: one, or one for each tile of its messages.

    Args:
        count: tiles of its longest message.
        copied: its copies to slots; `actions_after`: its work after the messages.
    """
    whole = Passes(1, [], actions_after, [])
    if count == 1:
        return whole
    actions = [*copied, *actions_after]
    anchors = _anchors(program, actions)
    local = _local(actions, anchors)
    if local is None or not _aligned(program, anchors):
        return whole
    first, last = local
    return Passes(
        count, first, [action for action in actions_after if action in anchors], last, tile, anchors
    )


def _local(actions: Sequence[Action], anchors: Anchors) -> tuple[list[Action], list[Action]] | None:
    """Return the actions on no message: those to run before the tiles, and those after them.

    None where one can be neither, as it uses what a tile writes, and a tile what it writes.
    """
    first: list[Action] = []
    last: list[Action] = []
    for index, action in reversed([*enumerate(actions)]):
        if action in anchors:
            continue
        # Rather late: other ranks wait for the first tile.
        if not conflicts(action, (second for second in actions[index + 1 :] if second not in last)):
            last.insert(0, action)
        elif not conflicts(action, (second for second in actions[:index] if second in anchors)):
            first.insert(0, action)
        else:
            return None
    return first, last


def conflicts(action: Action, actions: Iterable[Action]) -> bool:
    """Whether one of two actions writes memory that the other one uses."""
    return any(
        overlaps(action.target, second) or any(overlaps(piece, [second.target]) for piece in action)
        for second in actions
    )


def _tiles(program: SharedProgram, piece: Piece) -> int:
    """Return the tiles of the message that a piece is part of, 0 for other memory."""
    buffer = piece.buffer
    if buffer.kind is Kind.SLOT:
        return program.publications[buffer.number].tiles
    return program.receipts[buffer.number].tiles if buffer.is_remote else 0


def _anchors(program: SharedProgram, actions: Sequence[Action]) -> Anchors:
    """Return the anchors of the actions on messages.

    One that reads no message may read what an action before it has written of one.
    """
    anchors: dict[Action, tuple[int, int]] = {}
    for action in actions:
        part = next((piece for piece in action if _tiles(program, piece)), None)
        if part is not None:
            anchors[action] = part.start, _tiles(program, part)
            continue
        for previous, (start, tiles) in anchors.items():
            written = previous.target
            for piece in action[1:]:
                if overlaps(piece, [written]):
                    anchors[action] = piece.start + start - written.start, tiles
            if action in anchors:
                break
    return anchors


def _aligned(program: SharedProgram, anchors: Anchors) -> bool:
    """Whether a step may run tile by tile: actions on memory that is written stay in order.

    Of two actions the earlier one must touch an element in the same tile as the later one, or in
    an earlier tile. Where either writes, the later one's shift and number of tiles must each be at
    least those of the earlier one. A shift is a place in a message minus the place in memory.
    """
    touched: list[tuple[Piece, tuple[int, int], bool]] = []
    for action, (start, tiles) in anchors.items():
        for index, piece in enumerate(action):
            shift = start - piece.start
            if not _tiles(program, piece):
                touched.append((piece, (shift, tiles), index == 0))
            elif shift or _tiles(program, piece) != tiles:
                return False
    return not any(
        (later[2] or earlier[2]) and not all(map(ge, later[1], earlier[1]))
        and overlaps(later[0], [earlier[0]])
        for index, later in enumerate(touched)
        for earlier in touched[:index]
    )  # fmt: skip
