"""Folds put together: the same values, read and written once."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoll.lowering.fusing import MAX_OPERANDS, Fused, formula, fuse
from mpicoll.lowering.instructions import Acknowledge, Await, Instruction, SharedProgram
from mpicoll.lowering.messages import (
    INPUT,
    OUTPUT,
    SCRATCH,
    STAGING,
    Buffer,
    Combine,
    Kind,
    Move,
    Piece,
)

BUFFERS = (INPUT, OUTPUT, SCRATCH, STAGING)
pieces = st.builds(Piece, st.sampled_from(BUFFERS), st.sampled_from([0, 2, 4]), st.just(4))
instructions = st.lists(
    st.one_of(
        st.builds(Combine, pieces, pieces, pieces),
        st.builds(Move, pieces, pieces),
        st.builds(Acknowledge, st.integers(0, 9)),
        st.builds(Await, st.integers(0, 9), st.just(0)),
    ),
    max_size=12,
)


def run(program: list[Instruction | Fused]) -> dict[Buffer, np.ndarray]:
    """Run a program on symbols: folding glues texts together, in order."""
    memory = {
        buffer: np.array([f"{buffer.kind.name}{i}" for i in range(8)], dtype=object)
        for buffer in BUFFERS
    }

    def view(piece: Piece) -> np.ndarray:
        return memory[piece.buffer][piece.start : piece.start + piece.length]

    for each in program:
        if isinstance(each, Move):
            view(each.target)[:] = view(each.source).copy()
        elif isinstance(each, Combine):
            view(each.target)[:] = "(" + view(each.left) + view(each.right) + ")"
        elif isinstance(each, Fused):
            values = [view(piece) for piece in each.operands]
            for left, right in each.steps:
                values.append("(" + values[left] + values[right] + ")")
            view(each.target)[:] = values[-1]
    return memory


def shared(program: list[Instruction]) -> SharedProgram:
    return SharedProgram(program, list(range(len(program))))


@pytest.mark.exhaustive
@settings(max_examples=10 * settings().max_examples)
@given(instructions)
def test_fusing_changes_no_value(program: list[Instruction]) -> None:
    """But of scratch that nobody reads again."""
    made, numbers = fuse(shared(program))
    assert len(made) == len(numbers)
    assert numbers == sorted(numbers)
    before, after = run(list(program)), run(made)
    for name in (INPUT, OUTPUT):
        assert before[name].tolist() == after[name].tolist()


@given(instructions)
def test_what_is_acknowledged_has_been_read(program: list[Instruction]) -> None:
    """Acknowledgements may come later, never earlier, and none is lost."""
    made, _ = fuse(shared(program))

    def told(steps: list[Instruction | Fused]) -> list[tuple[int, int]]:
        found, folds = [], 0
        for each in steps:
            folds += len(each.combines) if isinstance(each, Fused) else isinstance(each, Combine)
            if isinstance(each, Acknowledge):
                found.append((each.receipt, folds))
        return found

    for (first, early), (second, late) in zip(told(list(program)), told(made), strict=True):
        assert first == second
        assert late >= early


def test_a_result_on_its_way_is_not_written() -> None:
    """Where the first fold goes to scratch that nobody else reads, the second takes it along."""
    first, second, own = (
        Piece(buffer, 0, 4) for buffer in (Buffer(Kind.RECEIPT, 0), Buffer(Kind.RECEIPT, 1), INPUT)
    )
    scratch, out = Piece(SCRATCH, 0, 4), Piece(OUTPUT, 0, 4)
    program: list[Instruction] = [Combine(scratch, first, second), Combine(out, scratch, own)]
    (fused,), _ = fuse(shared(program))
    assert isinstance(fused, Fused)
    assert fused.operands == (first, second, own)
    assert fused.target == out
    made, _ = fuse(shared([*program, Move(Piece(OUTPUT, 4, 4), scratch)]))
    assert not any(isinstance(each, Fused) for each in made)


def test_a_long_fold_is_cut() -> None:
    target = Piece(INPUT, 0, 4)
    program: list[Instruction] = [
        Combine(target, target, Piece(Buffer(Kind.RECEIPT, index), 0, 4))
        for index in range(2 * MAX_OPERANDS)
    ]
    made, _ = fuse(shared(program))
    assert [len(each.operands) for each in made if isinstance(each, Fused)] == [
        MAX_OPERANDS, MAX_OPERANDS, 3,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "wanted"),
    [("sum", 17), ("prod", 210), ("min", 2), ("max", 7), ("band", 0), ("bor", 7), ("bxor", 3)],
)
def test_formulas_mean_what_the_operator_does(op: str, wanted: int) -> None:
    code = formula(op, 4, ((1, 0), (4, 2), (3, 5)))
    assert code is not None
    names = {"x0": 5, "x1": 3, "x2": 2, "x3": 7}
    for line in filter(None, code.split(";")):
        target, _, text = line.strip().removeprefix("T ").partition(" = ")
        text = re.sub(r"\((.*)\) \? (\w+) : (\w+)", r"(\2 if \1 else \3)", text)
        names[target] = eval(text.replace("||", "or"), {}, names)
    assert names["out"] == wanted


def test_other_operators_are_not_fused() -> None:
    assert formula("land", 3, ((0, 1), (3, 2))) is None
