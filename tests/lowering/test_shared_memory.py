"""Shared programs of all ranks, run in one process: every hazard is checked as it would race.

Each rank is a generator that runs until it must wait. Ranks are chosen at random, so that
whatever the flags allow to happen early does; memory is read where the sender has it, late
or early, never from a copy.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
from expect import affine, case, input_shape
from hypothesis import given
from hypothesis import strategies as some

from mpicoll import tuning
from mpicoll.algorithms.registry import Algorithm, algorithms, find
from mpicoll.calls.arguments import check_arguments
from mpicoll.errors import Unsupported
from mpicoll.lowering import announcing, windows
from mpicoll.lowering.instructions import (
    Acknowledge,
    Await,
    Publication,
    Publish,
    Reach,
    SharedProgram,
    WaitForReaders,
    WaitForSlot,
)
from mpicoll.lowering.messages import (
    INPUT,
    OUTPUT,
    SCRATCH,
    Buffer,
    Combine,
    Kind,
    Move,
    Piece,
    overlaps,
)
from mpicoll.lowering.reuse import ZeroCopy
from mpicoll.lowering.shared_memory import share
from mpicoll.memory.allocator import Area, FirstFit
from mpicoll.memory.numpy_arrays import NumpyArrays
from mpicoll.notation.contract import COLLECTIVES, Place
from mpicoll.notation.elements import user_op
from mpicoll.notation.schedule import Temp, copy, fold, recv, reduce, send
from mpicoll.simulator import is_ordered

ARRAYS = NumpyArrays()
READABLE = (INPUT, OUTPUT, SCRATCH)
"""Memory that others may read where it is; else what they need goes through slots."""
EVERY = [each for name in COLLECTIVES if name != "barrier" for each in algorithms(name)]
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
                math.prod(each.window or (each.piece.length,)), 99, "uint8"
            )
            for number, each in enumerate(program.publications)
            if each.piece and not each.zero_copy
        }
        self.memory = {INPUT: x, OUTPUT: out, **scratch, **slots}
        self.flags = {
            (number, tile): 0
            for number, each in enumerate(program.publications)
            for tile in range(1 if each.is_whole else each.tiles)
        }
        self.read = {
            (number, reader): 0
            for number, each in enumerate(program.publications)
            for reader in each.readers
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
    theirs = everyone[receipt.peer].program
    return receipt.peer, theirs.publications[theirs.sent[me][receipt.order]]


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
    for each in program.instructions:
        yield True
        if isinstance(each, Move):
            rank.view(each.target, everyone, me)[:] = rank.view(each.source, everyone, me)
        elif isinstance(each, Combine):
            left, right = (rank.view(side, everyone, me) for side in each[1:])
            rank.view(each.target, everyone, me)[:] = rank.op(left, right)
        elif isinstance(each, Publish):
            before = rank.flags.get((each.publication, each.tile - 1), sequence)
            assert before == sequence, "the tiles of a message are counted"
            rank.flags[each] = sequence
        elif isinstance(each, Await):
            receipt = program.receipts[each.receipt]
            theirs = everyone[receipt.peer]
            number = theirs.program.sent[me][receipt.order]
            tile = 0 if theirs.program.publications[number].is_whole else each.tile
            assert receipt.length == (theirs.program.publications[number].piece or [0] * 3)[2]
            while theirs.flags[number, tile] < sequence:
                yield False
        elif isinstance(each, Acknowledge):
            receipt = program.receipts[each.receipt]
            theirs = everyone[receipt.peer]
            number = theirs.program.sent[me][receipt.order]
            publication = theirs.program.publications[number]
            tile = each.tile
            if publication.window and tile == publication.tiles - 1:
                tile = tiles_of_windows(publication) - 1
            theirs.read[number, me] = count(publication, sequence, tile)
        else:
            assert isinstance(each, WaitForSlot | WaitForReaders)
            publication, wanted = program.publications[each.publication], sequence
            if isinstance(each, WaitForSlot):
                depth = publication.window.slots if publication.window else 1
                wanted = count(publication, sequence, each.tile) - depth
            readers = publication.readers
            while any(rank.read[each.publication, reader] < wanted for reader in readers):
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


@pytest.mark.parametrize(
    ("size", "readable", "announces", "slots"),
    [(2, READABLE, False, SLOTS), (3, (), False, SLOTS), (4, READABLE, False, SLOTS),
     (5, (), False, SLOTS), (3, READABLE, True, SLOTS), (4, READABLE, True, SLOTS),
     (2, (), False, MANY), (4, (), False, MANY)],
    ids=["2", "3", "4", "5", "3 by tile", "4 by tile", "2 with slots for all",
         "4 with slots for all"],
)  # fmt: skip
@pytest.mark.parametrize("each", EVERY, ids=lambda each: f"{each.collective.name}-{each}")
def test_any_order_of_ranks_is_right(
    each: Algorithm, size: int, readable: tuple[str, ...], announces: bool, slots: int,
) -> None:  # fmt: skip
    name, op = each.collective.name, user_op(affine)
    root = size - 1
    try:
        each.serve(size)
    except Unsupported as refused:
        pytest.skip(str(refused))
    if each.collective.reduces and not is_ordered(each, size, root, None):
        op = user_op(np.bitwise_xor, commutative=True)
    shapes = tuple(input_shape(name, size, rank, (29,), None) for rank in range(size))
    cases = [
        case(name, shapes, "uint8", op.function, root, shift=10 * sequence)
        for sequence in range(RUNS)
    ]
    programs = []
    for rank in range(size):
        request = check_arguments(
            ARRAYS, rank, size, name, np.empty(shapes[rank], "uint8"), out=None, op=op,
            root=root, counts=None, algorithm=str(each),
        )  # fmt: skip
        blocks = each.blocks(size)
        place = request.place(blocks)
        lengths = replace(request, row=(29,), dtype="uint8").sizes(blocks)
        intra_node = frozenset(range(size)) - {rank}
        length = sum(lengths[b] for b in each.collective.output_contents(place))
        given: Any = (
            each.rounds(rank, size, root), lengths, each.collective.input_blocks(place),
            list(each.collective.output_contents(place)),
        )  # fmt: skip
        reach = Reach(intra_node, frozenset(readable), 3, TILE, announces=announces)
        program = share(*given, reach)
        programs.append((program, length))
    if not readable:
        through_windows([made for made, _ in programs], slots)
    everyone = [
        Rank(made, np.empty(shape, "uint8"), np.zeros(length, "uint8"), op.function)
        for (made, length), shape in zip(programs, shapes, strict=True)
    ]
    execute(everyone, [given for given, _ in cases], [wanted for _, wanted in cases], seed=size)


def through_windows(programs: list[SharedProgram], slots: int = SLOTS) -> int:
    """Let large messages pass through windows, as ranks agree; return how many do."""
    everyone = {rank: windows.ends(made, TILE) for rank, made in enumerate(programs)}
    for rank, made in enumerate(programs):
        windows.choose(made, rank, everyone, TILE, slots, 48)
    found = 0
    for rank, made in enumerate(programs):
        received = [
            number for number, each in enumerate(made.receipts)
            if programs[each.peer].publications[programs[each.peer].sent[rank][each.order]].window
        ]  # fmt: skip
        new = windows.through_windows(made, TILE, received)
        made.instructions, made.rounds = new.instructions, new.rounds
        found += sum(each.window is not None for each in made.publications)
    return found


def test_windows_are_found_where_ranks_read_as_they_write() -> None:
    size, lengths = 3, {0: 29}
    rounds = [find("broadcast", "one_shot").rounds(rank, size, 0) for rank in range(size)]
    made = [
        share(
            rounds[rank], lengths, [0] * (rank == 0), [0],
            Reach(frozenset(range(size)) - {rank}, frozenset(), 3, TILE),
        )
        for rank in range(size)
    ]  # fmt: skip
    assert through_windows(made) == 1
    waits = [each.tile for each in made[0].instructions if isinstance(each, WaitForSlot)]
    read = [each.tile for each in made[1].instructions if isinstance(each, Acknowledge)]
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
    schedule, what = find(name, algorithm), COLLECTIVES[name]
    blocks = schedule.blocks(size)
    lengths = dict.fromkeys(range(blocks), 29)
    made = []
    for rank in range(size):
        place = Place(rank, size, 0, blocks)
        reach = Reach(frozenset(range(size)) - {rank}, frozenset(), 3, TILE)
        rounds = schedule.rounds(rank, size, 0)
        made.append(
            share(
                rounds, lengths, what.input_blocks(place), list(what.output_contents(place)), reach
            )
        )
    assert through_windows(made) == sum(len(each.publications) for each in made)


@pytest.mark.parametrize("large", [False, True])
def test_nothing_parts_folds_onto_one_target(large: bool) -> None:
    """So that they are done in one pass; that they have been read is said after it."""
    size, length = 4, 8 * TILE if large else TILE
    made = [
        share(
            find("reduce", "one_shot").rounds(rank, size, 0), {0: length}, [0], [0] * (rank == 0),
            Reach(frozenset(range(size)) - {rank}, frozenset(), TILE, TILE),
        )
        for rank in range(size)
    ]  # fmt: skip
    assert through_windows(made) == (size - 1) * large
    kinds = [type(each) for each in made[0].instructions if not isinstance(each, Await)]
    a_tile = [Combine] * (size - 1) + [Acknowledge] * (size - 1)
    assert kinds == a_tile * (8 if large else 1)


def ends(rounds: Sequence[Any], node: Sequence[int]) -> tuple[list[SharedProgram], Any]:
    """Return the programs of some ranks, and the ends of their messages of 8 tiles."""
    made = [
        share(each, {0: 29, 1: 29}, [0, 1], [0, 1], Reach(frozenset(node), frozenset(), 3, TILE))
        for each in rounds
    ]
    return made, {rank: windows.ends(each, TILE) for rank, each in enumerate(made)}


def chosen(made: SharedProgram, rank: int, everyone: Any, slots: int = SLOTS) -> list[int | None]:
    """Return the slots of the window of each publication."""
    windows.choose(made, rank, everyone, TILE, slots, 48)
    return [each.window and each.window.slots for each in made.publications]


def test_ranks_that_both_send_first_and_then_receive_have_no_windows() -> None:
    """Each would wait for the other to read."""
    made, everyone = ends([[(send(1, 0),), (recv(1, 1),)], [(send(0, 1),), (recv(0, 0),)]], [0, 1])
    assert [chosen(each, rank, everyone) for rank, each in enumerate(made)] == [[None]] * 2


@pytest.mark.parametrize(("elsewhere", "found"), [([], SLOTS), ([(recv(7, 1),)], None)])
def test_messages_to_other_nodes_keep_the_numbers_of_rounds(elsewhere: Any, found: Any) -> None:
    """What rank 7 does in which round is not known on this node."""
    sending = [(copy(1, 0),), (send(1, 0),), *elsewhere]
    made, everyone = ends([sending, [(recv(0, 0),)]], [0, 1])
    assert chosen(made[0], 0, everyone) == [found]


@pytest.mark.parametrize("tiles", [tuning.WINDOW_SLOTS, 64])
def test_many_windows_have_few_slots_each(tiles: int) -> None:
    """Though each message would fit into the slots of a window alone."""
    made, everyone = ends([[(send(1, 0),)] * 10, [(recv(0, 0),)] * 10], [0, 1])
    made[0].publications[:] = [replace(each, tiles=tiles) for each in made[0].publications]
    assert chosen(made[0], 0, everyone, tuning.WINDOW_SLOTS) == [4] * 10


@pytest.mark.parametrize(("nbytes", "slots"), [(64, 32), (192, 16), (256, 8), (2048, 2)])
def test_windows_hold_three_mebibytes_whatever_their_tiles(nbytes: int, slots: int) -> None:
    made, everyone = ends([[(send(1, 0),)], [(recv(0, 0),)]], [0, 1])
    made[0].publications[0].tiles = 64
    windows.agree(made[0], 0, lambda own, kind: [*everyone.values()], TILE, nbytes << 10)
    window = made[0].publications[0].window
    assert window is not None and window.slots == slots


def test_a_tile_is_announced_as_soon_as_it_is_there() -> None:
    """So that rank 2 reads the first one while rank 1 waits for the second."""
    reach = Reach(frozenset({0, 2}), frozenset(READABLE), 3, TILE, announces=True)
    made = share([(recv(0, 0),), (send(2, 0),)], {0: 10}, [], [0], reach)
    found = [each for each in made.instructions if not isinstance(each, Acknowledge)]
    tiles = [
        [
            Await(0, n),
            Move(Piece(OUTPUT, at, k), Piece(Buffer(Kind.RECEIPT, 0), at, k)),
            Publish(0, n),
        ]
        for n, (at, k) in enumerate([(0, 4), (4, 4), (8, 2)])
    ]
    assert found == [*chain.from_iterable(tiles), WaitForReaders(0)]
    assert made.publications[0].by_tile


def test_what_lies_there_from_the_beginning_has_one_flag() -> None:
    reach = Reach(frozenset({0, 2}), frozenset(READABLE), 3, TILE, announces=True)
    made = share([(send(2, 0),)], {0: 10}, [0], [], reach)
    assert made.instructions == [Publish(0, 0), WaitForReaders(0)]
    assert not made.publications[0].by_tile


def program(rounds: Any, **changes: Any) -> SharedProgram:
    reach = Reach(frozenset({1, 2}), frozenset({OUTPUT}), 4, 1000)
    sizes = {0: 8, 1: 8}
    return share(rounds, sizes, [], [0, 1], changes.get("reach", reach))


def test_zero_copy_memory_is_not_written_before_it_is_read() -> None:
    made = program([(recv(1, 0),), (send(2, 0),), (recv(1, 0),)])
    assert made.publications[0].zero_copy
    kinds = [type(each).__name__ for each in made.instructions]
    assert kinds[kinds.index("WaitForReaders") + 1] == "Move"
    assert kinds.index("Publish") < kinds.index("WaitForReaders")


@pytest.mark.parametrize("kind", ["wait_for_readers", "acknowledge", "written"])
def test_the_proof_notices_what_is_left_out(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is overwritten too early, or all ranks wait, or a flag comes before its tile."""
    if kind == "written":
        monkeypatch.setattr(announcing, "_written", lambda made, piece, before: 1)
    else:
        monkeypatch.setattr(f"mpicoll.lowering.shared_memory.{kind}", lambda made: None)
    two_shot = next(each for each in algorithms("allreduce") if str(each) == "two_shot")
    failures = 0
    for size in (2, 3, 4, 5):
        try:
            test_any_order_of_ranks_is_right(two_shot, size, READABLE, kind == "written", MANY)
        except AssertionError:
            failures += 1
    assert failures


