"""Passes of a step: the tile that is published before another is awaited."""

from __future__ import annotations

import pytest

from mpicoll.lowering.instructions import Await, Publish, Reach
from mpicoll.lowering.shared_memory import share
from mpicoll.notation.schedule import recv, send


@pytest.mark.parametrize(
    ("given", "wanted"),
    [(0, ["P0", "P1", "A0", "P2", "A1", "A2"]), (1, ["P0", "A0", "P1", "A1", "P2", "A2"])],
)
def test_a_tile_is_published_before_the_one_before_it_is_awaited(
    given: int, wanted: list[str]
) -> None:
    """Unless what is received is written where what is sent lies."""
    reach = Reach(frozenset({1}), frozenset(), 1000, 8)
    exchange = (send(1, 0), recv(1, given ^ 1))
    rounds = [(recv(1, 0),), exchange] if given else [exchange]
    program = share(rounds, {0: 24, 1: 24}, [] if given else [0], [0], reach)
    flags = [
        f"{type(instruction).__name__[0]}{instruction.tile}"
        for instruction, number in zip(program.instructions, program.rounds, strict=True)
        if isinstance(instruction, Publish | Await) and number == len(rounds)
    ]
    assert flags == wanted
