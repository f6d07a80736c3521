"""Lowered programs of all ranks, run in one process on NumPy memory."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from expect import affine, expected, input_shape, values
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoll.algorithms.registry import Algorithm, algorithms
from mpicoll.calls.arguments import Arguments, check_arguments
from mpicoll.errors import Unsupported
from mpicoll.lowering.instructions import MESSAGES, Complete, Post
from mpicoll.lowering.messages import (
    INPUT,
    OUTPUT,
    SCRATCH,
    STAGING,
    Combine,
    Move,
    Piece,
    Step,
    Transfer,
    cut,
    overlappable,
)
from mpicoll.lowering.shared_memory import Lowering, share
from mpicoll.memory.numpy_arrays import NumpyArrays
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.notation.elements import user_op
from mpicoll.notation.schedule import recv, reduce, send
from mpicoll.simulator import is_ordered

ARRAYS = NumpyArrays()
EVERY = [each for name in COLLECTIVES if name != "barrier" for each in algorithms(name)]


class Program(NamedTuple):
    """The steps of a rank, and how many scratch elements they need."""

    steps: list[Step]
    scratch: dict[Any, int]


def lower(*given: Any, in_place: bool = False) -> Program:
    """Lower to the steps that an export takes."""
    lowering = Lowering(*given, MESSAGES, in_place=in_place)
    steps = [step for step in lowering.steps() if any(vars(step).values())]
    staged = [
        piece.start + piece.length for step in steps
        for piece in [*(m.target for m in step.moves_before), *(r.piece for r in step.receives)]
        if piece and piece.buffer == STAGING
    ]  # fmt: skip
    return Program(steps, {SCRATCH: lowering.scratch, STAGING: max(staged, default=0)})


class Rank:
    """One rank's program over its buffers, advanced a round at a time."""

    def __init__(self, request: Arguments, program: Program, x: Any, out: Any, op: Any) -> None:
        self.steps = deque(program.steps)
        self.op = op
        scratch = {name: np.empty(n, "uint8") for name, n in program.scratch.items()}
        self.memory = {INPUT: x, OUTPUT: out, **scratch}
        self.posted = False

    def view(self, piece: Any) -> Any:
        return self.memory[piece.buffer].reshape(-1)[piece.start : piece.start + piece.length]

    def local(self, actions: Any) -> None:
        for action in actions:
            if isinstance(action, Combine):
                result = self.op(self.view(action.left), self.view(action.right))
                self.view(action.target)[:] = result
            else:
                self.view(action.target)[:] = self.view(action.source)

    def advance(self, rank: int, mail: dict[Any, Any]) -> bool:
        """Run as far as messages allow; whether anything happened."""
        moved = False
        while self.steps:
            step = self.steps[0]
            if not self.posted:
                self.local(step.moves_before)
                for peer, piece in step.sends:
                    mail[rank, peer].append(self.view(piece).copy())
                self.posted = moved = True
            needed: dict[int, int] = defaultdict(int)
            for peer, _ in step.receives:
                needed[peer] += 1
            if any(len(mail[peer, rank]) < count for peer, count in needed.items()):
                return moved
            for peer, piece in step.receives:
                self.view(piece)[:] = mail[peer, rank].popleft()
            self.local(step.actions_after)
            self.steps.popleft()
            self.posted, moved = False, True
        return moved


def shared(*given: Any, in_place: bool) -> Program:
    """Lower to the program that runs where no ranks share memory, as steps."""
    program, steps = share(*given, MESSAGES, in_place=in_place), [Step()]
    for instruction in program.instructions:
        if isinstance(instruction, Post):
            sends, receives = map(list, instruction)
            steps.append(Step(sends=sends, receives=receives))
        elif isinstance(instruction, Move | Combine):
            steps[-1].actions_after.append(instruction)
        else:
            assert isinstance(instruction, Complete)
    return Program(steps, program.scratch)


