"""The trace of a schedule, round by round: the contents of every rank, and the messages.

Ranks are sets of bits here: the mask of a cell has bit `r` where rank r's data is in it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import groupby
from operator import or_
from typing import NamedTuple

from mpicoll.algorithms.registry import Algorithm, Nodes
from mpicoll.notation.contract import Collective, Place
from mpicoll.notation.schedule import Block, Fold, Receive, Round, Temp
from mpicoll.simulator import Trace, prove
from mpicoll.simulator.run import History, Message, Value, demanded
from mpicoll.text.numbers import ranges


class Hop(NamedTuple):
    """One message: its round, the round after which it has landed, and whether it is folded."""

    round: int
    source: int
    destination: int
    blocks: tuple[Block, ...]
    lands: int
    folded: bool


class Cell(NamedTuple):
    """The contents of a rank in one column.

    Attributes:
        mask: the ranks whose data is in it.
        mark: what this round did to it: ``+`` folded into, ``=`` taken over as it came.
    """

    mask: int
    mark: str = ""


class Column(NamedTuple):
    """Blocks that are held and sent together throughout."""

    name: str
    blocks: tuple[Block, ...]
    scratch: bool = False


_MAX_SCRATCH_COLUMNS = 4
"""The most columns of scratch that are shown one by one."""

Held = Mapping[Block, Value]
State = list[list[Cell]]
"""The cells of all ranks: ``state[rank][column]``."""


@dataclass(frozen=True)
class RoundTrace:
    """A proved schedule, round by round.

    Attributes:
        proof: the simulator's figures, log and history.
        whole: the blocks that make a whole vector m; of alltoall, all that one rank sends.
        states: before the first round, and after each; as many as `rounds` and one more.
        hops: the messages of each round, from 1; none in round 0.
        goals: the mask that the contract demands of ``goals[rank][column]``, 0 for nothing.
        sources: ``sources[round][rank]`` has a bit for each rank whose data have reached `rank`.
    """

    algorithm: Algorithm
    size: int
    root: int
    nodes: Nodes
    whole: int
    proof: Trace
    columns: list[Column]
    states: list[State]
    hops: list[list[Hop]]
    goals: list[list[int]]
    sources: list[list[int]]

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return self.proof.rounds

    @property
    def collective(self) -> Collective:
        """The collective that the schedule does."""
        return self.algorithm.collective

    @cached_property  # a diagram asks for it in each cell
    def max_ranks(self) -> int:
        """The largest number of ranks whose data a cell must hold."""
        return max(max(goal.bit_count() for goal in goals) for goals in self.goals)

    def moved(self, now: int) -> float:
        """Return the bytes sent, or received, by the busiest rank after a round, in vectors m."""
        return max(self.sent(now), self._busiest("destination", range(now + 1)))

    def sent(self, now: int) -> float:
        """Return the most that one rank has sent after a round, in vectors m."""
        return self._busiest("source", range(now + 1))

    @property
    def volume(self) -> float:
        """The sum over rounds of the bytes sent, or received, by the busiest rank, in vectors m."""
        every = range(1, self.rounds + 1)
        return sum(
            max(self._busiest(end, [now]) for end in ("source", "destination")) for now in every
        )

    def _busiest(self, end: str, rounds: Sequence[int]) -> float:
        loads = [0] * self.size
        for hop in (hop for now in rounds for hop in self.hops[now]):
            loads[getattr(hop, end)] += len(hop.blocks)
        return max(loads) / self.whole

    def completion(self, now: int) -> float:
        """Return the share of the result that is in place after a round."""
        cells = [
            (len(column.blocks), cell.mask == goal)
            for row, goals in zip(self.states[now], self.goals, strict=True)
            for column, cell, goal in zip(self.columns, row, goals, strict=True)
            if goal
        ]
        return sum(width for width, ends in cells if ends) / max(
            1, sum(width for width, _ in cells)
        )


def trace_rounds(
    algorithm: Algorithm, size: int, root: int = 0, nodes: Nodes | None = None
) -> RoundTrace:
    """Prove a schedule and return its trace.

    Raises:
        Unsupported: the algorithm cannot serve this number of ranks.

    >>> from mpicoll.algorithms import find
    >>> ring = trace_rounds(find("allreduce", "ring"), 4)
    >>> ring.rounds, ring.moved(3), ring.moved(6), ring.volume
    (6, 0.75, 1.5, 1.5)
    >>> [runs(cell.mask) for cell in ring.states[2][0]]
    ['0', '0', '0,2-3', '0,3']
    """
    proof = prove(algorithm, size, root, nodes, history=True)
    schedules = [algorithm.rounds(rank, size, root, nodes) for rank in range(size)]
    blocks = algorithm.blocks(size)
    hops = _hops(proof, schedules)
    sources = _sources(hops, size)
    tracer = _Tracer(algorithm.collective, Place(0, size, root, blocks), proof, schedules, hops)
    columns, states, goals = tracer.columns, tracer.states(), tracer.goals()
    if algorithm.collective.unit == "none":
        everyone = (1 << size) - 1
        columns, goals = [Column("heard of", (0,))], [[everyone] for _ in range(size)]
        states = _listening(sources)
    whole = blocks if algorithm.collective.unit in ("vector", "rows") else size
    placed = nodes or (tuple(range(size)),)
    return RoundTrace(
        algorithm, size, root, placed, whole, proof, columns, states, hops, goals, sources
    )


def _hops(proof: Trace, schedules: Sequence[Sequence[Round]]) -> list[list[Hop]]:
    """Join the messages of the log with their receives: those of two ranks meet in order."""
    receives: dict[tuple[int, int], deque[tuple[int, bool]]] = defaultdict(deque)
    for rank, schedule in enumerate(schedules):
        for step, (end, _) in zip(schedule, proof.history[rank][1:], strict=True):
            for op in step:
                if isinstance(op, Receive):
                    receives[op.peer, rank].append((end, _is_folded(op, step)))

    def hop_of(message: Message) -> Hop:
        return Hop(*message, *receives[message.source, message.destination].popleft())

    hops = sorted(map(hop_of, proof.log), key=lambda hop: hop[:3])
    return [[hop for hop in hops if hop.round == now] for now in range(proof.rounds + 1)]


def _is_folded(op: Receive, step: Round) -> bool:
    used = {op.source for op in step if isinstance(op, Fold)}
    return op.side is not None or any(block in used for block in op.blocks)


def _sources(hops: list[list[Hop]], size: int) -> list[list[int]]:
    sources = [[1 << rank for rank in range(size)]]
    for now in range(1, len(hops)):
        sources.append(list(sources[-1]))
        for hop in (
            hop for round_hops in hops[: now + 1] for hop in round_hops if hop.lands == now
        ):
            sources[now][hop.destination] |= sources[hop.round - 1][hop.source]
    return sources


def _listening(sources: list[list[int]]) -> list[State]:
    """Return the states of a barrier: the ranks that each rank has heard of."""
    earlier = [sources[0], *sources[:-1]]
    return [
        [[Cell(mask, "+" if mask != old else "")] for mask, old in zip(now, then, strict=True)]
        for now, then in zip(sources, earlier, strict=True)
    ]


@dataclass
class _Tracer:
    """The proof of a schedule, read as cells of ranks and columns, scratch last."""

    collective: Collective
    place: Place
    proof: Trace
    schedules: list[list[Round]]
    hops: list[list[Hop]]

    def __post_init__(self) -> None:
        ranks = range(self.place.size)
        times = range(self.proof.rounds + 1)
        self.held = [[_at(self.proof.history[rank], now) for rank in ranks] for now in times]
        self.demands = [
            {
                block: demanded(contributions)
                for block, contributions in self.collective.output_contents(place).items()
            }
            for place in map(self._place, ranks)
        ]
        self.columns = [*self._columns(), *self._scratch()]

    def _place(self, rank: int) -> Place:
        return self.place._replace(rank=rank)

    def states(self) -> list[State]:
        """Return the cells before the first round and after each."""
        return [
            [
                [self._cell(now, rank, column) for column in self.columns]
                for rank in range(self.place.size)
            ]
            for now in range(len(self.held))
        ]

    def goals(self) -> list[list[int]]:
        """Return the masks that the contract demands."""
        return [
            [_mask(demand, column.blocks) for column in self.columns] for demand in self.demands
        ]

    def _columns(self) -> Iterator[Column]:
        """Yield the columns of data: of pairs one for each destination.

        Else one for each run of neighbouring blocks with the same history.
        """
        if self.collective.unit == "pairs":
            for peer in range(self.place.size):
                yield Column(str(peer), tuple((rank, peer) for rank in range(self.place.size)))
        elif self.collective.unit != "none":
            for _, run in groupby(range(self.place.blocks), key=self._history):
                blocks = tuple(run)
                yield Column(_run(blocks), blocks)

    def _scratch(self) -> list[Column]:
        """Return the columns of scratch, a single one where there are many."""
        used = {block for now in self.held for held in now for block in held}
        temps = [block for block in used if isinstance(block, Temp)]
        temps.sort(key=lambda temp: (len(temp.name), temp.name, _order(temp.block)))
        groups = [
            (name, tuple(run))
            for (name, _), run in groupby(temps, key=lambda temp: (temp.name, self._history(temp)))
        ]
        if len(groups) > _MAX_SCRATCH_COLUMNS:
            return [Column("scratch", tuple(temps), True)]
        return [
            Column(f"{name}[{_run([temp.block for temp in run])}]", run, True)
            for name, run in groups
        ]

    def _history(self, block: Block) -> object:
        """Return the contents, the goals and the messages of a block in all rounds."""
        masks = [[_mask(held, (block,)) for held in now] for now in self.held]
        goals = [_mask(demand, (block,)) for demand in self.demands]
        carried = [[block in hop.blocks for hop in now] for now in self.hops]
        return masks, goals, carried

    def _cell(self, now: int, rank: int, column: Column) -> Cell:
        held = self.held[now][rank]
        previous = self.held[max(0, now - 1)][rank]
        changed = {block for block in column.blocks if held.get(block) != previous.get(block)}
        if not changed:
            return Cell(_mask(held, column.blocks))
        return Cell(
            _mask(held, column.blocks), "=" if changed.isdisjoint(self._folds(now, rank)) else "+"
        )

    def _folds(self, now: int, rank: int) -> set[Block]:
        """Return the blocks into which a rank folds in the rounds that end at this time."""
        ended = zip(self.schedules[rank], self.proof.history[rank][1:], strict=True)
        ops = [op for step, (end, _) in ended if end == now for op in step]
        received = {
            block for op in ops if isinstance(op, Receive) and op.side for block in op.blocks
        }
        return received | {op.target for op in ops if isinstance(op, Fold)}


def _at(history: History, now: int) -> Held:
    return next(contents for end, contents in reversed(history) if end <= now)


def _mask(contents: Held, blocks: Sequence[Block]) -> int:
    """Return the ranks whose data is in some of these blocks."""
    return reduce(or_, (contents[block].ranks for block in blocks if block in contents), 0)


@lru_cache(maxsize=1 << 16)
def runs(mask: int) -> str:
    """Write the ranks of a mask as ranges.

    >>> runs(0b1011101), runs(0)
    ('0,2-4,6', '')
    """
    return ranges([rank for rank in range(mask.bit_length()) if mask >> rank & 1])


def _run(blocks: Sequence[Block]) -> str:
    return _name(blocks[0]) if len(blocks) == 1 else f"{_name(blocks[0])}-{_name(blocks[-1])}"


def _name(block: Block) -> str:
    if isinstance(block, Temp):
        return f"{block.name}[{_name(block.block)}]"
    return ">".join(map(str, block)) if isinstance(block, tuple) else str(block)


def _order(block: Block) -> tuple[int, str]:
    return (len(str(block)), str(block))


def listed(blocks: Sequence[Block]) -> str:
    """Write the blocks of a message, runs of numbers joined.

    >>> listed((0, 1, 2, 5)), listed(((0, 3), (1, 3))), listed(())
    ('0-2,5', '0>3,1>3', 'signal')
    """
    if not blocks:
        return "signal"
    numbers = [block for block in blocks if isinstance(block, int)]
    if len(numbers) == len(blocks):
        return ranges(sorted(numbers))
    return ",".join(map(_name, blocks))
