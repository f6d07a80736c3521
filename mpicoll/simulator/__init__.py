"""Run all ranks in one process on symbolic contents: proof, trace and derived properties.

The value of a block is the set of ranks whose contributions it is folded from, and whether
that was in rank order. Messages are rendezvous: a round ends when each of its sends
has met its receive, so a schedule that needs buffering to get through is a deadlock.

>>> from mpicoll.algorithms import find
>>> trace = prove(find("allreduce", "ring"), 8)
>>> trace.rounds, trace.sent, trace.reduced, trace.ordered
(14, 1.75, 0.875, False)

``python -m mpicoll.explain --prove 7`` prints this for every algorithm.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from mpicoll.algorithms.registry import Algorithm, Counts, Nodes, find
from mpicoll.errors import ArgumentError, ScheduleError, Unsupported
from mpicoll.notation.contract import Collective, Place
from mpicoll.notation.schedule import Copy, Fold, Round, Schedule, rounds
from mpicoll.simulator.run import History, Message, Run, Sizes

MOST_RANKS = 1 << 12
_MOST_NAMED, _MOST_HELD = 10_000_000, 2_000_000
"""Blocks that the operations of all ranks name, and that a history holds: about a minute."""


@dataclass(frozen=True)
class Trace:
    """The figures of a proved schedule, and its messages.

    Attributes:
        rounds: length of the longest chain of rounds that wait for each other.
        sent, reduced: the most that one rank sends and folds, in whole vectors m.
        messages: how many there are, by all ranks.
        ports: the most messages one way by one rank in one round.
        ordered: whether every result is folded in rank order, which operators that
            do not commute need.
        one_by_one: whether it is folded by adding one rank after the other to the first, so that
            roundings are the same for every such schedule.
        log: every message, in the order in which they were matched; only if asked for.
        history: for each rank the rounds that it ended and its contents after each, from
            round 0, before any; only if asked for.
    """

    rounds: int
    sent: float
    reduced: float
    messages: int
    ports: int
    ordered: bool
    one_by_one: bool
    log: list[Message] = field(repr=False, default_factory=list)
    history: list[History] = field(repr=False, default_factory=list)


def simulate(
    schedules: Sequence[Sequence[Round]],
    collective: Collective,
    size: int,
    root: int = 0,
    blocks: int = 1,
    sizes: Sizes | None = None,
    *,
    history: bool = False,
    log: bool = True,
) -> Trace:
    """Run the schedules of all ranks and check the result against the contract.

    Args:
        blocks: into how many blocks a vector is cut.
        sizes: the elements of each block, one each by default; empty blocks are neither
            sent nor checked.
        history: record every rank's contents after each of its rounds.
        log: record every message.

    Raises:
        Deadlock: ranks wait for messages that never come.
        WrongContents: a message, a fold or a result is not what it must be.
    """
    group = Run(schedules, collective, Place(0, size, root, blocks), sizes, history, log)
    group.run()
    ordered, one_by_one = group.check()
    return Trace(
        rounds=max(me.end for me in group.ranks),
        sent=max(me.sent for me in group.ranks) / group.whole,
        reduced=max(me.reduced for me in group.ranks) / group.whole,
        messages=group.messages,
        ports=max(me.ports for me in group.ranks),
        ordered=ordered,
        one_by_one=one_by_one,
        log=group.log or [],
        history=[me.history for me in group.ranks],
    )


def prove(
    algorithm: Algorithm,
    size: int,
    root: int = 0,
    nodes: Nodes | None = None,
    sizes: Sizes | None = None,
    counts: Counts | None = None,
    *,
    history: bool = False,
    log: bool = True,
) -> Trace:
    """Simulate an algorithm on `size` ranks.

    Args:
        counts: the rows' lengths as size-aware algorithms get them; `sizes`: as they are.
        history, log: as in `simulate`.

    Raises:
        ArgumentError: there are no ranks or too many, or no such root.
        Unsupported: the algorithm cannot serve this size, or its schedule is too long.
        ScheduleError: its schedule never ends, or is wrong on some rank; it names the algorithm.
    """
    if not 1 <= size <= MOST_RANKS:
        raise ArgumentError(f"{size} ranks cannot be simulated: 1 to {MOST_RANKS}")
    with _naming(algorithm, size), _uncollected():
        blocks = algorithm.blocks(size)
        schedules = _schedules(algorithm, size, blocks, root, nodes, counts)
        if history and sum(map(len, schedules)) * blocks > _MOST_HELD:
            raise _too_long(algorithm, size, f"its history holds more than {_MOST_HELD:,} blocks")
        return simulate(
            schedules, algorithm.collective, size, root, blocks, sizes, history=history, log=log
        )


def _schedules(
    algorithm: Algorithm, size: int, blocks: int, root: int, nodes: Nodes | None,
    counts: Counts | None,
) -> list[list[Round]]:  # fmt: skip
    """Return the schedules of all ranks, if they are short enough to be simulated."""
    named = blocks

    def count_ops(schedule: Schedule) -> Schedule:
        nonlocal named
        for step in schedule:
            for op in step if isinstance(step, tuple) else (step,):
                named += 1 if type(op) is Copy or type(op) is Fold else len(op.blocks) or 1
            if named > _MOST_NAMED:
                raise _too_long(
                    algorithm, size, f"its operations name more than {_MOST_NAMED:,} blocks"
                )
            yield step

    return [
        rounds(count_ops(algorithm.schedule(rank, size, root, nodes, counts)))
        for rank in range(size)
    ]


def _too_long(algorithm: Algorithm, size: int, why: str) -> Unsupported:
    name = f"{algorithm.collective.name} algorithm {algorithm}"
    return Unsupported(f"{name} on {size} ranks is too long to be simulated: {why}")


@contextmanager
def _naming(algorithm: Algorithm, size: int) -> Iterator[None]:
    """Raise the error of a wrong schedule with the name of its algorithm."""
    try:
        yield
    except ScheduleError as error:
        name = f"{algorithm.collective.name} algorithm {algorithm}"
        raise type(error)(f"{name} on {size} ranks is wrong: {error}") from error


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause the garbage collector, which takes a third of the time and finds no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def is_ordered(algorithm: Algorithm, size: int, root: int = 0, nodes: Nodes | None = None) -> bool:
    """Whether an algorithm keeps rank order, as operators that do not commute need."""
    return _order(algorithm.collective.name, str(algorithm), size, root, nodes)[0]


def folds_one_by_one(
    algorithm: Algorithm, size: int, root: int = 0, nodes: Nodes | None = None
) -> bool:
    """Whether an algorithm folds ((a op b) op c) op d, for ranks a to d."""
    return _order(algorithm.collective.name, str(algorithm), size, root, nodes)[1]


@lru_cache(maxsize=4096)
def _order(of: str, text: str, size: int, root: int, nodes: Nodes | None) -> tuple[bool, bool]:
    trace = prove(find(of, text), size, root, nodes)
    return trace.ordered, trace.one_by_one


def contiguous(size: int, count: int) -> Nodes:
    """Split ranks into `count` nodes of neighbours, as even as can be.

    >>> contiguous(5, 2)
    ((0, 1, 2), (3, 4))
    """
    if not 1 <= count <= size:
        raise ArgumentError(f"{size} ranks cannot be on {count} nodes")
    quotient, more = divmod(size, count)
    starts = [node * quotient + min(node, more) for node in range(count + 1)]
    return tuple(tuple(range(*pair)) for pair in pairwise(starts))
