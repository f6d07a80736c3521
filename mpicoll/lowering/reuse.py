"""Say in a program when memory may be written again."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence

from mpicoll.lowering.instructions import (
    Acknowledge,
    Await,
    Instruction,
    Publish,
    SharedProgram,
    WaitForReaders,
)
from mpicoll.lowering.messages import Buffer, Combine, Piece


def acknowledge(program: SharedProgram) -> None:
    """Acknowledge every receipt after its last use."""
    last: dict[int, int] = {}
    for position, instruction in enumerate(program.instructions):
        if isinstance(instruction, Await):
            last[instruction.receipt] = position
            continue
        for piece in program.reads(instruction):
            if piece.buffer.is_remote:
                last[piece.buffer.number] = position
    insertions: defaultdict[int, list[Instruction]] = defaultdict(list)
    for receipt, position in last.items():
        insertions[end_of_folds(program.instructions, position) + 1].append(Acknowledge(receipt))
    insert(program, insertions)


def end_of_folds(instructions: Sequence[Instruction], position: int) -> int:
    """Return the last of the folds that stand together with one, or the same position.

    They may be done in one pass, which nothing is to part.
    """
    while position + 1 < len(instructions) and goes_on(*instructions[position : position + 2]):
        position += 1
    return position


def goes_on(instruction: Instruction, following: Instruction) -> bool:
    """Whether one instruction folds an operand more onto the target of the one before it."""
    return (
        isinstance(instruction, Combine)
        and isinstance(following, Combine)
        and instruction.target == following.target == following.left
    )


def wait_for_readers(program: SharedProgram) -> None:
    """Wait for the readers of zero-copy memory before it is written, and at the end."""
    zero_copy = ZeroCopy()
    insertions: defaultdict[int, list[Instruction]] = defaultdict(list)
    for position, instruction in enumerate(program.instructions):
        for piece in program.writes(instruction):
            insertions[position] += map(WaitForReaders, zero_copy.take(piece))
        if isinstance(instruction, Publish):
            publication = program.publications[instruction.publication]
            if publication.zero_copy and publication.piece:
                zero_copy.add(instruction.publication, publication.piece)
    insertions[len(program.instructions)] += map(WaitForReaders, zero_copy.all())
    insert(program, insertions)


class ZeroCopy:
    """The zero-copy publications of each buffer, ordered by where they start."""

    def __init__(self) -> None:
        self.entries: defaultdict[Buffer, list[tuple[int, int, int]]] = defaultdict(list)
        self.longest = 0

    def add(self, number: int, piece: Piece) -> None:
        insort(self.entries[piece.buffer], (piece.start, piece.start + piece.length, number))
        self.longest = max(self.longest, piece.length)

    def take(self, written: Piece) -> list[int]:
        """Remove those that share memory with a piece, and return their numbers."""
        entries = self.entries[written.buffer]
        first = bisect_left(entries, (written.start - self.longest,))
        last = bisect_left(entries, (written.start + written.length,))
        overlapping = [entry for entry in entries[first:last] if entry[1] > written.start]
        if overlapping:
            entries[first:last] = [e for e in entries[first:last] if e not in overlapping]
        return sorted(number for *_, number in overlapping)

    def all(self) -> list[int]:
        return sorted(number for entries in self.entries.values() for *_, number in entries)


def insert(
    program: SharedProgram, wanted: Mapping[int, Sequence[Instruction]], without: Sequence[int] = ()
) -> None:
    """Insert instructions before the given positions, and leave out those at others."""
    left_out = set(without)
    instructions: list[Instruction] = []
    rounds: list[int] = []
    for position in range(len(program.instructions) + 1):
        extra = wanted.get(position, ())
        current = [] if position in left_out else program.instructions[position : position + 1]
        number = program.rounds[min(position, len(program.rounds) - 1)] if program.rounds else 1
        instructions += [*extra, *current]
        rounds += [number] * (len(extra) + len(current))
    program.instructions, program.rounds = instructions, rounds
