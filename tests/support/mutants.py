"""Schedules broken at random, and an executor that says which of them do harm.

The executor shares nothing with the simulator but the contract: it runs all ranks in a
random interleaving, sends without waiting, and folds strings.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from mpicoll.algorithms.registry import Algorithm, algorithms
from mpicoll.notation.contract import COLLECTIVES, Place
from mpicoll.notation.schedule import Copy, Fold, Op, Receive, Round, Send

Schedules = list[list[Round]]
Spot = tuple[int, int, int]
Harm = Literal["hang", "crash", "wrong", ""]


def _spots(schedules: Schedules, wanted: Callable[[Op], bool]) -> list[Spot]:
    return [
        (rank, at, index)
        for rank, schedule in enumerate(schedules)
        for at, step in enumerate(schedule)
        for index, op in enumerate(step)
        if wanted(op)
    ]


def _at(schedules: Schedules, spot: Spot) -> Op:
    rank, at, index = spot
    return schedules[rank][at][index]


def _put(schedules: Schedules, spot: Spot, *ops: Op) -> None:
    rank, at, index = spot
    step = schedules[rank][at]
    schedules[rank][at] = (*step[:index], *ops, *step[index + 1 :])


def _is_message(op: Op) -> bool:
    return isinstance(op, Send | Receive)


def wrong_peer(schedules: Schedules, chance: random.Random) -> bool:
    """Send to, or receive from, somebody else."""
    spots = _spots(schedules, _is_message)
    if not spots or len(schedules) < 3:
        return False
    spot = chance.choice(spots)
    op = _at(schedules, spot)
    others = [peer for peer in range(len(schedules)) if peer not in (spot[0], op.peer)]
    _put(schedules, spot, replace(op, peer=chance.choice(others)))
    return True


def wrong_block(schedules: Schedules, chance: random.Random) -> bool:
    """Send or receive another block that occurs somewhere."""
    spots = _spots(schedules, lambda op: _is_message(op) and bool(op.blocks))
    known = sorted({block for spot in spots for block in _at(schedules, spot).blocks}, key=str)
    if len(known) < 2:
        return False
    spot = chance.choice(spots)
    op = _at(schedules, spot)
    place = chance.randrange(len(op.blocks))
    block = chance.choice([each for each in known if each != op.blocks[place]])
    blocks = (*op.blocks[:place], block, *op.blocks[place + 1 :])
    _put(schedules, spot, replace(op, blocks=blocks))
    return True


def swapped_rounds(schedules: Schedules, chance: random.Random) -> bool:
    """Run two neighbouring rounds of one rank in the wrong order."""
    long = [schedule for schedule in schedules if len(schedule) > 1]
    if not long:
        return False
    schedule = chance.choice(long)
    at = chance.randrange(len(schedule) - 1)
    schedule[at : at + 2] = reversed(schedule[at : at + 2])
    return True


def fold_into_copy(schedules: Schedules, chance: random.Random) -> bool:
    """Overwrite where the algorithm folds."""
    spots = _spots(schedules, lambda op: getattr(op, "side", None) is not None)
    if not spots:
        return False
    spot = chance.choice(spots)
    op = _at(schedules, spot)
    plain = Copy(op.target, op.source) if isinstance(op, Fold) else replace(op, side=None)
    _put(schedules, spot, plain)
    return True


def wrong_side(schedules: Schedules, chance: random.Random) -> bool:
    """Fold on the other side."""
    spots = _spots(schedules, lambda op: getattr(op, "side", None) is not None)
    if not spots:
        return False
    spot = chance.choice(spots)
    op = _at(schedules, spot)
    _put(schedules, spot, replace(op, side="left" if op.side == "right" else "right"))
    return True


def dropped_message(schedules: Schedules, chance: random.Random) -> bool:
    """Leave out a message on both sides."""
    sends = _spots(schedules, lambda op: isinstance(op, Send))
    if not sends:
        return False
    spot = chance.choice(sends)
    source, destination = spot[0], _at(schedules, spot).peer
    before = [each for each in sends if each[0] == source and each < spot]
    nth = sum(_at(schedules, each).peer == destination for each in before)
    receives = _spots(schedules, lambda op: isinstance(op, Receive) and op.peer == source)
    mates = [each for each in receives if each[0] == destination]
    _put(schedules, mates[nth])
    _put(schedules, spot)
    return True


def dropped_round(schedules: Schedules, chance: random.Random) -> bool:
    """Leave out one round of one rank."""
    busy = [schedule for schedule in schedules if schedule]
    if not busy:
        return False
    schedule = chance.choice(busy)
    del schedule[chance.randrange(len(schedule))]
    return True


MUTATIONS = {
    each.__name__: each
    for each in (
        wrong_peer, wrong_block, swapped_rounds, fold_into_copy, wrong_side, dropped_message,
        dropped_round,
    )
}  # fmt: skip


def mutants(
    seed: int, count: int, kinds: tuple[str, ...] = tuple(MUTATIONS)
) -> Iterator[tuple[Algorithm, int, int, Schedules]]:
    """Yield `count` broken schedules, each ``(algorithm, size, root, schedules)``."""
    chance = random.Random(seed)
    catalogue = [each for name in COLLECTIVES for each in algorithms(name)]
    while count:
        algorithm = chance.choice(catalogue)
        size = chance.choice([p for p in range(2, 10) if algorithm.needs.holds(p)])
        root = chance.randrange(size) if algorithm.collective.rooted else 0
        schedules = [algorithm.rounds(rank, size, root) for rank in range(size)]
        if MUTATIONS[chance.choice(kinds)](schedules, chance):
            count -= 1
            yield algorithm, size, root, schedules


class Executor:
    """Run all ranks in a random interleaving on strings; sends do not wait."""

    def __init__(self, schedules: Schedules, place: Place, what: str, seed: int = 0) -> None:
        self.schedules, self.place, self.what = schedules, place, COLLECTIVES[what]
        self.chance = random.Random(seed)
        ranks = range(len(schedules))
        self.held = [
            {
                block: f"{rank}.{block};"
                for block in self.what.input_blocks(place._replace(rank=rank))
            }
            for rank in ranks
        ]  # fmt: skip
        self.at = [0 for _ in ranks]
        self.posted = [False for _ in ranks]
        self.mail: dict[tuple[int, int], deque[tuple[str, ...]]] = {
            (source, target): deque() for source in ranks for target in ranks
        }

    def run(self, absent: int | None = None) -> None:
        """Advance ranks in random order until nobody can; `absent` never enters."""
        ranks = [rank for rank in range(len(self.schedules)) if rank != absent]
        while movable := [rank for rank in ranks if self._can(rank)]:
            self._step(self.chance.choice(movable))

    def finished(self, rank: int) -> bool:
        return self.at[rank] == len(self.schedules[rank])

    def _can(self, rank: int) -> bool:
        if self.finished(rank):
            return False
        step = self.schedules[rank][self.at[rank]]
        awaited = Counter(op.peer for op in step if isinstance(op, Receive))
        return not self.posted[rank] or all(
            len(self.mail[peer, rank]) >= number for peer, number in awaited.items()
        )

    def _step(self, rank: int) -> None:
        step, held = self.schedules[rank][self.at[rank]], self.held[rank]
        if not self.posted[rank]:
            for op in step:
                if isinstance(op, Send):
                    self.mail[rank, op.peer].append(tuple(held[block] for block in op.blocks))
            self.posted[rank] = True
            return
        for op in step:
            if isinstance(op, Receive):
                values = self.mail[op.peer, rank].popleft()
                for block, value in zip(op.blocks, values, strict=True):
                    self._land(held, block, value, op.side)
        for op in step:
            if isinstance(op, Copy | Fold):
                self._land(held, op.target, held[op.source], getattr(op, "side", None))
        self.at[rank] += 1
        self.posted[rank] = False

    @staticmethod
    def _land(held: dict, block: object, value: str, side: str | None) -> None:
        if side is None:
            held[block] = value
        else:
            held[block] = value + held[block] if side == "left" else held[block] + value

    def wrong(self, *, ordered: bool) -> bool:
        """Whether some rank's result is not the expected one."""
        return any(self._wrong(rank, ordered) for rank in range(len(self.schedules)))

    def _wrong(self, rank: int, ordered: bool) -> bool:
        after = self.what.output_contents(self.place._replace(rank=rank))
        for block, parts in after.items():
            expected = "".join(f"{source}.{name};" for source, name in parts)
            got = self.held[rank].get(block, "")
            if (
                got != expected
                if ordered
                else Counter(got.split(";")) != Counter(expected.split(";"))
            ):
                return True
        return False


