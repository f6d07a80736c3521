"""Lower a schedule to messages, copies and folds over flat buffers.

`Placing` gives every block a place in memory, so that a round becomes messages, copies and
folds over flat arrays. Copies are avoided: a block stays in the caller's input
until something is written to it, and only then moves to its *home* (its place in the
output, or in scratch). Adjacent blocks travel as one message; others are packed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import accumulate
from typing import Any, NamedTuple

from mpicoll.notation.schedule import Block, Copy, Fold, Op, Receive, Round, Send, Temp


class Kind(Enum):
    """What a buffer holds."""

    INPUT = 0
    OUTPUT = 1
    SCRATCH = 2
    STAGING = 3
    SLOT = 4
    RECEIPT = 5


class Buffer(NamedTuple):
    """Memory that the pieces of a program lie in.

    Attributes:
        number: of the publication that a slot holds, or of the receipt that is read.
    """

    kind: Kind
    number: int = 0

    @property
    def is_remote(self) -> bool:
        """Whether it is another rank's memory."""
        return self.kind is Kind.RECEIPT


INPUT, OUTPUT = Buffer(Kind.INPUT), Buffer(Kind.OUTPUT)
"""The arrays of the caller."""
SCRATCH, STAGING = Buffer(Kind.SCRATCH), Buffer(Kind.STAGING)
"""Blocks without a place in the output; packed messages of one round."""


class Piece(NamedTuple):
    """A run of elements of one buffer."""

    buffer: Buffer
    start: int
    length: int


def view(buffers: Mapping[Buffer, Any], piece: Piece) -> Any:
    """Return a piece as an array, given the flat buffers."""
    return buffers[piece.buffer][piece.start : piece.start + piece.length]


class Move(NamedTuple):
    """Copy `source` to `target`."""

    target: Piece
    source: Piece


class Combine(NamedTuple):
    """``target = left op right``."""

    target: Piece
    left: Piece
    right: Piece


class Transfer(NamedTuple):
    """A message of one piece; None is an empty signal."""

    peer: int
    piece: Piece | None


@dataclass
class Step:
    """One round over pieces of memory.

    Attributes:
        sends, receives: the messages between nodes.
        copied: the copies to slots of the publications.
        published, awaited: the numbers of the publications and receipts within the node.
    """

    moves_before: list[Move] = field(default_factory=list)
    sends: list[Transfer] = field(default_factory=list)
    receives: list[Transfer] = field(default_factory=list)
    actions_after: list[Move | Combine] = field(default_factory=list)
    copied: list[Move] = field(default_factory=list)
    published: list[int] = field(default_factory=list)
    awaited: list[int] = field(default_factory=list)


def cut(count: int, blocks: int) -> list[int]:
    """Split `count` elements into `blocks` nearly equal parts, the larger ones first.

    >>> cut(7, 3)
    [3, 2, 2]
    """
    small, larger = divmod(count, blocks)
    return [small + (index < larger) for index in range(blocks)]


def offsets(blocks: Iterable[Block], sizes: Mapping[Block, int]) -> dict[Block, int]:
    """Lay blocks out one after the other."""
    names = list(blocks)
    return dict(zip(names, accumulate((sizes[name] for name in names), initial=0), strict=False))