def test_one_publication_for_many_readers() -> None:
    made = program([(recv(1, 0),), (send(1, 0), send(2, 0))])
    (publication,) = made.publications
    assert publication.readers == [1, 2]
    assert made.sent == {1: [0], 2: [0]}
    assert isinstance(made.instructions[-1], WaitForReaders)


def test_an_exchange_of_one_block_is_copied_out_first() -> None:
    """In place, each of two ranks would wait for the other to read before it writes."""
    made = program([(recv(1, 0),), (send(2, 0), reduce(2, 0))])
    assert not made.publications[0].zero_copy


def test_a_message_that_is_only_folded_is_not_copied() -> None:
    rounds = [(recv(1, 0),), (recv(2, Temp("t", 0)), fold(0, Temp("t", 0)), copy(1, 0))]
    made = program(rounds)
    moves = [each for each in made.instructions if isinstance(each, Move)]
    assert [each.source.buffer for each in moves] == [Buffer(Kind.RECEIPT, 0), OUTPUT]


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
    made = share(rounds, {0: 24, 1: 24}, [] if given else [0], [0], reach)
    found = [
        f"{type(each).__name__[0]}{each.tile}"
        for each, number in zip(made.instructions, made.rounds, strict=True)
        if isinstance(each, Publish | Await) and number == len(rounds)
    ]
    assert found == wanted


