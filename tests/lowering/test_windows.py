"""Windows: the messages that pass through them, their slots, and the ranks that agree on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from interpreter import SLOTS, TILE, through_windows

from mpicoll import tuning
from mpicoll.algorithms.registry import find
from mpicoll.lowering import windows
from mpicoll.lowering.instructions import Acknowledge, Await, Reach, SharedProgram, WaitForSlot
from mpicoll.lowering.messages import Combine
from mpicoll.lowering.shared_memory import share
from mpicoll.notation.contract import COLLECTIVES, Place
from mpicoll.notation.schedule import copy, recv, send


def test_windows_are_found_where_ranks_read_as_they_write() -> None:
    size, lengths = 3, {0: 29}
    rounds = [find("broadcast", "one_shot").rounds(rank, size, 0) for rank in range(size)]
    programs = [
        share(
            rounds[rank], lengths, [0] * (rank == 0), [0],
            Reach(frozenset(range(size)) - {rank}, frozenset(), 3, TILE),
        )
        for rank in range(size)
    ]  # fmt: skip
    assert through_windows(programs) == 1
    waits = [
        instruction.tile
        for instruction in programs[0].instructions
        if isinstance(instruction, WaitForSlot)
    ]
    read = [
        instruction.tile
        for instruction in programs[1].instructions
        if isinstance(instruction, Acknowledge)
    ]
    assert waits == read == list(range(8))


@pytest.mark.parametrize(
    ("name", "algorithm", "size"),
    [
        ("allreduce", "one_shot", 4),
        (
            "allreduce",
            "two_shot",
            4,
        ),  # the fold of a partial sum and the own vector reads no message
        ("broadcast", "binomial", 4),  # ranks begin one after the other
        ("scan", "linear", 4),
        ("scan", "binary_tree(segments=2)", 4),
        ("scatter", "naive", 4),  # the root's rows in turn
        ("reduce", "two_shot", 4),
        ("exscan", "chain(segments=2)", 4),  # copies of what is no message
        ("exscan", "two_shot", 4),
        ("reduce_scatter", "recursive_doubling", 5),  # sends rows before it writes them again
    ],
)
def test_all_messages_pass_through_windows(name: str, algorithm: str, size: int) -> None:
    schedule, contract = find(name, algorithm), COLLECTIVES[name]
    blocks = schedule.blocks(size)
    lengths = dict.fromkeys(range(blocks), 29)
    programs = []
    for rank in range(size):
        place = Place(rank, size, 0, blocks)
        reach = Reach(frozenset(range(size)) - {rank}, frozenset(), 3, TILE)
        rounds = schedule.rounds(rank, size, 0)
        programs.append(
            share(
                rounds,
                lengths,
                contract.input_blocks(place),
                list(contract.output_contents(place)),
                reach,
            )
        )
    assert through_windows(programs) == sum(len(program.publications) for program in programs)


@pytest.mark.parametrize("large", [False, True])
def test_nothing_parts_folds_onto_one_target(large: bool) -> None:
    """So that they are done in one pass; that they have been read is said after it."""
    size, length = 4, 8 * TILE if large else TILE
    programs = [
        share(
            find("reduce", "one_shot").rounds(rank, size, 0), {0: length}, [0], [0] * (rank == 0),
            Reach(frozenset(range(size)) - {rank}, frozenset(), TILE, TILE),
        )
        for rank in range(size)
    ]  # fmt: skip
    assert through_windows(programs) == (size - 1) * large
    kinds = [
        type(instruction)
        for instruction in programs[0].instructions
        if not isinstance(instruction, Await)
    ]
    a_tile = [Combine] * (size - 1) + [Acknowledge] * (size - 1)
    assert kinds == a_tile * (8 if large else 1)


def ends(rounds: Sequence[Any], node: Sequence[int]) -> tuple[list[SharedProgram], Any]:
    """Return the programs of some ranks, and the ends of their messages of 8 tiles."""
    programs = [
        share(
            program_rounds,
            {0: 29, 1: 29},
            [0, 1],
            [0, 1],
            Reach(frozenset(node), frozenset(), 3, TILE),
        )
        for program_rounds in rounds
    ]
    return programs, {rank: windows.ends(program, TILE) for rank, program in enumerate(programs)}


def slots_of_windows(
    program: SharedProgram, rank: int, everyone: Any, slots: int = SLOTS
) -> list[int | None]:
    """Return the slots of the window of instruction publication."""
    windows.choose(program, rank, everyone, TILE, slots, 48)
    return [publication.window and publication.window.slots for publication in program.publications]


def test_ranks_that_both_send_first_and_then_receive_have_no_windows() -> None:
    """Each would wait for the other to read."""
    programs, everyone = ends(
        [[(send(1, 0),), (recv(1, 1),)], [(send(0, 1),), (recv(0, 0),)]], [0, 1]
    )
    assert [slots_of_windows(program, rank, everyone) for rank, program in enumerate(programs)] == [
        [None]
    ] * 2


@pytest.mark.parametrize(("elsewhere", "slots"), [([], SLOTS), ([(recv(7, 1),)], None)])
def test_messages_to_other_nodes_keep_the_numbers_of_rounds(elsewhere: Any, slots: Any) -> None:
    """What rank 7 does in which round is not known on this node."""
    sending = [(copy(1, 0),), (send(1, 0),), *elsewhere]
    programs, everyone = ends([sending, [(recv(0, 0),)]], [0, 1])
    assert slots_of_windows(programs[0], 0, everyone) == [slots]


@pytest.mark.parametrize("tiles", [tuning.WINDOW_SLOTS, 64])
def test_many_windows_have_few_slots_each(tiles: int) -> None:
    """Though instruction message would fit into the slots of a window alone."""
    programs, everyone = ends([[(send(1, 0),)] * 10, [(recv(0, 0),)] * 10], [0, 1])
    programs[0].publications[:] = [
        replace(publication, tiles=tiles) for publication in programs[0].publications
    ]
    assert slots_of_windows(programs[0], 0, everyone, tuning.WINDOW_SLOTS) == [4] * 10


@pytest.mark.parametrize(("nbytes", "slots"), [(64, 32), (192, 16), (256, 8), (2048, 2)])
def test_windows_hold_three_mebibytes_whatever_their_tiles(nbytes: int, slots: int) -> None:
    programs, everyone = ends([[(send(1, 0),)], [(recv(0, 0),)]], [0, 1])
    programs[0].publications[0].tiles = 64
    items = [*everyone.values()]
    windows.agree(programs[0], 0, [*everyone], lambda local, kind: items, TILE, nbytes << 10)
    window = programs[0].publications[0].window
    assert window is not None and window.slots == slots