def run_all(
    algorithm: Algorithm, size: int, root: int, row: tuple[int, ...], counts: Any, in_place: bool,
    lower: Callable[..., Program],
) -> None:  # fmt: skip
    name, op = algorithm.collective.name, user_op(affine)
    if algorithm.collective.reduces and not is_ordered(algorithm, size, root, None):
        op = user_op(np.bitwise_xor, commutative=True)
    inputs = [
        values(input_shape(name, size, rank, row, counts), "uint8", rank, affine)
        for rank in range(size)
    ]
    wanted = expected(name, inputs, op.function, root, counts)  # type: ignore[arg-type]
    ranks, outputs = [], []
    for rank in range(size):
        request = check_arguments(
            ARRAYS, rank, size, name, inputs[rank],
            out=None, op=op, root=root, counts=counts, algorithm="auto",
        )  # fmt: skip
        blocks = algorithm.blocks(size)
        place = request.place(blocks)
        vector = algorithm.collective.unit == "vector"
        result = algorithm.collective.has_output(rank, root)
        request = Arguments(
            request.collective, "", op, root, request.counts, inputs[rank], None,
            row, "uint8", rank, size,
        )  # fmt: skip
        out = np.full(request.shape("output"), 255, "uint8") if result else np.empty(0, "uint8")
        together = in_place and vector and result
        x = inputs[rank].copy()
        if together:
            out[...] = x
        program = lower(
            algorithm.rounds(rank, size, root), request.sizes(blocks),
            algorithm.collective.input_blocks(place),
            list(algorithm.collective.output_contents(place)),
            in_place=together,
        )  # fmt: skip
        ranks.append(Rank(request, program, x, out, op.function))
        outputs.append(out)
    mail: dict[Any, Any] = defaultdict(deque)
    moved = [True]
    while any(moved):
        moved = [each.advance(rank, mail) for rank, each in enumerate(ranks)]
    assert not any(each.steps for each in ranks), "a rank is stuck"
    for rank, (out, want) in enumerate(zip(outputs, wanted, strict=True)):
        if want is not None:
            np.testing.assert_array_equal(out, want, f"rank {rank}")
        np.testing.assert_array_equal(ranks[rank].memory[INPUT], inputs[rank], "x was modified")


@pytest.mark.parametrize("algorithm", EVERY, ids=lambda each: f"{each.collective.name}-{each}")
@given(data=st.data())
@settings(max_examples=settings().max_examples // 5)
def test_programs_keep_the_contract(algorithm: Algorithm, data: st.DataObject) -> None:
    lowered = data.draw(st.sampled_from([lower, shared]), "lowered by")
    size = data.draw(st.integers(1, 9), "size")
    root = data.draw(st.integers(0, size - 1), "root") if algorithm.collective.rooted else 0
    row: tuple[int, ...] = (data.draw(st.integers(0, 20), "length"),)
    counts: Any = None
    if algorithm.collective.unit in ("rows", "pairs") and data.draw(st.booleans(), "uneven"):
        numbers = st.lists(st.integers(0, 4), min_size=size, max_size=size)
        pairs = algorithm.collective.unit == "pairs"
        counts = data.draw(
            st.lists(numbers, min_size=size, max_size=size) if pairs else numbers, "counts"
        )
    in_place = data.draw(st.booleans(), "in place")
    try:
        algorithm.serve(size)
    except Unsupported:
        return
    run_all(algorithm, size, root, row, counts, in_place, lowered)


@given(st.integers(0, 1000), st.integers(1, 50))
def test_cut_is_fair(count: int, blocks: int) -> None:
    parts = cut(count, blocks)
    assert sum(parts) == count
    assert len(parts) == blocks
    assert max(parts) - min(parts) <= 1


def test_neighbours_travel_as_one_message() -> None:
    program = lower([(send(1, 0, 1, 2),)], {0: 2, 1: 3, 2: 4}, [0, 1, 2], [])
    [transfer] = program.steps[0].sends
    assert transfer.piece is not None
    assert transfer.piece.length == 9
    assert program.scratch[STAGING] == 0


def test_input_is_not_copied_before_it_is_needed() -> None:
    """A fold reads the caller's input and writes the result to the output in one pass."""
    program = lower([(send(1, 0), reduce(1, 0))], {0: 5}, [0], [0])
    [step] = program.steps
    assert not step.moves_before
    [combine] = step.actions_after
    assert isinstance(combine, Combine)
    assert combine.right.buffer == INPUT
    assert combine.target.buffer == OUTPUT


def test_a_receive_never_lands_in_memory_being_sent() -> None:
    program = lower([(send(1, 0), recv(1, 0))], {0: 5}, [0], [0], in_place=True)
    received = program.steps[0].receives[0].piece
    assert received is not None
    assert received.buffer == STAGING


def test_only_what_touches_nothing_in_flight_is_done_while_messages_travel() -> None:
    """A fold of what came before need not wait; nor may it run ahead of one that must."""
    sent, came, old, own = (Piece(SCRATCH, 4 * index, 4) for index in range(4))
    early, late = Combine(own, old, own), Combine(own, came, own)
    step = Step(
        sends=[Transfer(1, sent)], receives=[Transfer(1, came)], actions_after=[early, late, early]
    )
    assert overlappable(step) == ([early], [late, early])
