"""Tiles of a message that are announced one by one, or by one flag."""

from __future__ import annotations

from itertools import chain

from interpreter import READABLE, TILE

from mpicoll.lowering.instructions import Acknowledge, Await, Publish, Reach, WaitForReaders
from mpicoll.lowering.messages import OUTPUT, Buffer, Kind, Move, Piece
from mpicoll.lowering.shared_memory import share
from mpicoll.notation.schedule import recv, send


def test_a_tile_is_announced_as_soon_as_it_is_there() -> None:
    """So that rank 2 reads the first one while rank 1 waits for the second."""
    reach = Reach(frozenset({0, 2}), frozenset(READABLE), 3, TILE, announces=True)
    program = share([(recv(0, 0),), (send(2, 0),)], {0: 10}, [], [0], reach)
    instructions = [
        instruction
        for instruction in program.instructions
        if not isinstance(instruction, Acknowledge)
    ]
    tiles = [
        [
            Await(0, n),
            Move(Piece(OUTPUT, at, k), Piece(Buffer(Kind.RECEIPT, 0), at, k)),
            Publish(0, n),
        ]
        for n, (at, k) in enumerate([(0, 4), (4, 4), (8, 2)])
    ]
    assert instructions == [*chain.from_iterable(tiles), WaitForReaders(0)]
    assert program.publications[0].by_tile


def test_what_lies_there_from_the_beginning_has_one_flag() -> None:
    reach = Reach(frozenset({0, 2}), frozenset(READABLE), 3, TILE, announces=True)
    program = share([(send(2, 0),)], {0: 10}, [0], [], reach)
    assert program.instructions == [Publish(0, 0), WaitForReaders(0)]
    assert not program.publications[0].by_tile