def test_ranks_of_other_nodes_get_messages() -> None:
    reach = Reach(frozenset({1}), frozenset(), 4, 1000)
    made = program([(recv(1, 0), recv(2, 1)), (send(1, 0), send(2, 0))], reach=reach)
    names = [type(each).__name__ for each in made.instructions]
    assert names.count("Post") == names.count("Complete") == 2
    assert names.count("Publish") == names.count("Await") == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("readable", [(), READABLE], ids=["eager", "zero-copy"])
def test_many_segments_take_no_more_than_their_share(readable: tuple[str, ...]) -> None:
    """Time in proportion to their square is five times the limit."""
    count = 10_000
    rounds = find("broadcast", f"chain(segments={count})").rounds(1, 3, 0)
    reach = Reach(frozenset({0, 2}), frozenset(readable), 3, 1000)
    began = time.process_time()
    made = share(rounds, dict.fromkeys(range(count), 4), [], range(count), reach)
    assert time.process_time() - began < 4
    assert len(made.publications) == len(made.receipts) == count
    assert [each.order for each in made.receipts] == [*range(count)]


@given(
    some.lists(some.tuples(some.integers(0, 40), some.integers(1, 9)), max_size=12),
    some.tuples(some.integers(0, 40), some.integers(0, 12)),
)
def test_what_a_write_would_change_is_found(pieces: list[tuple[int, int]], at: Any) -> None:
    zero_copy, written = ZeroCopy(), Piece(OUTPUT, *at)
    for number, (start, length) in enumerate(pieces):
        zero_copy.add(number, Piece(OUTPUT, start, length))
        zero_copy.add(100 + number, Piece(INPUT, start, length))
    hit = [n for n, piece in enumerate(pieces) if overlaps(Piece(OUTPUT, *piece), [written])]
    assert zero_copy.take(written) == hit
    assert zero_copy.take(written) == []
    left = {*range(len(pieces)), *range(100, 100 + len(pieces))} - {*hit}
    assert zero_copy.all() == sorted(left)


# -- the heap ---------------------------------------------------------------------------


def test_areas_do_not_overlap_and_come_back() -> None:
    heap, choose = FirstFit(), random.Random(1)
    heap.add(64 * 100)
    heap.add(64 * 50)
    held: list[Area] = []
    for _ in range(2000):
        if held and choose.random() < 0.5:
            heap.give(held.pop(choose.randrange(len(held))))
        else:
            area = heap.take(choose.randrange(1, 1000))
            if area is not None:
                assert not any(
                    area.segment == other.segment
                    and area.start < other.start + other.length
                    and other.start < area.start + area.length
                    for other in held
                )
                held.append(area)
    for area in held:
        heap.give(area)
    assert heap.take(64 * 100) == Area(0, 0, 6400)
    assert heap.take(64 * 50) == Area(1, 0, 3200)
    assert heap.take(1) is None
