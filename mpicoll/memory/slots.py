"""Lay out a rank's publications in its shared memory.

Each publication has one or more *slots*: a cache line for each flag, then the bytes of the message.
A zero-copy publication has no bytes. A flag holds the sequence number of the run that raised it, so
flags are never lowered. An acknowledgement holds the sequence number of the last run that was read.

A publication of depth 2 or more uses its slots in turn: its rank writes the next slot while other
ranks read the last. If all readers also send to this rank in every run, they need not acknowledge:
their messages show that they have read.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf
from typing import Any, NamedTuple

import numpy as np

from mpicoll.backend import (
    Array,
    GpuStore,
    Location,
    Messages,
    SharedMemory,
    Store,
    Thunk,
)
from mpicoll.errors import ScheduleError, Unavailable
from mpicoll.lowering.instructions import Post, Publication, SharedProgram
from mpicoll.lowering.messages import Buffer, view
from mpicoll.memory.allocator import LINE, Area, FirstFit, whole_lines
from mpicoll.notation.elements import itemsize
from mpicoll.tuning import FEW_SLOTS, RING_BYTES, RING_MESSAGE

_SMALL_DATA = 16
_SMALL = LINE - _SMALL_DATA
UNBOUND = 0
"""Instead of the address of a private array, which a run states beside the flag of the array."""
_ROOM, _SHARE = 256 << 20, 8 << 20
"""They may until the ranks of a node hold so many bytes together, and each the smaller number."""


class Published(NamedTuple):
    """The location of a publication, for its readers.

    Attributes:
        depth: how many slots it has, a power of two; each `stride` bytes after the one before.
        flags: bytes between the flags of two tiles, 0 where all tiles have one flag.
        length: elements of the message.
        data: where the bytes are in the store, None where they are in a private array.
        private: the location of that array.
        acknowledge: for each reader that must acknowledge, the offset of its word.
        window: elements of a tile where each has a slot in turn, 0 where a slot holds the message.
    """

    segment: int
    start: int
    depth: int
    stride: int
    flags: int
    length: int
    data: Slots | None
    private: Location | None
    acknowledge: dict[int, int]
    window: int = 0

    @property
    def is_zero_copy(self) -> bool:
        """Whether its readers read an array of the sender's, and no slot."""
        return self.private is not None or (self.data is not None and not self.data.stride)

    @property
    def tiles(self) -> int:
        """How many numbers a run counts on: its tiles, up to a whole number of windows."""
        if not self.window:
            return 1
        return (self.last_tile // self.depth + 1) * self.depth

    @property
    def last_tile(self) -> int:
        """The last tile of a message through a window, counted from 0."""
        return -(-self.length // self.window) - 1 if self.window else 0


class Slots(NamedTuple):
    """Bytes in a segment of a store: those of each slot `stride` after those of the one before."""

    segment: int
    start: int
    stride: int


class LayoutTable(NamedTuple):
    """The layout of one rank's publications, exchanged when a plan is bound.

    Attributes:
        lacks: bytes that are lacking in the shared memory, and in the store.
        under_way: the plans of which a started run is not complete.
        sent: for each peer the publications that it is to read, in order.
        expected: for each peer the lengths of the messages from it, in order.
        failure: why this rank cannot take part; empty where it can.
        posts: its program has messages of the library.
    """

    lacks: tuple[int, int]
    under_way: frozenset[int]
    published: list[Published]
    sent: dict[int, list[int]]
    expected: dict[int, list[int]]
    failure: str = ""
    posts: bool = False


@dataclass
class SharedResources:
    """The shared memory, buffers and messages that a plan holds.

    Attributes:
        number: of the plan in its shared memory.
        under_way: whether a started run is not complete.
        failed: whether a run has failed in its middle.
        leave: tells the other ranks that this one has left its runs, and why.
        inter_node: its messages of the library.
        buffers: arrays that other ranks, or calls that know only addresses, read and write.
        deadline: returns the seconds after which a rank gives up.
        releases: give its shared memory back.
        opened: memory of other processes that it reads.
    """

    number: int = 0
    under_way: bool = False
    failed: bool = False
    leave: Callable[[int, BaseException], None] = lambda number, error: None
    inter_node: list[Messages] = field(default_factory=list)
    buffers: list[Array] = field(default_factory=list)
    deadline: Callable[[], float] = lambda: inf
    releases: list[Thunk] = field(default_factory=list)
    opened: list[object] = field(default_factory=list)
    freed: bool = False

    def fail(self, error: BaseException) -> None:
        if not self.failed:
            self.failed = True
            self.leave(self.number, error)

    def free(self) -> None:
        """Free the messages to other nodes, and give the memory back."""
        self.freed = True
        for messages in self.inter_node:
            messages.free()
        for release in self.releases:
            release()
        self.opened.clear()


class Layout:
    """The layout of one program's publications.

    Flags lie in the shared memory of the node. Eager bytes follow their flags where the store is
    that same memory, and lie in an area of their own where it is another one, as on GPUs.

    Attributes:
        gpu_store: memory on GPUs; None where the store is the memory of the flags.
        words: the store, where streams may wait for its flags; else None. Then each reader of a
            publication has a word, and a line of the area is for the progress of the runs.
        progress: the segment and the offset of that line.
        by_streams: streams of GPUs wait for its flags and raise them, on all ranks.
        circulates: whether more slots cost nothing but their memory.
    """

    def __init__(
        self, memory: SharedMemory, gpu_store: GpuStore | None, program: SharedProgram,
        buffers: dict[Buffer, Array], dtype: str, meets: bool, resources: SharedResources, *,
        circulates: bool,
    ) -> None:  # fmt: skip
        self.memory, self.gpu_store, self.program = memory, gpu_store, program
        self.store: Store = gpu_store or memory
        self.buffers, self.resources = buffers, resources
        self.words: Any = gpu_store if gpu_store and gpu_store.orders else None
        self.progress, self.by_streams = (0, 0), False
        self.width = itemsize(dtype)
        self.replies = (
            set(memory.intra_node) if meets else {receipt.peer for receipt in program.receipts}
        )
        self.area: Area | None = None
        self.store_area: Area | None = None
        self.published: list[Published] = []
        room = max(_SHARE, _ROOM // len(memory.intra_node))
        self.circulates = circulates and memory.allocator.used < room
        self.depth = self._eager_depth()

    def table(self, under_way: frozenset[int], failure: str = "") -> LayoutTable:
        """Return the layout for the other ranks, or the memory that is lacking for it."""
        try:
            lacks = (0, 0) if failure else self._take()
            if any(lacks) or failure:
                return LayoutTable(lacks, under_way, [], {}, {}, failure)
            if self.area is not None and not self.published:
                self._publish_all(self.area)
        except Unavailable as error:
            return self.table(under_way, f"rank {self.memory.rank}: {error}")
        expected: dict[int, list[int]] = {}
        for receipt in self.program.receipts:
            expected.setdefault(receipt.peer, []).append(receipt.length)
        posts = any(isinstance(instruction, Post) for instruction in self.program.instructions)
        sent = self.program.sent
        return LayoutTable((0, 0), under_way, self.published, sent, expected, posts=posts)

    def _take(self) -> tuple[int, int]:
        """Take memory, and return the bytes that are lacking of it and of the store."""
        publications = self.program.publications
        needed = sum(map(self._needs, publications)) + (LINE if self.words else 0)
        in_store = sum(
            self._depth(message) * self._store_bytes(message) for message in publications
        )
        self.area = self.area or self._take_area(self.memory.allocator, needed)
        self.store_area = self.store_area or self._take_area(self.store.allocator, in_store)
        return (
            whole_lines(needed) if needed and self.area is None else 0,
            whole_lines(in_store) if in_store and self.store_area is None else 0,
        )

    def _take_area(self, allocator: FirstFit, needed: int) -> Area | None:
        """Take an area that is given back when the plan is freed or collected."""
        area = allocator.take(needed) if needed else None
        if area is not None:
            back = weakref.finalize(
                self.resources, self.memory.retire, self.resources.number, allocator, area
            )
            back.atexit = False
            self.resources.releases.append(back)
        return area

    def _publish_all(self, area: Area) -> None:
        segment, start, length = area
        flags = self.memory.view(self.memory.rank, segment, start, length)
        np.frombuffer(flags, np.uint8).fill(0)
        store_start = self.store_area.start if self.store_area else 0
        for message in self.program.publications:
            self.published.append(self._publish(message, segment, start, store_start))
            start += self._needs(message)
            store_start += self._depth(message) * self._store_bytes(message)
        self.progress = segment, start

    def _eager_depth(self) -> int:
        """Return the depth of eager publications: less the more memory they take."""
        publications = [
            message
            for message in self.program.publications
            if not message.zero_copy and not message.window
        ]
        nbytes = sum(self._stride(message) + self._store_bytes(message) for message in publications)
        if self.words or nbytes > RING_BYTES // 2:
            return 1
        if nbytes < RING_MESSAGE:
            return FEW_SLOTS
        slots = RING_BYTES // nbytes if self.circulates else 0
        return 1 << max(2, slots).bit_length() - 1

    def _depth(self, message: Publication) -> int:
        if message.window:
            return message.window.slots
        return 1 if message.zero_copy or message.piece is None else self.depth

    def _needs(self, message: Publication) -> int:
        """Return the bytes of a publication: its slots, and words for its readers."""
        return (
            self._depth(message) * self._stride(message) + len(self._acknowledging(message)) * LINE
        )

    def _store_bytes(self, message: Publication) -> int:
        """Return the bytes that a slot takes in the store, where that is another memory."""
        nbytes = self._nbytes(message)
        return whole_lines(nbytes) if self.gpu_store and nbytes and not message.zero_copy else 0

    def _nbytes(self, message: Publication) -> int:
        return message.piece.length * self.width if message.piece else 0

    def _is_small(self, message: Publication) -> bool:
        """Whether the bytes fit into the line of the flag."""
        small = not message.zero_copy and message.tiles == 1 and self._nbytes(message) <= _SMALL
        return small and not self.gpu_store

    def _stride(self, message: Publication) -> int:
        if message.is_whole or self._is_small(message):
            return LINE
        if message.window:
            return LINE + whole_lines(message.window.tile * self.width)
        return message.tiles * LINE + (0 if self.gpu_store else whole_lines(self._nbytes(message)))

    def _acknowledging(self, message: Publication) -> list[int]:
        """Return the readers that must acknowledge."""
        if self.words:
            return message.readers
        if message.piece is None:
            return []
        has_one_slot = self._depth(message) == 1 or bool(message.window)
        return [rank for rank in message.readers if has_one_slot or rank not in self.replies]

    def _publish(
        self, message: Publication, segment: int, start: int, store_start: int
    ) -> Published:
        depth, stride = self._depth(message), self._stride(message)
        words = start + depth * stride
        acknowledge = {
            rank: words + index * LINE for index, rank in enumerate(self._acknowledging(message))
        }
        return Published(
            segment, start, depth, stride, 0 if message.is_whole or message.window else LINE,
            message.piece.length if message.piece else 0,
            *self._data(message, segment, start, store_start), acknowledge,
            message.window.tile if message.window else 0,
        )  # fmt: skip

    def _data(
        self, message: Publication, segment: int, start: int, store_start: int
    ) -> tuple[Slots | None, Location | None]:
        if message.zero_copy:
            assert message.piece is not None
            if message.piece.buffer not in self.buffers:
                return None, (os.getpid(), UNBOUND)
            array = view(self.buffers, message.piece)
            place = self.store.find(array)
            return (Slots(*place, 0), None) if place else (None, self.store.locate(array))
        if self.gpu_store:
            within = self.store_area.segment if self.store_area else 0
            return Slots(within, store_start, self._store_bytes(message)), None
        flags = 1 if message.window else message.tiles
        data = _SMALL_DATA if self._is_small(message) else flags * LINE
        return Slots(segment, start + data, self._stride(message)), None


def match(tables: Sequence[LayoutTable], ranks: Sequence[int], label: str) -> None:
    """Raise ScheduleError on all ranks where one expects other messages than another sends."""
    for reader, sender in product(ranks, ranks):
        table = tables[sender]
        sent = [table.published[number].length for number in table.sent.get(reader, ())]
        expected = tables[reader].expected.get(sender, [])
        if sent != expected:
            raise ScheduleError(
                f"{label}: rank {sender} sends {sent} elements to rank {reader}, which expects "
                f"{expected}"
            )
