"""Schedules bound to memory that the ranks of a node map: flags, slots and reads.

Each rank owns a part of every segment. In it lie, for each of its publications, *cells*: a
line for each flag, then the bytes. A flag holds the number of the run that raised it, so
that nothing need be lowered again; acknowledgements hold the last run that was read.

A publication with several cells uses them in turn. Then a rank may write the next one while
others still read the last, and where all readers send something back in every run, it
needs no acknowledgement: that they sent says that they have read.
"""

from __future__ import annotations

import os
import pickle
import platform
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, product
from math import inf
from typing import Any, NamedTuple

import numpy as np

from mpicoll import attach, machine
from mpicoll.backend import Array, Arrays, Memory, Message, Messages, Segments, Thunk, Transport
from mpicoll.contract import ReduceOp
from mpicoll.errors import ScheduleError, Unavailable
from mpicoll.heap import LINE, Area, Heap, lines
from mpicoll.lowering import Combine, Move, Piece
from mpicoll.plan import BoundRound, Turn
from mpicoll.request import itemsize
from mpicoll.sharing import (
    Acknowledge,
    Await,
    Complete,
    Instruction,
    Post,
    Publication,
    Publish,
    Reach,
    Reserve,
    SharedProgram,
    is_remote,
)  # fmt: skip
from mpicoll.waiting import Errand, Patience

SYMMETRIC, CMA = "symmetric", "cma"
"""The transports: through the segments alone; large private arrays by cross-memory attach."""

TILE = 512 * 1024
"""Bytes that are moved at a time: with the copy of the other side, half of a core's cache."""
_STAYS = {False: 64 * 1024, True: 256 * 1024}
"""From how many bytes a message stays in place, by whether ranks share cores."""
ATTACHED = 512 * 1024
"""From how many bytes a message in private memory stays there, if others can attach to it."""
_SMALL = LINE - 16
_FIRST = 4 << 20
_MANY, _FEW_BYTES, _MOST_BYTES = 8, 64 * 1024, 1 << 20
_LETTER = 16 * 1024
_STREAMED = 64 * 1024
_ORDERED = ("x86_64", "amd64", "i686", "s390x")
FENCES = "MPICOLL_FENCES"
SWITCH = "MPICOLL_SYMMETRIC"


class Published(NamedTuple):
    """Where the readers of a publication find it.

    Attributes:
        cells: how many it has, a power of two; each `stride` bytes after the one before.
        flags: bytes between the flags of two tiles, 0 where one says it for all.
        data: offset of the bytes in a cell, or in the segment if they stay in place.
        length: elements of the message.
        process, address: of bytes in private memory.
        acknowledge: for each reader the offset of its word, where it is to write one.
    """

    segment: int
    start: int
    cells: int
    stride: int
    flags: int
    data: int
    length: int
    stays_in: int | None
    process: int
    address: int
    acknowledge: dict[int, int]


class Table(NamedTuple):
    """What one rank tells the others when a plan is bound.

    Attributes:
        lacks: bytes that its memory is short of.
        under_way: the plans of which a started run is not complete.
        sent: for each peer the publications that it is to read, in order.
        expected: for each peer the lengths of what this rank reads from it, in order.
    """

    lacks: int
    under_way: frozenset[int]
    published: list[Published]
    sent: dict[int, list[int]]
    expected: dict[int, list[int]]


@dataclass
class Life:
    """What a plan holds of the group's memory.

    Attributes:
        turn: the number of the run that is under way, or was the last.
        under_way: whether a started run is not complete.
        buffers: what others, and calls that know only addresses, read and write.
    """

    serial: int
    turn: list[int] = field(default_factory=lambda: [0])
    under_way: bool = False
    far: list[Messages] = field(default_factory=list)
    buffers: list[Array] = field(default_factory=list)

    deadline: Callable[[], float] = lambda: inf
    release: Thunk = lambda: None

    def free(self) -> None:
        """Free the messages to other nodes, and give the memory back."""
        for each in self.far:
            each.free()
        self.release()


