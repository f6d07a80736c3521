"""Where a rank's publications lie in its shared memory, and how it tells the others.

For each publication there are *cells*: a line for each flag, then the bytes, unless these stay
in place. A flag holds the number of the run that raised it, so that nothing need be lowered
again; acknowledgements hold the last run that was read.

A publication with several cells uses them in turn. Then a rank may write the next one while
others still read the last, and where all readers send something back in every run, it
needs no acknowledgement: that they sent says that they have read.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from mpicoll.errors import ScheduleError
from mpicoll.interfaces import Array, Messages, Store, Thunk
from mpicoll.memory.allocator import LINE, Area, Heap, lines
from mpicoll.programs.messages import Piece
from mpicoll.programs.shared_memory import Publication, SharedProgram
from mpicoll.runtime.arguments import itemsize

if TYPE_CHECKING:
    from mpicoll.memory.segments import SharedMemory

_SMALL_DATA = 16
_SMALL = LINE - _SMALL_DATA
_MANY = 4
_FEW_BYTES, _MOST_BYTES = 64 * 1024, 1 << 20
"""Above these, slots have no more than two cells, and one."""


class Published(NamedTuple):
    """Where the readers of a publication find it.

    Attributes:
        cells: how many it has, a power of two; each `stride` bytes after the one before.
        flags: bytes between the flags of two tiles, 0 where one says it for all.
        length: elements of the message.
        data: where the bytes are in the store.
        acknowledge: for each reader the offset of its word, where it is to write one.
    """

    segment: int
    start: int
    cells: int
    stride: int
    flags: int
    length: int
    data: Slots | Private
    acknowledge: dict[int, int]


class Slots(NamedTuple):
    """Bytes in a segment of a store: those of each cell `stride` after those of the one before."""

    segment: int
    start: int
    stride: int


class Private(NamedTuple):
    """Bytes in an array of a rank's own, as its store tells the others where."""

    where: Any


class Table(NamedTuple):
    """What one rank tells the others when a plan is bound.

    Attributes:
        lacks: bytes that its words are short of, and bytes that its store is.
        under_way: the plans of which a started run is not complete.
        sent: for each peer the publications that it is to read, in order.
        expected: for each peer the lengths of what this rank reads from it, in order.
    """

    lacks: tuple[int, int]
    under_way: frozenset[int]
    published: list[Published]
    sent: dict[int, list[int]]
    expected: dict[int, list[int]]


@dataclass
class Resources:
    """What a plan holds of the group's memory.

    Attributes:
        turn: the number of the run that is under way, or was the last.
        under_way: whether a started run is not complete.
        far: its messages to other nodes.
        buffers: what others, and calls that know only addresses, read and write.
        deadline: returns after how many seconds a rank gives up.
        releases: give its shared memory back.
        opened: memory of other processes that it reads.
    """

    serial: int
    turn: list[int] = field(default_factory=lambda: [0])
    under_way: bool = False
    far: list[Messages] = field(default_factory=list)
    buffers: list[Array] = field(default_factory=list)
    deadline: Callable[[], float] = lambda: inf
    releases: list[Thunk] = field(default_factory=list)
    opened: list[object] = field(default_factory=list)
    freed: bool = False

    def free(self) -> None:
        """Free the messages to other nodes, and give the memory back."""
        self.freed = True
        for each in self.far:
            each.free()
        for release in self.releases:
            release()
        self.opened.clear()


