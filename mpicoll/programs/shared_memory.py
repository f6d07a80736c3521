"""Lower a schedule to instructions over shared memory.

Within a node a message is not sent. Its sender *publishes* it: the bytes lie in memory that the
others read, and a flag announces them. Its receivers *await* the flag, copy or fold straight from
there, and *acknowledge*, which lets the sender write there again.

A small message is copied into an eager *slot*, so that its sender goes on at once. A large one is
*zero-copy* where others can read the buffer it lies in: the sender then waits for its readers
before it writes that memory again, and before the call ends. Large steps run tile by tile, so that
a tile is still in the cache when it is read.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mpicoll.notation.schedule import Block, Receive, Round, Send
from mpicoll.programs.messages import (
    Combine,
    Lowering,
    Move,
    Piece,
    Step,
    Transfer,
    like,
    overlappable,
    overlaps,
)


class Publish(NamedTuple):
    """Raise the flag of one tile of a publication."""

    publication: int
    tile: int


class Await(NamedTuple):
    """Wait for the flag of one tile of a receipt."""

    receipt: int
    tile: int


class Acknowledge(NamedTuple):
    """Tell the sender of a receipt that it has been read; through a window, one tile of it."""

    receipt: int
    tile: int = 0


class WaitForSlot(NamedTuple):
    """Wait until the slot of a publication, or of one of its tiles, may be written again."""

    publication: int
    tile: int = 0


class WaitForReaders(NamedTuple):
    """Wait until all readers have read a zero-copy publication."""

    publication: int


class Post(NamedTuple):
    """Start the messages to and from other nodes."""

    sends: tuple[Transfer, ...]
    receives: tuple[Transfer, ...]


class Complete(NamedTuple):
    """Wait for the messages that the last `Post` started."""


Instruction = (
    Move | Combine | Publish | Await | Acknowledge | WaitForSlot | WaitForReaders | Post | Complete
)  # fmt: skip


@dataclass
class Publication:
    """A message of this rank to those that read it.

    Attributes:
        piece: where it lies; None for a bare signal.
        readers: who reads it, in the order in which the schedule sends.
        zero_copy: it is read in the sender's buffer instead of in an eager slot.
        tiles: how many flags it has.
        window: elements of a tile where it passes through a few slots, else 0; `slots`: how many.
    """

    piece: Piece | None
    readers: list[int]
    zero_copy: bool
    tiles: int
    window: int = 0
    slots: int = 0


@dataclass
class Receipt:
    """A message that this rank reads: the `order`-th from `peer`, of `length` elements."""

    peer: int
    order: int
    length: int
    tiles: int


@dataclass
class SharedProgram:
    """A schedule lowered to shared memory.

    Attributes:
        rounds: for each instruction the round that it belongs to.
        sent: for each peer its publications, in the order of the schedule.
        scratch: elements of the buffers that the program needs of its own.
    """

    instructions: list[Instruction] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    publications: list[Publication] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    sent: dict[int, list[int]] = field(default_factory=dict)
    scratch: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Reach:
    """The memory that the ranks of a node can read of each other.

    Attributes:
        intra_node: the ranks of this node.
        readable: the buffers that the others can read where they are.
        least: elements from which a message in such a buffer is zero-copy.
        tile: elements that are moved at a time.
    """

    intra_node: frozenset[int]
    readable: frozenset[str]
    least: int
    tile: int


def slot(publication: int) -> str:
    """Return the name of the buffer that holds a publication."""
    return f"slot {publication}"


def source(receipt: int) -> str:
    """Return the name of the buffer that a receipt is read from."""
    return f"from {receipt}"


def is_remote(piece: Piece) -> bool:
    """Whether a piece is another rank's memory."""
    return piece.buffer.startswith("from ")


def message_of(piece: Piece) -> int:
    """Return the number of the publication, or of the receipt, that a piece is a part of."""
    return int(piece.buffer.partition(" ")[2])


def share(
    rounds: Sequence[Round], sizes: Mapping[Block, int], before: Sequence[Block],
    after: Sequence[Block], reach: Reach, *, in_place: bool = False,
) -> SharedProgram:  # fmt: skip
    """Lower a rank's schedule to shared memory; the arguments are those of `messages.lower`."""
    return _SharedLowering(rounds, sizes, before, after, in_place, reach).shared()


@dataclass
class _SharedStep(Step):
    """One round: messages between nodes, and publications and receipts within the node."""

    copied: list[Move] = field(default_factory=list)
    published: list[int] = field(default_factory=list)
    awaited: list[int] = field(default_factory=list)