class Mapped:
    """The shared memory of one group's ranks on this node.

    Attributes:
        near: the ranks of the group on this node, this one included.
        patience: how its ranks wait; its `deadline` may be set.
        attached: why cross-memory attach cannot be used; empty where it can.
    """

    def __init__(
        self, segments: Segments, arrays: Arrays, rank: int, near: Sequence[int], size: int,
        exchange: Callable[[Any], list[Any]],
    ) -> None:  # fmt: skip
        self.segments, self.arrays = segments, arrays
        self.rank, self.near, self.size = rank, tuple(near), size
        self._exchange = exchange
        self.heap = Heap()
        self.memory: dict[int, list[Memory]] = {each: [] for each in near}
        self.words: dict[int, list[Memory]] = {each: [] for each in near}
        self.retired: list[tuple[int, Area]] = []
        self.lent: set[Area] = set()
        self.serial = 0
        self.lives: weakref.WeakValueDictionary[int, Life] = weakref.WeakValueDictionary()
        probe = os.urandom(16)
        self._probe = arrays.empty((16,), "uint8")
        arrays.copier(self._probe, arrays.over(memoryview(bytearray(probe)), "uint8", (16,)))()
        said = exchange((os.getpid(), arrays.span(self._probe)[0], probe, machine.here()))
        self.processes = {each: said[each][0] for each in near}
        refused = [attach.refusal(*said[each][:3]) for each in near if each != rank]
        everyone = exchange(next(filter(None, refused), ""))
        self.attached = next((everyone[each] for each in near if everyone[each]), "")
        crowded = len(near) > machine.usable(said[each][3] for each in near)
        self.patience = Patience(rank, self.processes, crowded, segments.progress)
        self._fence = _fence(segments)
        self.grow(_FIRST)
        self.letters = Letters(self) if len(near) == size else None

    # -- memory -------------------------------------------------------------------------

    def grow(self, nbytes: int) -> None:
        """Map one more segment; collective."""
        for rank, memory in zip(self.near, self.segments.map(nbytes), strict=True):
            self.memory[rank].append(memory)
            self.words[rank].append(memory.cast("B").cast("q"))
        self.heap.add(nbytes)

    def allocate(self, shape: tuple[int, ...], dtype: str, nbytes: int) -> Array:
        """Return an array in this rank's part of a segment; collective."""
        area = self.heap.take(nbytes)
        lacks = max(self._exchange(0 if area else lines(nbytes)))
        if lacks:
            self.grow(max(lacks, _FIRST))
            area = area or self.heap.take(nbytes)
        assert area is not None
        # Every array in it, NumPy's or torch's, keeps this one alive.
        owner = np.frombuffer(self._view(self.rank, *area), np.uint8)
        self.lent.add(area)
        weakref.finalize(owner, self._return, area).atexit = False
        return self.arrays.over(owner.data, dtype, shape)

    def _return(self, area: Area) -> None:
        self.lent.discard(area)
        self.heap.give(area)

    def find(self, array: Array) -> tuple[int, int] | None:
        """Return the segment and offset of an array that lies in this rank's memory."""
        start, stop = self.arrays.span(array)
        for index, (low, high) in enumerate(self._spans()):
            if low <= start and stop <= high:
                return index, start - low
        return None

    def _spans(self) -> list[tuple[int, int]]:
        found = self.memory[self.rank]
        return [self.arrays.span(self.arrays.over(each, "uint8", (len(each),))) for each in found]

    def _view(self, rank: int, segment: int, start: int, length: int) -> Memory:
        return self.memory[rank][segment][start : start + length]

    def close(self) -> None:
        """Release the memory, unless a rank still holds an array in it; collective."""
        self.letters = None
        self.memory.clear()
        self.words.clear()
        self.segments.close(held=bool(self.lent))

    # -- binding ------------------------------------------------------------------------

    def reach(self, transport: str, buffers: dict[str, Array], dtype: str) -> Reach:
        """Say which buffers others read where they are, and from what size."""
        width = itemsize(dtype)
        inside = {name for name, array in buffers.items() if self.find(array)}
        readable, least = inside, _STAYS[self.patience.crowded]
        if transport == CMA:
            readable = set(buffers) | {"scratch"}
            least = least if inside == set(buffers) else ATTACHED
        return Reach(
            frozenset(self.near) - {self.rank}, frozenset(readable), least // width, TILE // width
        )

    def bind(
        self, program: SharedProgram, buffers: dict[str, Array], dtype: str, op: ReduceOp,
        far: Transport, tag: int, *, what: str, meets: bool,
    ) -> tuple[Life, list[Turn]]:  # fmt: skip
        """Bind a program to its buffers; collective. Returns the turns that its runs take.

        Args:
            what: what runs, for an error's text.
            meets: no rank ends a run before all have begun it.

        Raises:
            Unavailable: there is no memory left.
        """
        self.serial += 1
        life = Life(self.serial, deadline=lambda: self.patience.deadline)
        self.lives[life.serial] = life
        binding = Binding(self, program, buffers, dtype, op, far, tag, what, meets, life)
        tables = self._agree(binding)
        _match(tables, self.near, what)
        return life, binding.turns(tables)

    def _agree(self, binding: Binding) -> list[Table]:
        while True:
            before, self.retired = self.retired, []
            under_way = frozenset(each.serial for each in self.lives.values() if each.under_way)
            tables: list[Table] = self._exchange(binding.table(under_way))
            busy = frozenset().union(*(each.under_way for each in tables))
            for serial, area in before:
                if serial in busy:
                    self.retired.append((serial, area))
                else:
                    self.heap.give(area)
            lacks = max(each.lacks for each in tables)
            if not lacks:
                return tables
            self.grow(max(lacks, _FIRST, len(self.memory[self.rank][-1])))

    def retire(self, serial: int, area: Area) -> None:
        """Give an area back once no rank can be reading it; safe to call from a finalizer."""
        self.retired.append((serial, area))

    def fence_for(self, nbytes: int) -> Thunk | None:
        """Return the fence that must stand between `nbytes` and their flag.

        Where the processor keeps stores in order and loads too, none must; but copies of
        many bytes may stream past the cache, out of order.
        """
        return self._fence if self._fence or nbytes < _STREAMED else self.segments.fence


