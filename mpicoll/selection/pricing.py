"""Price a schedule over shared memory, from the program that would run.

A rank pays for every instruction, for every byte that it copies or folds, and for every
round in which it waits for others: alpha, beta and gamma of the Hockney model, in
nanoseconds, as fitted on the reference machine. Prices are compared with each other, not
with a clock; `mpicoll.tune` measures.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf
from typing import NamedTuple

from mpicoll.algorithms.registry import Algorithm
from mpicoll.errors import CollectiveError
from mpicoll.notation.dtypes import itemsize
from mpicoll.programs.messages import Combine, Move
from mpicoll.programs.shared_memory import Await, Reach, SharedProgram, WaitForReaders, share
from mpicoll.runtime.arguments import Arguments


class Rates(NamedTuple):
    """Nanoseconds: per round waited, per instruction, per byte copied and folded."""

    wait: float
    step: float
    copy: float
    fold: float


ALONE = Rates(wait=250, step=60, copy=0.025, fold=0.05)
OVERSUBSCRIBED = Rates(wait=2500, step=60, copy=0.05, fold=0.1)
ON_GPU = Rates(wait=15_000, step=3_000, copy=0.0008, fold=0.0012)
"""Estimates, not fitted: a stream is waited for, a kernel launched, memory read and written at
a few TB/s."""
_RANKS = 8


def price(algorithm: Algorithm, arguments: Arguments, reach: Reach, rates: Rates) -> float:
    """Return the nanoseconds of the slowest of a few ranks of one node; inf if it cannot run.

    Args:
        reach: what ranks read of each other; its `intra_node` is not used.
    """
    blocks = algorithm.blocks(arguments.size)
    sizes = arguments.sizes(blocks)
    width = itemsize(arguments.dtype) if arguments.dtype else 1
    everyone = frozenset(range(arguments.size))
    worst = 0.0
    for rank in range(0, arguments.size, ceil(arguments.size / _RANKS)):
        place = arguments.place(blocks)._replace(rank=rank)
        before, after = arguments.collective.before(place), list(arguments.collective.after(place))
        try:
            rounds = algorithm.rounds(rank, arguments.size, arguments.root, counts=arguments.counts)
        except CollectiveError:
            return inf
        own = replace(reach, intra_node=everyone - {rank})
        worst = max(worst, _cost(share(rounds, sizes, before, after, own), width, rates))
    return worst


def _cost(program: SharedProgram, width: int, rates: Rates) -> float:
    numbered = list(zip(program.instructions, program.rounds, strict=True))
    waits = len({number for each, number in numbered if isinstance(each, Await)})
    waits += any(isinstance(each, WaitForReaders) for each, _ in numbered)
    total = waits * rates.wait
    for each, _ in numbered:
        total += rates.step
        if isinstance(each, Move):
            total += each.target.length * width * rates.copy
        elif isinstance(each, Combine):
            total += each.target.length * width * rates.fold
    return total
