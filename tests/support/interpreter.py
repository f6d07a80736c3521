"""An interpreter of shared programs: all ranks in one process, as they would race.

Each rank is a generator that runs until it must wait. Ranks are chosen at random, so every order
that the flags allow occurs. Memory is read where its sender has it, never from a copy.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from mpicoll.lowering import windows
from mpicoll.lowering.instructions import (
    Acknowledge,
    Await,
    Publication,
    Publish,
    SharedProgram,
    WaitForReaders,
    WaitForSlot,
)
from mpicoll.lowering.messages import INPUT, OUTPUT, SCRATCH, Buffer, Combine, Kind, Move, Piece

READABLE = (INPUT, OUTPUT, SCRATCH)
"""Memory that others may read where it is; else what they need goes through slots."""
RUNS = 3
TILE = 4
SLOTS, MANY = 2, 64


class Rank:
    """One rank's program over its memory; slots have one cell, so that reuse is exposed."""

    def __init__(self, program: SharedProgram, x: Any, out: Any, op: Any) -> None:
        self.program, self.op = program, op
        scratch = {name: np.full(n, 99, "uint8") for name, n in program.scratch.items()}
        slots = {
            Buffer(Kind.SLOT, number): np.full(
                math.prod(publication.window or (publication.piece.length,)), 99, "uint8"
            )
            for number, publication in enumerate(program.publications)
            if publication.piece and not publication.zero_copy
        }
        self.memory = {INPUT: x, OUTPUT: out, **scratch, **slots}
        self.flags = {
            (number, tile): 0
            for number, publication in enumerate(program.publications)
            for tile in range(1 if publication.is_whole else publication.tiles)
        }
        self.read = {
            (number, reader): 0
            for number, publication in enumerate(program.publications)
            for reader in publication.readers
        }

    def view(self, piece: Piece, everyone: list[Rank], me: int) -> Any:
        memory, start, buffer = self.memory, piece.start, piece.buffer
        is_slot = buffer.kind is Kind.SLOT
        publication = self.program.publications[buffer.number] if is_slot else None
        if buffer.is_remote:
            sender, publication = matching(self.program, buffer.number, everyone, me)
            assert publication.piece is not None
            memory, buffer = everyone[sender].memory, publication.piece.buffer
            start += publication.piece.start
        if publication is not None and publication.window:
            start = start // TILE % publication.window.slots * TILE + start % TILE
        return memory[buffer].reshape(-1)[start : start + piece.length]


def matching(program: SharedProgram, number: int, everyone: list[Rank], me: int) -> Any:
    receipt = program.receipts[number]
    remote = everyone[receipt.peer].program
    return receipt.peer, remote.publications[remote.sent[me][receipt.order]]


def count(publication: Publication, sequence: int, tile: int) -> int:
    """Return the number of a tile, of whole windows in all runs; without one, that of the run."""
    if not publication.window:
        return sequence
    return (sequence - 1) * tiles_of_windows(publication) + tile + 1


def tiles_of_windows(publication: Publication) -> int:
    """Return how many tiles the windows of a run have room for."""
    assert publication.window is not None
    return -(-publication.tiles // publication.window.slots) * publication.window.slots


def running(me: int, everyone: list[Rank], sequence: int) -> Iterator[bool]:
    """Run a rank once; yield False where it waits and True where others may get their turn."""
    rank = everyone[me]
    program = rank.program
    for instruction in program.instructions:
        yield True
        if isinstance(instruction, Move):
            rank.view(instruction.target, everyone, me)[:] = rank.view(
                instruction.source, everyone, me
            )
        elif isinstance(instruction, Combine):
            lhs, rhs = (rank.view(side, everyone, me) for side in instruction[1:])
            rank.view(instruction.target, everyone, me)[:] = rank.op(lhs, rhs)
        elif isinstance(instruction, Publish):
            previous = rank.flags.get((instruction.publication, instruction.tile - 1), sequence)
            assert previous == sequence, "the tiles of a message are counted"
            rank.flags[instruction] = sequence
        elif isinstance(instruction, Await):
            receipt = program.receipts[instruction.receipt]
            peer = everyone[receipt.peer]
            number = peer.program.sent[me][receipt.order]
            tile = 0 if peer.program.publications[number].is_whole else instruction.tile
            assert receipt.length == (peer.program.publications[number].piece or [0] * 3)[2]
            while peer.flags[number, tile] < sequence:
                yield False
        elif isinstance(instruction, Acknowledge):
            receipt = program.receipts[instruction.receipt]
            peer = everyone[receipt.peer]
            number = peer.program.sent[me][receipt.order]
            publication = peer.program.publications[number]
            tile = instruction.tile
            if publication.window and tile == publication.tiles - 1:
                tile = tiles_of_windows(publication) - 1
            peer.read[number, me] = count(publication, sequence, tile)
        else:
            assert isinstance(instruction, WaitForSlot | WaitForReaders)
            publication, wanted = program.publications[instruction.publication], sequence
            if isinstance(instruction, WaitForSlot):
                depth = publication.window.slots if publication.window else 1
                wanted = count(publication, sequence, instruction.tile) - depth
            readers = publication.readers
            while any(rank.read[instruction.publication, reader] < wanted for reader in readers):
                yield False


def execute(everyone: list[Rank], inputs: list[Any], wanted: list[Any], seed: int) -> None:
    """Let every rank run several times, each as far ahead as its flags allow."""
    choose = random.Random(seed)

    def calls(me: int) -> Iterator[bool]:
        """Between its runs a caller does with its arrays what it likes."""
        for sequence in range(1, RUNS + 1):
            everyone[me].memory[OUTPUT].reshape(-1)[:] = 99
            everyone[me].memory[INPUT].reshape(-1)[:] = inputs[sequence - 1][me].reshape(-1)
            yield from running(me, everyone, sequence)
            if wanted[sequence - 1][me] is not None:
                got = everyone[me].memory[OUTPUT]
                np.testing.assert_array_equal(got, wanted[sequence - 1][me].reshape(-1))

    alive = {me: calls(me) for me in range(len(everyone))}
    stuck = 0
    while alive:
        me = choose.choice(list(alive))
        for _ in range(choose.choice((1, 5, 1000))):
            moved = next(alive[me], None)
            if moved is None:
                del alive[me]
            stuck = stuck + 1 if moved is False else 0
            if not moved:
                break
        assert stuck < 2000, "every rank waits"


def through_windows(programs: list[SharedProgram], slots: int = SLOTS) -> int:
    """Let large messages pass through windows, as ranks agree; return how many do."""
    ends = {rank: windows.ends(program, TILE) for rank, program in enumerate(programs)}
    for rank, program in enumerate(programs):
        windows.choose(program, rank, ends, TILE, slots, 48)
    count_of_messages = 0
    for rank, program in enumerate(programs):
        received = [
            number for number, receipt in enumerate(program.receipts)
            if programs[receipt.peer].publications[
                programs[receipt.peer].sent[rank][receipt.order]
            ].window
        ]  # fmt: skip
        tiled = windows.through_windows(program, TILE, received)
        program.instructions, program.rounds = tiled.instructions, tiled.rounds
        count_of_messages += sum(
            publication.window is not None for publication in program.publications
        )
    return count_of_messages
