"""Price a schedule over shared memory from the program that would run.

A rank pays for every instruction, for every byte that it copies or folds, and for every round in
which it waits: alpha, beta and gamma of the Hockney model, in nanoseconds, of the machine at hand
(`mpicoll.runtime.rates`). Ranks that share cores pay for each other, too. Prices are compared with
each other, not with a clock; `mpicoll.tune` measures.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf

from mpicoll.algorithms.registry import Algorithm
from mpicoll.errors import CollectiveError
from mpicoll.notation.elements import itemsize
from mpicoll.programs.instructions import (
    Await,
    Instruction,
    Reach,
    SharedProgram,
    WaitForReaders,
)
from mpicoll.programs.messages import Combine, Move, Piece
from mpicoll.programs.reuse import goes_on
from mpicoll.programs.shared_memory import share
from mpicoll.runtime.arguments import Arguments
from mpicoll.runtime.rates import JOINED, Rates

ON_GPU = Rates(wait=15_000, step=3_000, copy=0.0008, fold=0.0012, joined=JOINED)
"""Estimates, not fitted: a stream is waited for, a kernel launched, memory read and written at
a few TB/s."""
_PRICED_RANKS = 8


def price(
    algorithm: Algorithm, arguments: Arguments, reach: Reach, rates: Rates, cores: float = inf
) -> float:
    """Return the nanoseconds of a call on one node; inf if it cannot run.

    They are those of the slowest of a few ranks, which wait for the work of all where these share
    cores.

    Args:
        reach: what ranks read of each other; its `intra_node` is not used.
        cores: how many the ranks have together.
    """
    blocks = algorithm.blocks(arguments.size)
    sizes = arguments.sizes(blocks)
    width = itemsize(arguments.dtype) if arguments.dtype else 1
    everyone = frozenset(range(arguments.size))
    waits: list[float] = []
    works: list[float] = []
    for rank in range(0, arguments.size, ceil(arguments.size / _PRICED_RANKS)):
        place = arguments.place(blocks)._replace(rank=rank)
        before, after = arguments.collective.before(place), list(arguments.collective.after(place))
        try:
            rounds = algorithm.rounds(rank, arguments.size, arguments.root, counts=arguments.counts)
        except CollectiveError:
            return inf
        own = replace(reach, intra_node=everyone - {rank})
        program = share(rounds, sizes, before, after, own)
        waits.append(_waiting(program, rates))
        works.append(_working(program, width, own, rates))
    slowest = max(map(sum, zip(waits, works, strict=True)))
    a_core = arguments.size / cores
    a_core = ceil(a_core) if a_core > 1 else a_core  # one core or another has a rank more
    return max(slowest, max(waits) + a_core * sum(works) / len(works))


def _waiting(program: SharedProgram, rates: Rates) -> float:
    numbered = zip(program.instructions, program.rounds, strict=True)
    waits = len({number for each, number in numbered if isinstance(each, Await)})
    waits += any(isinstance(each, WaitForReaders) for each in program.instructions)
    return waits * rates.wait


def _working(program: SharedProgram, width: int, reach: Reach, rates: Rates) -> float:
    total = 0.0
    before: Instruction | None = None
    for each, number in zip(program.instructions, program.rounds, strict=True):
        total += rates.step
        if isinstance(each, Move | Combine):
            kind = rates.copy if isinstance(each, Move) else rates.fold
            if isinstance(each, Combine) and before is not None and goes_on(before, each):
                # What is fetched is folded by itself.
                kind *= 1 if _is_fetched(each.right, program, reach) else rates.joined
            total += each.target.length * width * kind
            total += sum(
                _reading(piece, number, program, width, reach, rates) for piece in each[1:]
            )
        before = each
    return total


def _reading(
    piece: Piece, number: int, program: SharedProgram, width: int, reach: Reach, rates: Rates
) -> float:
    """Return the nanoseconds that it takes more to read an operand of another rank."""
    if not piece.buffer.is_remote:
        return 0
    fetched = _is_fetched(piece, program, reach)
    rate = rates.clean if fetched and number == 1 else rates.dirty
    return fetched * rates.fetch + piece.length * width * rate


def _is_fetched(piece: Piece, program: SharedProgram, reach: Reach) -> bool:
    """Whether an operand lies in another rank's private memory."""
    if not piece.buffer.is_remote or not reach.readable:
        return False
    return program.receipts[piece.buffer.number].length >= reach.least