class _Tiled(NamedTuple):
    """A step in passes: its work before them, on each tile after the messages, and after them."""

    passes: int
    early: Sequence[Move | Combine]
    after: Sequence[Move | Combine]
    late: Sequence[Move | Combine]


class _SharedLowering(Lowering):
    def __init__(
        self, rounds: Sequence[Round], sizes: Mapping[Block, int], before: Sequence[Block],
        after: Sequence[Block], in_place: bool, reach: Reach,
    ) -> None:  # fmt: skip
        super().__init__(rounds, sizes, before, after, in_place)
        self.reach = reach
        self.made = SharedProgram()
        self.anchors: dict[Move | Combine, tuple[int, int]] = {}
        self.received: Counter[int] = Counter()
        self.last_use = {
            block: index for index, ops in enumerate(self.rounds) for op in ops
            for block in (op.blocks if isinstance(op, Send | Receive) else (op.target, op.source))
        }  # fmt: skip
        self.last_use |= dict.fromkeys(self.results, len(self.rounds))

    def shared(self) -> SharedProgram:
        made = self.made
        for index, ops in enumerate(self.rounds):
            self.round = index
            self._emit(self._step(ops))
        last = _SharedStep()
        self._bring_home(self.results, last.after)
        self._emit(last)
        made.scratch = {"scratch": self.scratch, "staging": self.most_staged}
        _acknowledge(made)
        _wait_for_readers(made)
        return made

    # -- one round --------------------------------------------------------------------

    def _step(self, ops: Round) -> _SharedStep:
        step, self.staged = _SharedStep(), 0
        self.away: list[Block] = []
        receives = [op for op in ops if isinstance(op, Receive)]
        local = [op for op in ops if not isinstance(op, Send | Receive)]
        written = [block for op in receives for block in op.blocks]
        written += [op.target for op in local]
        self.busy = [self.home[block] for block in written]
        self._send([op for op in ops if isinstance(op, Send)], step)
        self._receive(receives, step)
        self._work(local, step)
        self._settle(step)
        self.most_staged = max(self.most_staged, self.staged)
        return step

    def _send(self, ops: Sequence[Send], step: Step) -> None:
        assert isinstance(step, _SharedStep)
        intra_node = [op for op in ops if op.peer in self.reach.intra_node]
        super()._send([op for op in ops if op not in intra_node], step)
        published: dict[tuple[Block, ...], int] = {}
        for op in intra_node:
            if op.blocks not in published:
                published[op.blocks] = self._publish(op.blocks, step)
            number = published[op.blocks]
            self.made.publications[number].readers.append(op.peer)
            self.made.sent.setdefault(op.peer, []).append(number)

    def _publish(self, blocks: tuple[Block, ...], step: _SharedStep) -> int:
        number = len(self.made.publications)
        step.published.append(number)
        runs = self._runs(self.where[block] for block in blocks)
        length = sum(run.length for run in runs)
        zero_copy = (
            len(runs) == 1
            and runs[0].buffer in self.reach.readable
            and length >= self.reach.least
            and not overlaps(runs[0], self.busy)
        )
        if runs and not zero_copy:
            whole = Piece(slot(number), 0, length)
            step.copied += (Move(*pair) for pair in zip(like(whole, runs), runs, strict=True))
            runs = [whole]
        piece = runs[0] if runs else None
        self.made.publications.append(Publication(piece, [], zero_copy, self._tiles(length)))
        return number

    def _tiles(self, length: int) -> int:
        return max(1, -(-length // self.reach.tile))

    def _incoming(
        self, op: Receive, sent: list[Piece], step: Step, landed: list[tuple[Block, Piece]]
    ) -> tuple[Piece | None, list[tuple[Block, Piece]]]:
        if op.peer not in self.reach.intra_node:
            return super()._incoming(op, sent, step, landed)
        assert isinstance(step, _SharedStep)
        receipts = self.made.receipts
        number = len(receipts)
        order = self.received[op.peer]
        self.received[op.peer] += 1
        homes = [self.home[block] for block in op.blocks]
        length = sum(home.length for home in homes)
        receipts.append(Receipt(op.peer, order, length, self._tiles(length)))
        step.awaited.append(number)
        parts = like(Piece(source(number), 0, length), homes)
        if op.side is None:
            # It is copied only when it is needed here: a fold reads it at its sender.
            self.where |= dict(zip(op.blocks, parts, strict=True))
            self.away += op.blocks
        else:
            self._fold(op.blocks, parts, op.side, step)
        return None, []

    def _receive(self, ops: Sequence[Receive], step: Step) -> None:
        super()._receive(ops, step)
        step.receives = [each for each in step.receives if each.peer not in self.reach.intra_node]

    def _settle(self, step: _SharedStep) -> None:
        """Copy the blocks of this round that were left at their senders and are used again."""
        away = [block for block in dict.fromkeys(self.away) if is_remote(self.where[block])]
        for block in away:
            if self.last_use[block] <= self.round:
                del self.where[block]
        self._bring_home([block for block in away if block in self.where], step.after)

    # -- instructions -----------------------------------------------------------------

    def _emit(self, step: _SharedStep) -> None:
        made, at = self.made, len(self.made.instructions)
        into = made.instructions
        into += step.before
        eager = (each for each in step.published if not made.publications[each].zero_copy)
        into += map(WaitForSlot, eager)
        tiled = self._tiled(step)
        passes = tiled.passes
        into += tiled.early
        for tile in range(passes):
            into += self._within(step.copied, tile, passes)
            if not tile and (step.sends or step.receives):
                into.append(Post(tuple(step.sends), tuple(step.receives)))
            for number in step.published:
                each = made.publications[number]
                flags = _flags_of_pass(1 if each.zero_copy else each.tiles, tile, passes)
                into += (Publish(number, flag) for flag in flags)
            for number in step.awaited:
                flags = _flags_of_pass(made.receipts[number].tiles, tile, passes)
                into += (Await(number, flag) for flag in flags)
            if step.sends or step.receives:
                during, later = overlappable(step)
                into += [*during, Complete(), *later]
            else:
                into += self._within(tiled.after, tile, passes)
        into += tiled.late
        made.rounds += [getattr(self, "round", 0) + 1] * (len(into) - at)

    def _tiled(self, step: _SharedStep) -> _Tiled:
        """Divide a step into passes: one, or one for each tile of its messages."""
        made, whole = self.made, _Tiled(1, [], step.after, [])
        tiles = [made.publications[each].tiles for each in step.published]
        tiles += [made.receipts[each].tiles for each in step.awaited]
        most = max(tiles, default=1)
        if most == 1 or step.sends or step.receives:
            return whole
        actions = [*step.copied, *step.after]
        self.anchors = self._anchors(actions)
        local = self._local(actions)
        if local is None or not self._aligned([each for each in actions if each in self.anchors]):
            return whole
        after = [each for each in step.after if each in self.anchors]
        return _Tiled(most, local[0], after, local[1])

    def _local(
        self, actions: Sequence[Move | Combine]
    ) -> tuple[list[Move | Combine], list[Move | Combine]] | None:
        """Return the actions on no message: those to run before the tiles, and those after them.

        None where one can be neither, as it uses what a tile writes, and a tile what it writes.
        """
        early: list[Move | Combine] = []
        late: list[Move | Combine] = []
        for index, action in reversed([*enumerate(actions)]):
            if action in self.anchors:
                continue
            # Rather late: other ranks wait for the first tile.
            if not _conflicts(action, (each for each in actions[index + 1 :] if each not in late)):
                late.insert(0, action)
            elif not _conflicts(action, (each for each in actions[:index] if each in self.anchors)):
                early.insert(0, action)
            else:
                return None
        return early, late

    def _message(self, piece: Piece) -> int:
        """Return the tiles of the message that a piece is part of, 0 for other memory."""
        kind, _, number = piece.buffer.partition(" ")
        if kind == "slot":
            return self.made.publications[int(number)].tiles
        return self.made.receipts[int(number)].tiles if kind == "from" else 0

    def _anchors(self, actions: Sequence[Move | Combine]) -> dict[Move | Combine, tuple[int, int]]:
        """Return where each action begins in a message, and how many tiles that message has.

        One that reads no message may read what an action before it has written of one.
        """
        found: dict[Move | Combine, tuple[int, int]] = {}
        for action in actions:
            part = next((each for each in action if self._message(each)), None)
            if part is not None:
                found[action] = part.start, self._message(part)
                continue
            for before, (start, tiles) in found.items():
                written = before.target
                for piece in action[1:]:
                    if overlaps(piece, [written]):
                        found[action] = piece.start + start - written.start, tiles
                if action in found:
                    break
        return found

    def _aligned(self, actions: Sequence[Move | Combine]) -> bool:
        """Whether a step may run tile by tile: no tile touches memory that another one writes."""
        touched: list[tuple[Piece, tuple[int, int], bool]] = []
        for action in actions:
            start, tiles = self.anchors[action]
            for index, piece in enumerate(action):
                shift = start - piece.start
                if not self._message(piece):
                    touched.append((piece, (shift, tiles), index == 0))
                elif shift or self._message(piece) != tiles:
                    return False
        return not any(
            (first[2] or second[2]) and first[1] != second[1] and overlaps(first[0], [second[0]])
            for index, first in enumerate(touched)
            for second in touched[:index]
        )

    def _within(
        self, actions: Sequence[Move | Combine], tile: int, passes: int
    ) -> Iterator[Move | Combine]:
        """Cut actions down to one tile of their messages; the last one takes the rest."""
        if passes == 1:
            yield from actions
            return
        for action in actions:
            start, tiles = self.anchors[action]
            stop = start + action.target.length
            first = max(tile * self.reach.tile, start)
            last = stop if tile == tiles - 1 else min((tile + 1) * self.reach.tile, stop)
            if tile < tiles and first < last:
                shift = first - start
                yield type(action)(
                    *(Piece(each.buffer, each.start + shift, last - first) for each in action)
                )


def _conflicts(action: Move | Combine, others: Iterable[Move | Combine]) -> bool:
    """Whether an action writes what another one uses, or uses what another one writes."""
    return any(
        overlaps(action.target, each) or any(overlaps(piece, [each.target]) for piece in action)
        for each in others
    )


def _flags_of_pass(own: int, tile: int, passes: int) -> Iterator[int]:
    """Yield the flags of a message of `own` tiles in one pass."""
    if passes == 1:
        yield from range(own)
    elif tile < own:
        yield tile


# -- giving memory back -----------------------------------------------------------------


def _acknowledge(made: SharedProgram) -> None:
    """Acknowledge every receipt after its last use."""
    last: dict[int, int] = {}
    for position, each in enumerate(made.instructions):
        if isinstance(each, Await):
            last[each.receipt] = position
        elif isinstance(each, Move | Combine):
            for piece in filter(is_remote, each):
                last[message_of(piece)] = position
    after: dict[int, list[int]] = {}
    for receipt, position in last.items():
        after.setdefault(position, []).append(receipt)
    _insert(made, {position + 1: [*map(Acknowledge, found)] for position, found in after.items()})


def _wait_for_readers(made: SharedProgram) -> None:
    """Wait for the readers of zero-copy memory before it is written, and at the end."""
    zero_copy = _ZeroCopy()
    wanted: dict[int, list[Hashable]] = {}
    for position, each in enumerate(made.instructions):
        for piece in _written(each):
            if found := zero_copy.take(piece):
                wanted.setdefault(position, []).extend(map(WaitForReaders, found))
        if isinstance(each, Publish):
            publication = made.publications[each.publication]
            if publication.zero_copy and publication.piece:
                zero_copy.add(each.publication, publication.piece)
    wanted.setdefault(len(made.instructions), []).extend(map(WaitForReaders, zero_copy.all()))
    _insert(made, wanted)


class _ZeroCopy:
    """The zero-copy publications of each buffer, ordered by where they start."""

    def __init__(self) -> None:
        self.found: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
        self.longest = 0

    def add(self, number: int, piece: Piece) -> None:
        insort(self.found[piece.buffer], (piece.start, piece.start + piece.length, number))
        self.longest = max(self.longest, piece.length)

    def take(self, written: Piece) -> list[int]:
        """Remove those that share memory with a piece, and return their numbers."""
        found = self.found[written.buffer]
        first = bisect_left(found, (written.start - self.longest,))
        last = bisect_left(found, (written.start + written.length,))
        hit = [each for each in found[first:last] if each[1] > written.start]
        if hit:
            found[first:last] = [each for each in found[first:last] if each not in hit]
        return sorted(number for *_, number in hit)

    def all(self) -> list[int]:
        return sorted(number for found in self.found.values() for *_, number in found)


def _written(each: Instruction) -> list[Piece]:
    if isinstance(each, Move | Combine):
        return [each.target]
    if isinstance(each, Post):
        return [transfer.piece for transfer in each.receives if transfer.piece]
    return []


def _insert(made: SharedProgram, wanted: Mapping[int, Sequence[object]]) -> None:
    """Insert instructions before the given positions."""
    instructions: list[Instruction] = []
    rounds: list[int] = []
    for position in range(len(made.instructions) + 1):
        extra: Sequence[Instruction] = wanted.get(position, ())  # type: ignore[assignment]
        own = made.instructions[position : position + 1]
        number = made.rounds[min(position, len(made.rounds) - 1)] if made.rounds else 1
        instructions += [*extra, *own]
        rounds += [number] * (len(extra) + len(own))
    made.instructions, made.rounds = instructions, rounds
