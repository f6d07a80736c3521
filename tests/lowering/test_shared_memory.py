"""Shared programs of all ranks, in any order of the ranks that their flags allow."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from expect import affine, case, input_shape
from interpreter import MANY, READABLE, RUNS, SLOTS, TILE, Rank, execute, through_windows

from mpicoll.algorithms.registry import Algorithm, algorithms, find
from mpicoll.calls.arguments import check_arguments
from mpicoll.errors import Unsupported
from mpicoll.lowering import announcing
from mpicoll.lowering.instructions import Reach, SharedProgram, WaitForReaders
from mpicoll.lowering.messages import OUTPUT, Buffer, Kind, Move
from mpicoll.lowering.shared_memory import share
from mpicoll.memory.numpy_arrays import NumpyArrays
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.notation.elements import user_op
from mpicoll.notation.schedule import Temp, copy, fold, recv, reduce, send
from mpicoll.simulator import is_ordered

ARRAYS = NumpyArrays()
EVERY = [algorithm for name in COLLECTIVES if name != "barrier" for algorithm in algorithms(name)]


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