class Placing:
    """One rank's schedule on its way to memory: where each block lies after each round.

    Args:
        sizes: elements of each block (a Temp is as large as its block).
        source: blocks of the input buffer, in order; `target`: of the output buffer.
        in_place: blocks in both buffers lie at the same addresses.
    """

    def __init__(
        self, rounds: Sequence[Round], sizes: Mapping[Block, int], source: Sequence[Block],
        target: Sequence[Block], in_place: bool,
    ) -> None:  # fmt: skip
        self.sizes = sizes
        self.rounds: list[Round] = [
            tuple(op for op in map(self._without_empty, ops) if op) for ops in rounds
        ]
        homes = offsets(target, sizes)
        self.results = [name for name in homes if sizes[name]]
        self.home = {name: Piece(OUTPUT, homes[name], sizes[name]) for name in homes}
        self._add_scratch()
        inputs = offsets(source, sizes)
        self.place = {name: Piece(INPUT, inputs[name], sizes[name]) for name in inputs}
        if in_place:
            self.place |= {name: self.home[name] for name in self.place if name in homes}
        self.staged = 0

    def size(self, block: Block) -> int:
        return self.sizes[block.block if isinstance(block, Temp) else block]

    def _without_empty(self, op: Op) -> Op | None:
        """Drop empty blocks, on both sides alike; a bare signal stays."""
        if isinstance(op, Copy | Fold):
            return op if self.size(op.target) else None
        blocks = tuple(filter(self.size, op.blocks))
        if len(blocks) == len(op.blocks):
            return op
        return replace(op, blocks=blocks) if blocks else None

    def _add_scratch(self) -> None:
        """Give blocks without a place in the output one in scratch, message neighbours adjacent."""
        ops = [op for ops_of_round in self.rounds for op in ops_of_round]
        messages = [op.blocks for op in ops if isinstance(op, Send | Receive)]
        local = [(op.target, op.source) for op in ops if isinstance(op, Copy | Fold)]
        used = 0
        for blocks in [*sorted(messages, key=len, reverse=True), *local]:
            for block in blocks:
                if block not in self.home:
                    self.home[block] = Piece(SCRATCH, used, self.size(block))
                    used += self.size(block)
        self.scratch = used

    def _stage(self, count: int) -> Piece:
        self.staged += count
        return Piece(STAGING, self.staged - count, count)

    def _outgoing(self, blocks: tuple[Block, ...], step: Step) -> Piece | None:
        if not blocks:
            return None
        runs = self._runs(self.place[block] for block in blocks)
        if len(runs) > 1 and len(self._runs(self.home[block] for block in blocks)) == 1:
            self._bring_home(blocks, step.moves_before)
            runs = self._runs(self.home[block] for block in blocks)
        if len(runs) == 1:
            return runs[0]
        packed = self._stage(sum(run.length for run in runs))
        step.moves_before += (Move(*pair) for pair in zip(like(packed, runs), runs, strict=True))
        return packed

    def _incoming(self, op: Receive, busy: list[Piece], step: Step) -> Piece | None:
        if not op.blocks:
            return None
        homes = [self.home[block] for block in op.blocks]
        runs = self._runs(homes)
        if op.side is None and len(runs) == 1 and not overlaps(runs[0], busy):
            self.place |= dict(zip(op.blocks, homes, strict=True))
            busy += runs
            return runs[0]
        staged = self._stage(sum(home.length for home in homes))
        parts = like(staged, homes)
        if op.side is None:
            for block, part in zip(op.blocks, parts, strict=True):
                self._write(block, part, step)
        else:
            self._fold(op.blocks, parts, op.side, step)
        return staged

    def _write(self, block: Block, source: Piece, step: Step) -> None:
        self.place[block] = self.home[block]
        if source != self.home[block]:
            step.actions_after.append(Move(self.home[block], source))

    def _fold(self, blocks: Sequence[Block], parts: Sequence[Piece], side: str, step: Step) -> None:
        """Fold parts into blocks, neighbours in one go."""
        mine = [self.place[block] for block in blocks]
        homes = [self.home[block] for block in blocks]
        pending: list[Combine] = []
        for home, part, local in zip(homes, parts, mine, strict=True):
            lhs, rhs = (part, local) if side == "left" else (local, part)
            _append(pending, Combine(home, lhs, rhs))
        step.actions_after += pending
        self.place |= dict(zip(blocks, homes, strict=True))

    def _bring_home(self, blocks: Iterable[Block], moves: list[Any]) -> None:
        away = [block for block in blocks if self.place.get(block) not in (None, self.home[block])]
        for block in away:
            _append(moves, Move(self.home[block], self.place[block]))
            self.place[block] = self.home[block]

    @staticmethod
    def _runs(pieces: Iterable[Piece]) -> list[Piece]:
        runs: list[Piece] = []
        for piece in pieces:
            if runs and _adjacent(runs[-1], piece):
                piece = _join(runs.pop(), piece)
            runs.append(piece)
        return runs


def _append(actions: list[Any], action: Move | Combine) -> None:
    """Append an action, as one with the last where each piece follows that of the last."""
    if actions and type(actions[-1]) is type(action) and all(map(_adjacent, actions[-1], action)):
        action = type(action)(*map(_join, actions.pop(), action))
    actions.append(action)


def _adjacent(first: Piece, second: Piece) -> bool:
    return first.buffer == second.buffer and first.start + first.length == second.start


def _join(first: Piece, second: Piece) -> Piece:
    return first._replace(length=first.length + second.length)


def overlaps(piece: Piece, pieces: Iterable[Piece]) -> bool:
    """Whether a piece shares memory with any of the others."""
    return any(
        piece.buffer == second.buffer
        and piece.start < second.start + second.length
        and second.start < piece.start + piece.length
        for second in pieces
    )


def overlappable(step: Step) -> tuple[list[Move | Combine], list[Move | Combine]]:
    """Split a round's local work into that which may overlap its messages, and the rest."""
    travelling = [transfer.piece for transfer in (*step.sends, *step.receives) if transfer.piece]
    during: list[Move | Combine] = []
    later: list[Move | Combine] = []
    for action in step.actions_after:
        waiting = [*travelling, *(piece for action_after in later for piece in action_after)]
        (later if any(overlaps(piece, waiting) for piece in action) else during).append(action)
    return during, later


def like(whole: Piece, parts: Sequence[Piece]) -> list[Piece]:
    """Cut `whole` into consecutive pieces of the parts' lengths."""
    starts = accumulate((part.length for part in parts), initial=whole.start)
    return [
        Piece(whole.buffer, start, part.length) for start, part in zip(starts, parts, strict=False)
    ]
