"""All ranks in one process, on symbolic contents: proof, trace and derived properties.

The value of a block is the tuple of contributions ``(rank, block)`` it is folded from,
in the order of the folds. Messages are rendezvous: a round ends when each of its sends
has met its receive, so a schedule that needs buffering to get through is a deadlock.

>>> from mpicoll.algorithms import find
>>> trace = prove(find("allreduce", "ring"), 8)
>>> trace.rounds, trace.sent, trace.reduced, trace.ordered
(14, 1.75, 0.875, False)

``python -m mpicoll.simulator --size 7`` prints this for every algorithm.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from mpicoll.algorithms import Algorithm, Counts, Nodes, find
from mpicoll.contract import Collective, Contents, Contribution, Place
from mpicoll.errors import ArgumentError, Deadlock, WrongContents
from mpicoll.schedule import Block, Copy, Fold, Receive, Round, Send, Side, Temp

Value = tuple[Contribution, ...]
Sizes = Mapping[Block, int]


class Message(NamedTuple):
    """One message: when it was sent, from where to where, with which blocks."""

    round: int
    source: int
    destination: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Trace:
    """What a proved schedule does.

    Attributes:
        rounds: messages on the longest chain of rounds that wait for each other.
        sent, reduced: the most that one rank sends and folds, in whole vectors m.
        messages: how many there are, by all ranks.
        ports: the most messages one way by one rank in one round.
        ordered: whether every result is folded in rank order, which operators that
            do not commute need.
        log: every message, in the order in which they were matched.
        history: for each rank the rounds that it ended and its contents after each, from
            round 0, before any; only if asked for.
    """

    rounds: int
    sent: float
    reduced: float
    messages: int
    ports: int
    ordered: bool
    log: list[Message] = field(repr=False, default_factory=list)
    history: list[list[tuple[int, Contents]]] = field(repr=False, default_factory=list)


def simulate(
    schedules: Sequence[Sequence[Round]],
    collective: Collective,
    size: int,
    root: int = 0,
    blocks: int = 1,
    sizes: Sizes | None = None,
    *,
    history: bool = False,
) -> Trace:
    """Run the schedules of all ranks and check the result against the contract.

    Args:
        blocks: into how many blocks a vector is cut.
        sizes: the elements of each block, one each by default; empty blocks are neither
            sent nor checked.
        history: record every rank's contents after each of its rounds.

    Raises:
        Deadlock: ranks wait for messages that never come.
        WrongContents: a message, a fold or a result is not what it must be.
    """
    group = _Group(schedules, collective, Place(0, size, root, blocks), sizes, history)
    group.run()
    return group.trace(group.check())


def prove(
    algorithm: Algorithm,
    size: int,
    root: int = 0,
    nodes: Nodes | None = None,
    sizes: Sizes | None = None,
    counts: Counts | None = None,
    *,
    history: bool = False,
) -> Trace:
    """Simulate an algorithm on `size` ranks.

    Args:
        counts: what size-aware algorithms are told of the rows; `sizes` says what they are.

    Raises:
        Unsupported: the algorithm cannot serve this size.
        Deadlock, WrongContents: its schedule is wrong.
    """
    schedules = [algorithm.rounds(rank, size, root, nodes, counts) for rank in range(size)]
    blocks = algorithm.blocks(size)
    return simulate(schedules, algorithm.collective, size, root, blocks, sizes, history=history)


def is_ordered(algorithm: Algorithm, size: int, root: int = 0, nodes: Nodes | None = None) -> bool:
    """Whether an algorithm keeps rank order, as operators that do not commute need."""
    return _is_ordered(algorithm.collective.name, str(algorithm), size, root, nodes)


@lru_cache(maxsize=4096)
def _is_ordered(of: str, text: str, size: int, root: int, nodes: Nodes | None) -> bool:
    return prove(find(of, text), size, root, nodes).ordered


@dataclass(slots=True)
class _Rank:
    """Where one rank stands: its contents and its current round."""

    schedule: Sequence[Round]
    contents: dict[Block, Value]
    heard: int
    at: int = -1
    start: int = 0
    end: int = 0
    pending: int = 0
    sent: int = 0
    reduced: int = 0
    ports: int = 0
    arrived: dict[int, list[tuple[Block, Value]]] = field(default_factory=dict)
    news: int = 0
    history: list[tuple[int, Contents]] = field(default_factory=list)


class _Half(NamedTuple):
    """A send or a receive that waits for its other half."""

    rank: int
    position: int
    blocks: tuple[Block, ...]
    values: tuple[Value, ...]


class _Group:
    """All ranks, run round by round as their messages meet."""

    def __init__(
        self,
        schedules: Sequence[Sequence[Round]],
        collective: Collective,
        place: Place,
        sizes: Sizes | None,
        history: bool,
    ) -> None:
        self.collective, self.place, self.sizes, self.history = collective, place, sizes, history
        self.ranks = [
            _Rank(schedule, self._before(rank), 1 << rank)
            for rank, schedule in enumerate(schedules)
        ]
        for me in self.ranks if history else []:
            me.history.append((0, dict(me.contents)))
        self.waiting: dict[tuple[int, int, type], deque[_Half]] = defaultdict(deque)
        self.ready = list(range(len(schedules)))
        self.log: list[Message] = []

    def _before(self, rank: int) -> dict[Block, Value]:
        held = self.collective.before(self.place._replace(rank=rank))
        return {block: ((rank, block),) for block in held if self._count(block)}

    def _count(self, block: Block) -> int:
        if self.sizes is None:
            return 1
        while isinstance(block, Temp):
            block = block.block
        return self.sizes[block]

    def run(self) -> None:
        """Advance whoever can, until nobody can."""
        while self.ready:
            self._enter(self.ready.pop())
        stuck = [rank for rank, at in enumerate(self.ranks) if at.pending]
        if stuck:
            raise Deadlock("; ".join(map(self._waits, stuck)))

    def _enter(self, rank: int) -> None:
        """Begin the next round of a rank, if there is one."""
        me = self.ranks[rank]
        me.at += 1
        me.start = me.end
        if me.at == len(me.schedule):
            return
        halves = [
            (op, half)
            for index, op in enumerate(me.schedule[me.at])
            if isinstance(op, Send | Receive) and (half := self._half(rank, index, op)) is not None
        ]
        sends = sum(isinstance(op, Send) for op, _ in halves)
        me.ports = max(me.ports, sends, len(halves) - sends)
        me.pending = len(halves)
        if not halves:
            self._leave(rank, me)
        for op, half in halves:
            self._offer(op, half)

    def _half(self, rank: int, index: int, op: Send | Receive) -> _Half | None:
        """Return this side of a message without its empty blocks, or None if all are."""
        if not 0 <= op.peer < len(self.ranks) or op.peer == rank:
            raise WrongContents(f"{self._where(rank)}: {op} has no peer of that number")
        blocks = op.blocks
        if self.sizes is not None and blocks:
            blocks = tuple(block for block in blocks if self._count(block))
            if not blocks:
                return None
        if isinstance(op, Receive):
            return _Half(rank, index, blocks, ())
        return _Half(rank, index, blocks, tuple(self._value(rank, block, op) for block in blocks))

    def _value(self, rank: int, block: Block, op: object) -> Value:
        try:
            return self.ranks[rank].contents[block]
        except KeyError:
            raise WrongContents(f"{self._where(rank)}: {op} uses {block}, not held") from None

    def _offer(self, op: Send | Receive, half: _Half) -> None:
        """Match one half of a message with the other, first come first served."""
        sends = isinstance(op, Send)
        source, destination = (half.rank, op.peer) if sends else (op.peer, half.rank)
        others = self.waiting[source, destination, Receive if sends else Send]
        if not others:
            self.waiting[source, destination, type(op)].append(half)
            return
        other = others.popleft()
        self._match(*((half, other) if sends else (other, half)))

    def _match(self, sent: _Half, received: _Half) -> None:
        source, destination = self.ranks[sent.rank], self.ranks[received.rank]
        if not self._alike(sent.blocks, received.blocks):
            raise WrongContents(
                f"{self._where(sent.rank)} sends blocks {_listed(sent.blocks)} where"
                f" {self._where(received.rank)} receives {_listed(received.blocks)}"
            )
        end = 1 + max(source.start, destination.start)
        self.log.append(Message(end, sent.rank, received.rank, sent.blocks))
        destination.arrived[received.position] = [*zip(received.blocks, sent.values, strict=True)]
        destination.news |= source.heard
        source.sent += self._elements(sent.blocks)
        for rank, me in ((sent.rank, source), (received.rank, destination)):
            me.end = max(me.end, end)
            me.pending -= 1
            if not me.pending:
                self._leave(rank, me)

    def _alike(self, sent: tuple[Block, ...], received: tuple[Block, ...]) -> bool:
        if self.sizes is None:
            return len(sent) == len(received)
        return [*map(self._count, sent)] == [*map(self._count, received)]

    def _elements(self, blocks: tuple[Block, ...]) -> int:
        return len(blocks) if self.sizes is None else sum(map(self._count, blocks))

    def _leave(self, rank: int, me: _Rank) -> None:
        """End a round: what arrived lands or is folded as listed, then local operations."""
        ops = me.schedule[me.at]
        if len(me.arrived) > 1 or any(len(parts) > 1 for parts in me.arrived.values()):
            self._check_targets(rank, me)
        for index, parts in sorted(me.arrived.items()):
            side = ops[index].side  # type: ignore[union-attr]
            for block, value in parts:
                if side is None:
                    me.contents[block] = value
                else:
                    self._fold(rank, block, value, side, ops[index])
        for op in ops:
            if isinstance(op, Copy | Fold):
                self._local(rank, op)
        me.heard |= me.news
        me.arrived.clear()
        if self.history:
            me.history.append((me.end, dict(me.contents)))
        self.ready.append(rank)

    def _check_targets(self, rank: int, me: _Rank) -> None:
        """Refuse two messages into one block unless both are folded."""
        ops = me.schedule[me.at]
        taken: dict[Block, bool] = {}
        for index, parts in me.arrived.items():
            plain = ops[index].side is None  # type: ignore[union-attr]
            for block, _ in parts:
                if block in taken and (plain or taken[block]):
                    raise WrongContents(f"{self._where(rank)} receives {block} twice")
                taken[block] = plain

    def _local(self, rank: int, op: Copy | Fold) -> None:
        if not self._alike((op.source,), (op.target,)):
            raise WrongContents(f"{self._where(rank)}: {op} is of blocks of different sizes")
        if not self._count(op.source):
            return
        value = self._value(rank, op.source, op)
        if isinstance(op, Copy):
            self.ranks[rank].contents[op.target] = value
        else:
            self._fold(rank, op.target, value, op.side, op)

    def _fold(self, rank: int, target: Block, value: Value, side: Side, op: object) -> None:
        me, mine = self.ranks[rank], self._value(rank, target, op)
        if not set(mine).isdisjoint(value):
            raise WrongContents(f"{self._where(rank)}: {op} counts {_shown(value)} twice")
        me.contents[target] = value + mine if side == "left" else mine + value
        me.reduced += self._count(target)

    def _where(self, rank: int) -> str:
        return f"rank {rank} in round {self.ranks[rank].at}"

    def _waits(self, rank: int) -> str:
        peers = {
            destination if kind is Send else source
            for (source, destination, kind), halves in self.waiting.items()
            for half in halves
            if half.rank == rank
        }
        return f"{self._where(rank)} waits for " + " and ".join(map(self._stage, sorted(peers)))

    def _stage(self, rank: int) -> str:
        me = self.ranks[rank]
        done = me.at >= len(me.schedule)
        return f"rank {rank}, which " + ("has finished" if done else f"is in round {me.at}")

    def check(self) -> bool:
        """Compare every rank with the contract and return whether rank order was kept."""
        if self.collective.unit == "none":
            everyone = (1 << len(self.ranks)) - 1
            for rank, me in enumerate(self.ranks):
                if me.heard != everyone:
                    missing = [peer for peer in range(len(self.ranks)) if not me.heard >> peer & 1]
                    raise WrongContents(f"rank {rank} leaves without word from ranks {missing}")
            return True
        kept = [self._keeps(rank, me) for rank, me in enumerate(self.ranks)]
        return all(kept)

    def _keeps(self, rank: int, me: _Rank) -> bool:
        ordered = True
        for block, expected in self.collective.after(self.place._replace(rank=rank)).items():
            if not self._count(block):
                continue
            got = me.contents.get(block, ())
            if sorted(got) != sorted(expected):
                raise WrongContents(
                    f"rank {rank} ends with {_shown(got)} as block {block},"
                    f" not with {_shown(expected)}"
                )
            ordered &= got == expected
        return ordered

    def trace(self, ordered: bool) -> Trace:
        """Return what was measured."""
        whole = self._whole()
        return Trace(
            rounds=max(me.end for me in self.ranks),
            sent=max(me.sent for me in self.ranks) / whole,
            reduced=max(me.reduced for me in self.ranks) / whole,
            messages=len(self.log),
            ports=max(me.ports for me in self.ranks),
            ordered=ordered,
            log=self.log,
            history=[me.history for me in self.ranks],
        )

    def _whole(self) -> int:
        """Return the elements of the whole vector; of alltoall, of all that one rank sends."""
        rank = self.place.root if self.collective.rooted else 0
        if self.collective.unit == "rows":
            blocks: list[Block] = list(range(self.place.size * self.place.parts))
        else:
            blocks = self.collective.before(self.place._replace(rank=rank))
        return max(1, self._elements(tuple(blocks)))


def _listed(blocks: Sequence[Block]) -> str:
    return ", ".join(map(str, blocks)) or "none"


def _shown(value: Value) -> str:
    return " + ".join(f"{block} of rank {rank}" for rank, block in value) or "nothing"


def contiguous(size: int, count: int) -> Nodes:
    """Split ranks into `count` nodes of neighbours, as even as can be.

    >>> contiguous(5, 2)
    ((0, 1, 2), (3, 4))
    """
    if not 1 <= count <= size:
        raise ArgumentError(f"{size} ranks cannot be on {count} nodes")
    least, more = divmod(size, count)
    starts = [node * least + min(node, more) for node in range(count + 1)]
    return tuple(tuple(range(*pair)) for pair in pairwise(starts))