def meets(schedules: Schedules) -> bool:
    """Whether all rounds end where a send waits for its receive, as without buffers."""
    sent: Counter[tuple[int, int]] = Counter()
    received: Counter[tuple[int, int]] = Counter()
    missing: list[list[tuple[Counter[tuple[int, int]], tuple[int, int], int]]]
    missing = [[] for _ in schedules]
    left = [list(schedule) for schedule in schedules]
    moved = True
    while moved:
        moved = False
        for rank, rounds in enumerate(left):
            missing[rank] = [each for each in missing[rank] if each[0][each[1]] <= each[2]]
            if missing[rank] or not rounds:
                continue
            moved = True
            for op in rounds.pop(0):
                if isinstance(op, Send):
                    missing[rank].append((received, (rank, op.peer), sent[rank, op.peer]))
                    sent[rank, op.peer] += 1
                elif isinstance(op, Receive):
                    missing[rank].append((sent, (op.peer, rank), received[op.peer, rank]))
                    received[op.peer, rank] += 1
    return not any(missing) and not any(left)


def harm(
    algorithm: Algorithm, size: int, root: int, schedules: Schedules, *, ordered: bool
) -> Harm:
    """Return what goes wrong when the schedules run: a hang, a crash or a wrong result.

    Args:
        ordered: whether the unbroken algorithm keeps rank order, so that losing it counts.
    """
    place = Place(0, size, root, algorithm.blocks(size))
    name = algorithm.collective.name
    run = Executor(schedules, place, name)
    try:
        run.run()
    except (KeyError, ValueError):
        return "crash"
    if not all(map(run.finished, range(size))) or any(run.mail.values()):
        return "hang"
    if name == "barrier":
        return (
            "wrong" if any(_leaves_without(schedules, place, late) for late in range(size)) else ""
        )
    return "wrong" if run.wrong(ordered=ordered) else ""


def _leaves_without(schedules: Schedules, place: Place, late: int) -> bool:
    """Whether somebody leaves a barrier that rank `late` has not entered."""
    run = Executor(schedules, place, "barrier")
    run.run(absent=late)
    return any(run.finished(rank) for rank in range(place.size) if rank != late)
