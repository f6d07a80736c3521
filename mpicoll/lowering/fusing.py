"""Folds of several operands in one pass: memory is read once, and the result written once.

Folding p operands two by two moves 3 (p - 1) times their bytes; folding them at once moves p + 1
times their bytes. This pays on a GPU, where memory bounds a fold and a launch takes microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from mpicoll.lowering.instructions import Acknowledge, Instruction, SharedProgram
from mpicoll.lowering.messages import SCRATCH, STAGING, Combine, Move, Piece, overlaps

MAX_OPERANDS = 16
"""Operands of one fold, well below the limit of a kernel's arguments."""

_SCRATCH = (SCRATCH, STAGING)

Steps = tuple[tuple[int, int], ...]
"""Pairs of values to fold: operands come first, then the results of the steps before."""

_FORMULAS = {
    "sum": "{0} + {1}",
    "avg": "{0} + {1}",
    "prod": "{0} * {1}",
    # A NaN stays, on either side, as NumPy's minimum and maximum have it.
    "min": "({0} <= {1} || {0} != {0}) ? {0} : {1}",
    "max": "({0} >= {1} || {0} != {0}) ? {0} : {1}",
    "band": "{0} & {1}",
    "bor": "{0} | {1}",
    "bxor": "{0} ^ {1}",
}


class Fused(NamedTuple):
    """Folds of which each takes the result of the one before.

    Attributes:
        combines: the folds that it replaces, in order.
        operands: the pieces that are read; the target may be one of them.
    """

    combines: tuple[Combine, ...]
    operands: tuple[Piece, ...]
    steps: Steps

    @property
    def target(self) -> Piece:
        """The piece that the result is written to; intermediate results are not written."""
        return self.combines[-1].target


def fuse(program: SharedProgram) -> tuple[list[Instruction | Fused], list[int]]:
    """Join folds of which each takes the result of the one before; return instructions and rounds.

    Acknowledgements come after adjacent folds and copies, because each acknowledgement waits for
    the stream.
    """
    fused: list[Instruction | Fused] = []
    numbers: list[int] = []
    open_: list[Combine] = []
    behind: list[Acknowledge] = []

    def emit(instructions: Sequence[Instruction | Fused], number: int) -> None:
        fused.extend(instructions)
        numbers.extend([number] * len(instructions))

    def close(number: int) -> None:
        emit([_fused(open_)] if len(open_) > 1 else open_, number)
        open_.clear()

    last, read = 1, _read_later(program)
    for index, (step, number) in enumerate(zip(program.instructions, program.rounds, strict=True)):
        if isinstance(step, Combine) and _continues(open_, step, read[index]):
            open_.append(step)
        elif isinstance(step, Acknowledge):
            behind.append(step)
        else:
            close(last)
            if isinstance(step, Combine) and _is_safe_target(step.target, (step.left, step.right)):
                open_.append(step)
            else:
                if not isinstance(step, Combine | Move):
                    emit(behind, last)
                    behind.clear()
                emit([step], number)
        last = number
    close(last)
    emit(behind, last)
    return fused, numbers


def _read_later(program: SharedProgram) -> list[list[Piece]]:
    """Return for each instruction the pieces that are read after it."""
    pieces_after: list[list[Piece]] = []
    later: list[Piece] = []
    for instruction in reversed(program.instructions):
        pieces_after.append(list(later))
        later += program.reads(instruction)
    return pieces_after[::-1]


def _is_safe_target(target: Piece, read: Sequence[Piece]) -> bool:
    """Whether every operand is the target itself or does not overlap it."""
    return all(piece == target or not overlaps(piece, [target]) for piece in read)


def _continues(chain: Sequence[Combine], combine: Combine, later: Sequence[Piece]) -> bool:
    """Whether a fold takes the result of those before, and nothing else reads that result."""
    if not chain or len(chain) == MAX_OPERANDS - 1:
        return False
    result = chain[-1].target
    operands = [piece for piece in (combine.left, combine.right) if piece != result]
    written = [combine.target for combine in chain]
    if len(operands) != 1 or overlaps(operands[0], written):
        return False
    if combine.target == result:
        return True
    is_dead = result.buffer in _SCRATCH and not overlaps(result, later)
    return is_dead and _is_safe_target(combine.target, [*_fused(chain).operands, operands[0]])


def _fused(combines: Sequence[Combine]) -> Fused:
    operands, steps = [combines[0].left, combines[0].right], [(0, 1)]
    for index, (previous, combine) in enumerate(pairwise(combines), 2):
        last = len(combines) + index - 1
        is_left = combine.left == previous.target
        operands.append(combine.right if is_left else combine.left)
        steps.append((last, index) if is_left else (index, last))
    return Fused(tuple(combines), tuple(operands), tuple(steps))


def formula(op: str, count: int, steps: Steps) -> str | None:
    """Return the steps as C, from ``x0``, ``x1``, ... to ``out``; None for another operator.

    >>> formula("sum", 3, ((0, 1), (3, 2)))
    'T x3 = x0 + x1; T x4 = x3 + x2; out = x4;'
    """
    pattern = _FORMULAS.get(op)
    if pattern is None:
        return None
    lines = [
        f"T x{count + index} = {pattern.format(f'x{lhs}', f'x{rhs}')};"
        for index, (lhs, rhs) in enumerate(steps)
    ]
    return " ".join([*lines, f"out = x{count + len(steps) - 1};"])