class Binding:
    """One program on its way to bound rounds."""

    def __init__(
        self, group: Mapped, program: SharedProgram, buffers: dict[str, Array], dtype: str,
        op: ReduceOp, far: Transport, tag: int, what: str, meets: bool, life: Life,
    ) -> None:  # fmt: skip
        self.group, self.program, self.dtype, self.op = group, program, dtype, op
        self.far, self.tag, self.what, self.life = far, tag, what, life
        self.arrays, self.width = group.arrays, itemsize(dtype)
        like = next(iter(buffers.values()), None)
        self.buffers = buffers | {
            name: self.arrays.empty((count,), dtype, like)
            for name, count in program.scratch.items()
        }
        life.buffers += self.buffers.values()
        self.talks_back = set(group.near) if meets else {each.peer for each in program.receipts}
        self.area: Area | None = None
        self.published: list[Published] = []
        self.bounce: dict[str, Array] = {}

    # -- what this rank publishes --------------------------------------------------------

    def table(self, under_way: frozenset[int]) -> Table:
        """Lay the publications out, and return what the others must know."""
        cells = [self._cells(each) for each in self.program.publications]
        words = [[rank for rank in each.readers if self._needs_word(each, n, rank)]
                 for each, n in zip(self.program.publications, cells, strict=True)]  # fmt: skip
        needed = sum(
            n * self._stride(each) + len(ranks) * LINE
            for each, n, ranks in zip(self.program.publications, cells, words, strict=True)
        )
        if needed and self.area is None:
            self.area = self.group.heap.take(needed)
            if self.area is None:
                return Table(lines(needed), under_way, [], {}, {})
            segment, start, length = self.area
            back = weakref.finalize(self.life, self.group.retire, self.life.serial, self.area)
            back.atexit = False
            self.life.release = back
            self.group._view(self.group.rank, segment, start, length)[:] = bytes(length)
            for each, n, ranks in zip(self.program.publications, cells, words, strict=True):
                self.published.append(self._publish(each, n, ranks, segment, start))
                start += n * self._stride(each) + len(ranks) * LINE
        expected: dict[int, list[int]] = {}
        for receipt in self.program.receipts:
            expected.setdefault(receipt.peer, []).append(receipt.length)
        return Table(0, under_way, self.published, self.program.sent, expected)

    def _nbytes(self, each: Publication) -> int:
        return each.piece.length * self.width if each.piece else 0

    def _is_small(self, each: Publication) -> bool:
        return not each.stays and each.tiles == 1 and self._nbytes(each) <= _SMALL

    def _stride(self, each: Publication) -> int:
        if self._is_small(each):
            return LINE
        return LINE if each.stays else each.tiles * LINE + lines(self._nbytes(each))

    def _cells(self, each: Publication) -> int:
        if each.stays or each.piece is None:
            return 1
        slots = [self._stride(one) for one in self.program.publications if not one.stays]
        if sum(slots) > _MOST_BYTES:
            return 1
        everyone = {rank for one in self.program.publications for rank in one.readers}
        return 2 if everyone <= self.talks_back or sum(slots) > _FEW_BYTES else _MANY

    def _needs_word(self, each: Publication, cells: int, reader: int) -> bool:
        return each.piece is not None and (cells == 1 or reader not in self.talks_back)

    def _publish(
        self, each: Publication, cells: int, readers: list[int], segment: int, start: int
    ) -> Published:
        stride, small = self._stride(each), self._is_small(each)
        acknowledge = {
            rank: start + cells * stride + index * LINE for index, rank in enumerate(readers)
        }
        data, stays_in, address = 16 if small else each.tiles * LINE, None, 0
        if each.stays:
            assert each.piece is not None
            array = self._view(each.piece)
            found = self.group.find(array)
            stays_in, data = found or (-1, 0)
            address = self.arrays.span(array)[0]
        return Published(
            segment, start, cells, stride, 0 if each.stays else LINE, data,
            each.piece.length if each.piece else 0, stays_in,
            os.getpid(), address, acknowledge,
        )  # fmt: skip

    # -- bound rounds ----------------------------------------------------------------------

    def turns(self, tables: Sequence[Table]) -> list[Turn]:
        """Return what binds the program, once for each turn that its cells can be in."""
        self.incoming = [
            tables[each.peer].published[tables[each.peer].sent[self.group.rank][each.order]]
            for each in self.program.receipts
        ]
        count = max((each.cells for each in [*self.published, *self.incoming]), default=1)
        self.life.far += (
            self._messages(each) for each in self.program.instructions if isinstance(each, Post)
        )
        return [partial(self._rounds, turn) for turn in range(1, count + 1)]

    def _messages(self, each: Post) -> Messages:
        sends, receives = (
            [Message(peer, piece and self._view(piece)) for peer, piece in transfers]
            for transfers in each
        )
        return self.far.messages(sends, receives, self.tag)

    def _rounds(self, turn: int) -> list[BoundRound]:
        """Group what is done and what is waited for into rounds, after counting the run."""
        bound: list[BoundRound] = []
        self.turn, self.far_messages = turn, iter(self.life.far)
        total = max(self.program.rounds, default=1)
        actions: list[Thunk] = [partial(_count, self.life.turn)]
        steps = zip(self.program.instructions, self.program.rounds, strict=True)
        parts = (self._bound(each, number, total) for each, number in steps)
        for waits, group in groupby(chain.from_iterable(parts), lambda part: part[1] is not None):
            found = list(group)
            if not waits:
                actions += (thunk for thunk, _ in found)
                continue
            tests = tuple(test for _, test in found if test is not None)
            messages = Messages((), tuple(thunk for thunk, _ in found), partial(_all, tests), _none)
            bound.append(BoundRound(tuple(actions), messages, ()))
            actions = []
        if actions:
            bound.append(BoundRound(tuple(actions), Messages((), (), _true, _none), ()))
        return bound

    def _bound(self, each: Instruction, number: int, total: int) -> list[Part]:
        """Return the thunks of one instruction, each with a test if it waits."""
        if isinstance(each, Move):
            return [(thunk, None) for thunk in self._move(each)]
        if isinstance(each, Combine):
            return [(thunk, None) for thunk in self._combine(each)]
        if isinstance(each, Publish):
            return [(self._raise(each), None)]
        if isinstance(each, Acknowledge):
            return [(thunk, None) for thunk in self._acknowledge(each.receipt)]
        if isinstance(each, Post):
            self.current = next(self.far_messages)
            return [(thunk, None) for thunk in self.current.start]
        if isinstance(each, Complete):
            *rest, last = self.current.wait
            return [*((thunk, _true) for thunk in rest), (last, self.current.test)]
        if isinstance(each, Await):
            return [self._await(each, number, total)]
        behind = self.published[each.publication].cells if isinstance(each, Reserve) else 0
        published = self.published[each.publication]
        return [
            self._wait(
                self.group.words[self.group.rank][published.segment], word // 8, -behind,
                Errand(self.what, number, total, reader), None,
            )
            for reader, word in published.acknowledge.items()
        ]  # fmt: skip

    def _view(self, piece: Piece) -> Array:
        if piece.buffer.startswith("slot "):
            number = int(piece.buffer.removeprefix("slot "))
            return self._slot(self.group.rank, self.published[number], piece)
        if is_remote(piece):
            number = int(piece.buffer.removeprefix("from "))
            return self._slot(self.program.receipts[number].peer, self.incoming[number], piece)
        return self.buffers[piece.buffer][piece.start : piece.start + piece.length]

    def _slot(self, rank: int, where: Published, piece: Piece) -> Array:
        if where.stays_in is None:
            start = where.start + (self.turn % where.cells) * where.stride + where.data
            segment = where.segment
        else:
            segment, start = where.stays_in, where.data
        start += piece.start * self.width
        memory = self.group._view(rank, segment, start, piece.length * self.width)
        return self.arrays.over(memory, self.dtype, (piece.length,))

    def _attached(self, piece: Piece) -> Published | None:
        """Return where a piece lies, if that is another process's private memory."""
        if not is_remote(piece):
            return None
        found = self.incoming[int(piece.buffer.removeprefix("from "))]
        return found if found.stays_in == -1 else None

    def _fetch(self, piece: Piece, where: Published, target: Array) -> Thunk:
        source = where.address + piece.start * self.width
        start, stop = self.arrays.span(target)
        return attach.reader(where.process, source, start, stop - start)

    def _move(self, each: Move) -> list[Thunk]:
        target = self._view(each.target)
        where = self._attached(each.source)
        if where is not None:
            return [self._fetch(each.source, where, target)]
        return [self.arrays.copier(target, self._view(each.source))]

    def _combine(self, each: Combine) -> list[Thunk]:
        """Fold; what lies in private memory of others is first read into a buffer of ours."""
        thunks: list[Thunk] = []

        def operand(name: str, piece: Piece) -> Array:
            where = self._attached(piece)
            if where is None:
                return self._view(piece)
            if name not in self.bounce or len(self.bounce[name]) < piece.length:
                self.bounce[name] = self.arrays.empty((piece.length,), self.dtype)
            fetched = self.bounce[name][: piece.length]
            thunks.append(self._fetch(piece, where, fetched))
            return fetched

        left, right = operand("left", each.left), operand("right", each.right)
        return [*thunks, self.arrays.folder(self.op, left, right, self._view(each.target))]

    # -- flags -------------------------------------------------------------------------------

    def _flag(self, where: Published, tile: int) -> int:
        return (where.start + (self.turn % where.cells) * where.stride + tile * where.flags) // 8

    def _raise(self, each: Publish) -> Thunk:
        where = self.published[each.publication]
        words = self.group.words[self.group.rank][where.segment]
        nbytes = self._nbytes(self.program.publications[each.publication])
        fence = self.group.fence_for(nbytes)
        return _raising(words, self._flag(where, each.tile), self.life.turn, fence)

    def _await(self, each: Await, number: int, total: int) -> Part:
        where, receipt = self.incoming[each.receipt], self.program.receipts[each.receipt]
        fence = self.group.fence_for(receipt.length * self.width)
        errand = Errand(self.what, number, total, receipt.peer)
        words = self.group.words[receipt.peer][where.segment]
        return self._wait(words, self._flag(where, each.tile), 0, errand, fence)

    def _acknowledge(self, number: int) -> list[Thunk]:
        receipt, where = self.program.receipts[number], self.incoming[number]
        word = where.acknowledge.get(self.group.rank)
        if word is None:
            return []
        words = self.group.words[receipt.peer][where.segment]
        fence = self.group.fence_for(receipt.length * self.width)
        return [_raising(words, word // 8, self.life.turn, fence)]

    def _wait(
        self, words: Memory, index: int, offset: int, errand: Errand, fence: Thunk | None
    ) -> Part:
        """Wait for a word to reach the number of this run, plus `offset`."""
        turn, slow = self.life.turn, self.group.patience.wait

        def wait() -> None:
            if words[index] < turn[0] + offset:
                slow(words, index, turn[0] + offset, errand)

        def wait_and_fence() -> None:
            wait()
            fence()  # type: ignore[misc]

        return (wait_and_fence if fence else wait), lambda: words[index] >= turn[0] + offset


def _match(tables: Sequence[Table], near: Sequence[int], what: str) -> None:
    """Raise ScheduleError, on all ranks alike, where one reads what another does not send."""
    for reader, sender in product(near, near):
        table = tables[sender]
        sent = [table.published[each].length for each in table.sent.get(reader, ())]
        expected = tables[reader].expected.get(sender, [])
        if sent != expected:
            raise ScheduleError(
                f"{what}: rank {sender} sends {sent} elements to rank {reader}, which expects "
                f"{expected}"
            )


Part = tuple[Thunk, Callable[[], bool] | None]
"""What an instruction does; with a test, it waits for something."""


def _raising(words: Memory, index: int, turn: list[int], fence: Thunk | None) -> Thunk:
    def raise_flag() -> None:
        words[index] = turn[0]

    def fence_and_raise() -> None:
        fence()  # type: ignore[misc]
        words[index] = turn[0]

    return fence_and_raise if fence else raise_flag


def _count(turn: list[int]) -> None:
    turn[0] += 1


def _all(tests: Sequence[Callable[[], bool]]) -> bool:
    return all(test() for test in tests)


def _true() -> bool:
    return True


def _none() -> None:
    return None


def _fence(segments: Segments) -> Thunk | None:
    """Return the fence that every flag needs here, None where the processor keeps the order."""
    forced = os.environ.get(FENCES, "").lower() in ("1", "always", "yes")
    ordered = platform.machine().lower() in _ORDERED
    return segments.fence if forced or not ordered else None


class Letters:
    """Small items between all ranks of one node, through two cells of each in turn."""

    def __init__(self, group: Mapped) -> None:
        self.group = group
        area = group.heap.take(2 * (LINE + _LETTER))
        assert area is not None, "it is the first"
        self.start = area.start
        self.turn = 0
        mine = group._view(group.rank, 0, self.start, area.length)
        mine[:] = bytes(area.length)
        group._exchange(None)

    def _round(self, data: bytes) -> list[bytes]:
        """Exchange at most `_LETTER` bytes each."""
        self.turn += 1
        group = self.group
        cell = self.start + self.turn % 2 * (LINE + _LETTER)
        first, body = cell // 8, cell + LINE
        words = group.words[group.rank][0]
        group._view(group.rank, 0, body, len(data))[:] = data
        words[first + 1] = len(data)
        if fence := group.fence_for(len(data)):
            fence()
        words[first] = self.turn
        found = []
        for rank in group.near:
            theirs = group.words[rank][0]
            errand = Errand("agreeing on a call", self.turn, self.turn, rank)
            group.patience.wait(theirs, first, self.turn, errand)
            if fence:
                fence()
            found.append(bytes(group._view(rank, 0, body, theirs[first + 1])))
        return found

    def exchange(self, item: Any) -> list[Any]:
        """Return every rank's item, in rank order."""
        data = pickle.dumps(item)
        head = self._round(len(data).to_bytes(8, "little") + data[: _LETTER - 8])
        whole = [each[8:] for each in head]
        lengths = [int.from_bytes(each[:8], "little") for each in head]
        for start in range(_LETTER - 8, max(lengths), _LETTER):
            parts = self._round(data[start : start + _LETTER])
            whole = [sofar + part for sofar, part in zip(whole, parts, strict=True)]
        return [pickle.loads(each) for each in whole]

    def agree(self, digest: bytes) -> bool:
        """Whether all ranks gave the same few bytes."""
        return all(each == digest for each in self._round(digest))


def open_memory(
    transport: Transport, make: Callable[[Sequence[int]], Segments]
) -> tuple[Mapped | None, str]:
    """Return a group's shared memory, or None and why there is none; collective."""
    if os.environ.get(SWITCH, "").lower() in ("0", "off", "no", "false"):
        return None, f"{SWITCH} turns it off"
    if max(map(len, transport.nodes)) == 1:
        return None, "no two ranks share a node"
    node = next(each for each in transport.nodes if transport.rank in each)
    try:
        memory = Mapped(
            make(node), transport.arrays, transport.rank, node, transport.size,
            transport.exchange,
        )  # fmt: skip
    except Unavailable as error:
        return None, str(error)
    return memory, ""