class Layout:
    """One program's publications, on their way into memory.

    Flags lie in the words of the group. Bytes that are copied lie behind their flags where
    these are in the same store, and in an area of their own where they are not.
    """

    def __init__(
        self, group: SharedMemory, store: Store, program: SharedProgram, buffers: dict[str, Array],
        dtype: str, meets: bool, resources: Resources,
    ) -> None:  # fmt: skip
        self.group, self.store, self.program = group, store, program
        self.buffers, self.resources = buffers, resources
        self.apart = store is not group
        self.width = itemsize(dtype)
        self.talks_back = set(group.near) if meets else {each.peer for each in program.receipts}
        self.area: Area | None = None
        self.apart_area: Area | None = None
        self.published: list[Published] = []
        self.slot_cells = self._slot_cells()

    def table(self, under_way: frozenset[int]) -> Table:
        """Lay the publications out, and return what the others must know."""
        lacks = self._take()
        if any(lacks):
            return Table(lacks, under_way, [], {}, {})
        if self.area is not None and not self.published:
            self._publish_all(self.area)
        expected: dict[int, list[int]] = {}
        for receipt in self.program.receipts:
            expected.setdefault(receipt.peer, []).append(receipt.length)
        return Table((0, 0), under_way, self.published, self.program.sent, expected)

    def _take(self) -> tuple[int, int]:
        """Take memory, and return what is lacking of words and of the store."""
        publications = self.program.publications
        needed = sum(map(self._needs, publications))
        apart = sum(self._cells(each) * self._needs_apart(each) for each in publications)
        if needed and self.area is None:
            self.area = self._kept(self.group.heap, needed)
        if apart and self.apart_area is None:
            self.apart_area = self._kept(self.store.heap, apart)
        return (
            lines(needed) if needed and self.area is None else 0,
            lines(apart) if apart and self.apart_area is None else 0,
        )

    def _kept(self, heap: Heap, needed: int) -> Area | None:
        """Take an area that comes back when the plan is freed, or gone."""
        area = heap.take(needed)
        if area is not None:
            back = weakref.finalize(
                self.resources, self.group.retire, self.resources.serial, heap, area
            )
            back.atexit = False
            self.resources.releases.append(back)
        return area

    def _publish_all(self, area: Area) -> None:
        segment, start, length = area
        self.group.view(self.group.rank, segment, start, length)[:] = bytes(length)
        apart = self.apart_area.start if self.apart_area else 0
        for each in self.program.publications:
            self.published.append(self._publish(each, segment, start, apart))
            start += self._needs(each)
            apart += self._cells(each) * self._needs_apart(each)

    def _slot_cells(self) -> int:
        """Return how many cells each slot has: fewer the more memory they take."""
        publications = [each for each in self.program.publications if not each.stays]
        nbytes = sum(self._stride(each) + self._needs_apart(each) for each in publications)
        if nbytes > _MOST_BYTES:
            return 1
        readers = {rank for each in self.program.publications for rank in each.readers}
        return 2 if readers <= self.talks_back or nbytes > _FEW_BYTES else _MANY

    def _cells(self, each: Publication) -> int:
        return 1 if each.stays or each.piece is None else self.slot_cells

    def _needs(self, each: Publication) -> int:
        """Return the bytes of a publication: its cells, and words for its readers."""
        return self._cells(each) * self._stride(each) + len(self._with_word(each)) * LINE

    def _needs_apart(self, each: Publication) -> int:
        """Return the bytes that a cell has in a store of its own."""
        nbytes = self._nbytes(each)
        return lines(nbytes) if self.apart and nbytes and not each.stays else 0

    def _nbytes(self, each: Publication) -> int:
        return each.piece.length * self.width if each.piece else 0

    def _is_small(self, each: Publication) -> bool:
        """Whether the bytes fit into the line of the flag."""
        small = not each.stays and each.tiles == 1 and self._nbytes(each) <= _SMALL
        return small and not self.apart

    def _stride(self, each: Publication) -> int:
        if each.stays or self._is_small(each):
            return LINE
        return each.tiles * LINE + (0 if self.apart else lines(self._nbytes(each)))

    def _with_word(self, each: Publication) -> list[int]:
        """Return the readers that must acknowledge."""
        if each.piece is None:
            return []
        alone = self._cells(each) == 1
        return [rank for rank in each.readers if alone or rank not in self.talks_back]

    def _publish(self, each: Publication, segment: int, start: int, apart: int) -> Published:
        cells, stride = self._cells(each), self._stride(each)
        words = start + cells * stride
        acknowledge = {
            rank: words + index * LINE for index, rank in enumerate(self._with_word(each))
        }
        return Published(
            segment, start, cells, stride, 0 if each.stays else LINE,
            each.piece.length if each.piece else 0, self._data(each, segment, start, apart),
            acknowledge,
        )  # fmt: skip

    def _data(self, each: Publication, segment: int, start: int, apart: int) -> Slots | Private:
        if each.stays:
            assert each.piece is not None
            array = view(self.buffers, each.piece)
            found = self.store.find(array)
            return Slots(*found, 0) if found else Private(self.store.locate(array))
        if self.apart:
            within = self.apart_area.segment if self.apart_area else 0
            return Slots(within, apart, self._needs_apart(each))
        data = _SMALL_DATA if self._is_small(each) else each.tiles * LINE
        return Slots(segment, start + data, self._stride(each))


def view(buffers: Mapping[str, Array], piece: Piece) -> Array:
    """Return a piece of one of a program's own buffers."""
    return buffers[piece.buffer][piece.start : piece.start + piece.length]


def match(tables: Sequence[Table], near: Sequence[int], what: str) -> None:
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
