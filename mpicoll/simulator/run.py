"""The run of all ranks: match messages, end rounds, follow the contents of blocks.

The contents of a rank change only when its round ends, so a message takes its values when both of
its sides have come to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from mpicoll.errors import Deadlock, WrongContents
from mpicoll.notation.contract import Collective, Contribution, Place
from mpicoll.notation.schedule import Block, Copy, Fold, Round, Send, Side, Temp

Sizes = Mapping[Block, int]
Blocks = tuple[Block, ...]


class Value(NamedTuple):
    """The contents of a block: a fold of blocks that some ranks held at the start.

    Attributes:
        block: that name; `MIXED` where contributions of several names were folded.
        ranks: bit i is set for rank i.
        first, stop: the run of ranks it is the fold of in rank order; 0, 0 where it is none, as
            then nothing can be put between any more.
        one_by_one: whether those were added one after the other, in rank order: ((a + b) + c) + d.
    """

    block: Block
    ranks: int
    first: int
    stop: int
    one_by_one: bool = True

    @property
    def contributions(self) -> tuple[Contribution, ...]:
        """The pairs of rank and block that it is folded from."""
        bits = range(self.ranks.bit_length())
        return tuple((rank, self.block) for rank in bits if self.ranks >> rank & 1)


_Half = tuple[int, int, int, Blocks]
"""A send or a receive that waits for its other half: its rank, peer, place in the round, blocks."""
History = list[tuple[int, dict[Block, Value]]]
"""The rounds that a rank ended, and its contents after each."""
MIXED = "a mix of blocks"
NOTHING = Value(None, 0, 0, 0)


def _join(lhs: Value, rhs: Value) -> Value:
    """Return ``left op right``."""
    ordered = lhs.stop == rhs.first and lhs.stop and rhs.stop
    return Value(
        lhs.block if lhs.block == rhs.block else MIXED,
        lhs.ranks | rhs.ranks,
        *((lhs.first, rhs.stop) if ordered else (0, 0)),
        bool(ordered) and lhs.one_by_one and rhs.stop == rhs.first + 1,
    )


def demanded(contributions: tuple[Contribution, ...]) -> Value:
    """Return the value that a contract demands: a fold of neighbours in rank order."""
    (first, block), (last, _) = contributions[0], contributions[-1]
    return Value(block, (1 << last + 1) - (1 << first), first, last + 1)


class Message(NamedTuple):
    """One message: when it was sent, from where to where, with which blocks."""

    round: int
    source: int
    destination: int
    blocks: tuple[Block, ...]


@dataclass(slots=True)
class Rank:
    """The state of one rank: its contents, its current round, and its counters.

    Attributes:
        sources: bit i is set if data of rank i have reached this rank; `news` is added to it at the
            end of the round.
        start, end: on how long a chain of messages the round began, and would end by now.
        pending: messages of the round that have not met their other half.
        sends, receives: messages to this rank that wait for their other half, by their source.
        local: copies and folds to do when they have.
        arrived: what those that did have brought: their place in the round, targets and values.
    """

    schedule: Sequence[Round]
    contents: dict[Block, Value]
    sources: int
    at: int = -1
    start: int = 0
    end: int = 0
    pending: int = 0
    sent: int = 0
    reduced: int = 0
    ports: int = 0
    arrived: list[tuple[int, Blocks, list[Value]]] = field(default_factory=list)
    news: int = 0
    sends: dict[int, list[_Half]] = field(default_factory=lambda: defaultdict(list))
    receives: dict[int, list[_Half]] = field(default_factory=lambda: defaultdict(list))
    local: list[Copy | Fold] = field(default_factory=list)
    history: History = field(default_factory=list)

    def record(self) -> None:
        """Add the contents to the history."""
        self.history.append((self.end, self.contents.copy()))


class Run:
    """All ranks, run round by round as their messages meet."""

    def __init__(
        self,
        schedules: Sequence[Sequence[Round]],
        collective: Collective,
        place: Place,
        sizes: Sizes | None,
        history: bool,
        log: bool,
    ) -> None:
        self.collective, self.place, self.sizes, self.history = collective, place, sizes, history
        self.ranks = [
            Rank(schedule, self._initial_contents(rank), 1 << rank)
            for rank, schedule in enumerate(schedules)
        ]
        for me in self.ranks if history else []:
            me.record()
        self.ready = list(range(len(schedules)))
        self.messages, self.log = 0, list[Message]() if log else None

    def _initial_contents(self, rank: int) -> dict[Block, Value]:
        held = self.collective.input_blocks(self.place._replace(rank=rank))
        if self.sizes is not None:
            held = [block for block in held if self._count(block)]
        bit, stop = 1 << rank, rank + 1
        return {block: Value(block, bit, rank, stop) for block in held}

    def _count(self, block: Block) -> int:
        if self.sizes is None:
            return 1
        while isinstance(block, Temp):
            block = block.block
        return self.sizes[block]

    def run(self) -> None:
        """Advance ranks until none can.

        Raises:
            Deadlock: ranks wait for messages that never come.
            WrongContents: a message or a fold is not what it must be.
        """
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
        sends: list[_Half] = []
        receives: list[_Half] = []
        ranks, sizes = self.ranks, self.sizes
        size = len(ranks)
        me.local = []
        for index, op in enumerate(me.schedule[me.at]):
            if type(op) is Copy or type(op) is Fold:
                me.local.append(op)
                continue
            peer, blocks = op.peer, op.blocks
            if not 0 <= peer < size or peer == rank:
                raise WrongContents(f"{self._location(rank)}: {op} has no peer of that number")
            if sizes is not None and blocks:
                blocks = tuple(filter(self._count, blocks))
                if not blocks:
                    continue
            (sends if type(op) is Send else receives).append((rank, peer, index, blocks))
        me.ports = max(me.ports, len(sends), len(receives))
        me.pending = len(sends) + len(receives)
        if not me.pending:
            self._leave(rank, me)
        for half in sends:
            peer = half[1]
            if waiting := ranks[peer].receives.get(rank):
                self._match(half, waiting.pop(0))
            else:
                ranks[peer].sends[rank].append(half)
        for half in receives:
            peer = half[1]
            if waiting := me.sends.get(peer):
                self._match(waiting.pop(0), half)
            else:
                me.receives[peer].append(half)

    def _match(self, sent: _Half, received: _Half) -> None:
        giver, taker, place, blocks = sent
        position, targets = received[2:]
        source, destination = self.ranks[giver], self.ranks[taker]
        if self.sizes is not None or len(blocks) != len(targets):
            self._check_alike(sent, received)
        try:
            values = [source.contents[block] for block in blocks]
        except KeyError as missing:
            op = source.schedule[source.at][place]
            raise self._not_held(giver, missing.args[0], op) from None
        end = 1 + (source.start if source.start > destination.start else destination.start)
        self.messages += 1
        if self.log is not None:
            self.log.append(Message(end, giver, taker, blocks))
        destination.arrived.append((position, targets, values))
        destination.news |= source.sources
        source.sent += len(values) if self.sizes is None else sum(map(self._count, blocks))
        self._complete(giver, source, end)
        self._complete(taker, destination, end)

    def _complete(self, rank: int, me: Rank, end: int) -> None:
        if me.end < end:
            me.end = end
        me.pending -= 1
        if not me.pending:
            self._leave(rank, me)

    def _check_alike(self, sent: _Half, received: _Half) -> None:
        """Refuse a message whose blocks are not as large as those that it is to land in."""
        if not self._alike(sent[3], received[3]):
            raise WrongContents(
                f"{self._location(sent[0])} sends blocks {_listed(sent[3])} where"
                f" {self._location(received[0])} receives {_listed(received[3])}"
            )

    def _alike(self, sent: Blocks, received: Blocks) -> bool:
        if self.sizes is None:
            return len(sent) == len(received)
        return [*map(self._count, sent)] == [*map(self._count, received)]

    def _leave(self, rank: int, me: Rank) -> None:
        """End a round: land or fold the received blocks as listed, then run local operations."""
        ops, arrived = me.schedule[me.at], me.arrived
        if len(arrived) > 1:
            arrived.sort(key=itemgetter(0))
        if len(arrived) > 1 or (arrived and len(arrived[0][1]) > 1):
            self._check_targets(rank, me)
        for index, blocks, values in arrived:
            op = ops[index]
            side = op.side  # type: ignore[union-attr]
            if side is None:
                me.contents.update(zip(blocks, values, strict=True))
                continue
            for block, value in zip(blocks, values, strict=True):
                self._fold(rank, block, value, side, op)
        for local in me.local:
            self._local(rank, local)
        me.sources |= me.news
        arrived.clear()
        if self.history:
            me.record()
        self.ready.append(rank)

    def _check_targets(self, rank: int, me: Rank) -> None:
        """Refuse two messages into one block unless both are folded."""
        ops = me.schedule[me.at]
        plain: list[Block] = []
        folded: list[Block] = []
        for index, blocks, _ in me.arrived:
            (folded if ops[index].side else plain).extend(blocks)  # type: ignore[union-attr]
        once = set(plain)
        if len(once) < len(plain) or not once.isdisjoint(folded):
            twice = next(block for block in plain if plain.count(block) > 1 or block in folded)
            raise WrongContents(f"{self._location(rank)} receives {twice} twice")

    def _local(self, rank: int, op: Copy | Fold) -> None:
        if not self._alike((op.source,), (op.target,)):
            raise WrongContents(f"{self._location(rank)}: {op} is of blocks of different sizes")
        if not self._count(op.source):
            return
        contents = self.ranks[rank].contents
        if op.source not in contents:
            raise self._not_held(rank, op.source, op)
        if isinstance(op, Copy):
            contents[op.target] = contents[op.source]
        else:
            self._fold(rank, op.target, contents[op.source], op.side, op)

    def _fold(self, rank: int, target: Block, value: Value, side: Side, op: object) -> None:
        me = self.ranks[rank]
        mine = me.contents.get(target)
        if mine is None:
            raise self._not_held(rank, target, op)
        if mine.ranks & value.ranks and mine.block == value.block:
            raise WrongContents(f"{self._location(rank)}: {op} counts {_shown(value)} twice")
        me.contents[target] = _join(value, mine) if side == "left" else _join(mine, value)
        me.reduced += 1 if self.sizes is None else self._count(target)

    def _not_held(self, rank: int, block: Block, op: object) -> WrongContents:
        return WrongContents(f"{self._location(rank)}: {op} uses {block}, not held")

    def _location(self, rank: int) -> str:
        return f"rank {rank} in round {self.ranks[rank].at}"

    def _waits(self, rank: int) -> str:
        to = {peer for peer, state in enumerate(self.ranks) if state.sends.get(rank)}
        whence = {peer for peer, halves in self.ranks[rank].receives.items() if halves}
        peers = to | whence
        return f"{self._location(rank)} waits for " + " and ".join(map(self._stage, sorted(peers)))

    def _stage(self, rank: int) -> str:
        me = self.ranks[rank]
        is_finished = me.at >= len(me.schedule)
        return f"rank {rank}, which " + ("has finished" if is_finished else f"is in round {me.at}")

    def check(self) -> tuple[bool, bool]:
        """Compare every rank with the contract.

        Return whether rank order was kept, and whether ranks were folded one by one besides.
        """
        if self.collective.unit == "none":
            everyone = (1 << len(self.ranks)) - 1
            for rank, me in enumerate(self.ranks):
                if me.sources != everyone:
                    missing = [
                        peer for peer in range(len(self.ranks)) if not me.sources >> peer & 1
                    ]
                    raise WrongContents(f"rank {rank} leaves without word from ranks {missing}")
            return True, True
        orders = [self._keeps(rank, me) for rank, me in enumerate(self.ranks)]
        return all(ordered for ordered, _ in orders), all(one_by_one for _, one_by_one in orders)

    def _keeps(self, rank: int, me: Rank) -> tuple[bool, bool]:
        ordered = one_by_one = True
        for block, expected in self.collective.output_contents(
            self.place._replace(rank=rank)
        ).items():
            if self.sizes is not None and not self._count(block):
                continue
            got, wanted = me.contents.get(block, NOTHING), demanded(expected)
            if got == wanted:
                continue
            if got.ranks != wanted.ranks or got.block != wanted.block:
                raise WrongContents(
                    f"rank {rank} ends with {_shown(got)} as block {block},"
                    f" not with {_shown(wanted)}"
                )
            one_by_one = False
            ordered &= got[:-1] == wanted[:-1]
        return ordered, one_by_one

    @property
    def whole(self) -> int:
        """The elements of the whole vector; of alltoall, of all that one rank sends."""
        rank = self.place.root if self.collective.rooted else 0
        if self.collective.unit == "rows":
            blocks: list[Block] = list(range(self.place.size * self.place.parts))
        else:
            blocks = self.collective.input_blocks(self.place._replace(rank=rank))
        return max(1, sum(map(self._count, blocks)))


def _listed(blocks: Sequence[Block]) -> str:
    return ", ".join(map(str, blocks)) or "none"


def _shown(value: Value) -> str:
    return " + ".join(f"{block} of rank {rank}" for rank, block in value.contributions) or "nothing"
