"""The memory that the ranks of a node map, and what one group of ranks keeps in it.

Each rank owns a part of every segment: its publications lie there (`mpicoll.memory.slots`), and
the arrays that it allocates.
"""

from __future__ import annotations

import os
import platform
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpicoll.errors import Unavailable
from mpicoll.execution.shared_memory import Binding
from mpicoll.interfaces import Array, Arrays, Memory, Segments, Store, Thunk, Transport
from mpicoll.machine.cores import is_oversubscribed, own_cores
from mpicoll.memory import cma as attach
from mpicoll.memory.allocator import Area, Heap, lines
from mpicoll.memory.mailbox import Mailbox
from mpicoll.memory.slots import Layout, Resources, Table, match
from mpicoll.memory.waiting import WaitPolicy
from mpicoll.notation.contract import ReduceOp
from mpicoll.programs.shared_memory import Reach, SharedProgram
from mpicoll.runtime.arguments import itemsize
from mpicoll.runtime.plan import Turn

SYMMETRIC, CMA = "symmetric", "cma"
"""The transports: through the segments alone; large private arrays by cross-memory attach."""

TILE = 512 * 1024
"""Bytes that are moved at a time: with the copy of the other side, half of a core's cache."""
_STAYS = {False: 64 * 1024, True: 256 * 1024}
"""From how many bytes a message stays in place, by whether ranks share cores."""
ATTACHED = 512 * 1024
"""From how many bytes a message in private memory stays there, over the transport ``cma``."""
PREFER_ATTACH = 32 << 20
"""From how many bytes of a vector or row ``cma`` is the default: below, two copies that stay in
the cache beat one by the kernel."""
_FIRST = 4 << 20
_STREAMED = 64 * 1024
_ORDERED = ("x86_64", "amd64", "i686", "s390x")
FENCES = "MPICOLL_FENCES"
SWITCH = "MPICOLL_SYMMETRIC"


class SharedMemory:
    """The shared memory of one group's ranks on this node.

    Attributes:
        near: the ranks of the group on this node, this one included.
        patience: how its ranks wait; its `deadline` may be set.
        maps: False, as private memory of other ranks can only be fetched.
        unattached: why cross-memory attach cannot be used; empty where it can.
    """

    maps = False

    def __init__(
        self, segments: Segments, arrays: Arrays, rank: int, near: Sequence[int], size: int,
        exchange: Callable[[Any], list[Any]],
    ) -> None:  # fmt: skip
        self.segments, self.arrays = segments, arrays
        self.rank, self.near, self.size = rank, tuple(near), size
        self.others = frozenset(near) - {rank}
        self.exchange = exchange
        self.heap, self.largest = Heap(), 0
        self.memory: dict[int, list[Memory]] = {each: [] for each in near}
        self.words: dict[int, list[Memory]] = {each: [] for each in near}
        self.retired: list[tuple[int, Heap, Area]] = []
        self.lent: set[Area] = set()
        self.serial = 0
        self.lives: weakref.WeakValueDictionary[int, Resources] = weakref.WeakValueDictionary()
        probe = os.urandom(16)
        self._probe = arrays.empty((16,), "uint8")
        arrays.copier(self._probe, arrays.over(memoryview(bytearray(probe)), "uint8", (16,)))()
        said = exchange((os.getpid(), arrays.span(self._probe)[0], probe, own_cores()))
        self.processes = {each: said[each][0] for each in near}
        refused = [attach.refusal(*said[each][:3]) for each in near if each != rank]
        everyone = exchange(next(filter(None, refused), ""))
        self.unattached = next(filter(None, everyone), "")
        oversubscribed = is_oversubscribed([said[each][3] for each in near])
        self.wait_policy = WaitPolicy(rank, self.processes, oversubscribed, segments.progress)
        self._fence = _fence(segments)
        self.grow(_FIRST)
        self.mailbox = Mailbox(self) if len(near) == size else None

    # -- memory -------------------------------------------------------------------------

    def grow(self, nbytes: int) -> None:
        """Map one more segment; collective."""
        for rank, memory in zip(self.near, self.segments.map(nbytes), strict=True):
            self.memory[rank].append(memory)
            self.words[rank].append(memory.cast("B").cast("q"))
        self.heap.add(nbytes)
        self.largest = max(self.largest, nbytes)

    def allocate(self, shape: tuple[int, ...], dtype: str, nbytes: int) -> Array:
        """Return an array in this rank's part of a segment; collective."""
        area = self.heap.take(nbytes)
        lacks = max(self.exchange(0 if area else lines(nbytes)))
        if lacks:
            self.grow(max(lacks, _FIRST))
            area = area or self.heap.take(nbytes)
        assert area is not None
        # Every array in it, NumPy's or torch's, keeps this one alive.
        owner = np.frombuffer(self.view(self.rank, *area), np.uint8)
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

    def view(self, rank: int, segment: int, start: int, length: int) -> Memory:
        """Return a part of a rank's memory."""
        return self.memory[rank][segment][start : start + length]

    def close(self) -> None:
        """Release the memory, unless a rank holds an array or a plan in it; collective."""
        held = bool(self.lent) or any(not each.freed for each in self.lives.values())
        self.mailbox = None
        if not held:
            self.memory.clear()
            self.words.clear()
        self.segments.close(held=held)

    # -- binding ------------------------------------------------------------------------

    def reach(self, transport: str, buffers: dict[str, Array], dtype: str) -> Reach:
        """Say which buffers others read where they are, and from what size."""
        width = itemsize(dtype)
        inside = {name for name, array in buffers.items() if self.find(array)}
        readable, least = inside, _STAYS[self.wait_policy.oversubscribed]
        if transport == CMA:
            readable = set(buffers) | {"scratch"}
            least = least if inside == set(buffers) else ATTACHED
        return Reach(self.others, frozenset(readable), least // width, TILE // width)

    def bind(
        self, program: SharedProgram, buffers: dict[str, Array], dtype: str, op: ReduceOp,
        far: Transport, tag: int, *, what: str, meets: bool, store: Store | None = None,
    ) -> tuple[Resources, list[Turn]]:  # fmt: skip
        """Bind a program to its buffers; collective. Returns the turns that its runs take.

        Args:
            store: where its bytes lie; beside the flags by default.
            what: what runs, for an error's text.
            meets: no rank ends a run before all have begun it.

        Raises:
            Unavailable: there is no memory left.
        """
        self.serial += 1
        resources = Resources(self.serial, deadline=lambda: self.wait_policy.deadline)
        self.lives[resources.serial] = resources
        like = next(iter(buffers.values()), None)
        scratch = program.scratch.items()
        buffers |= {name: self.arrays.empty((n,), dtype, like) for name, n in scratch}
        resources.buffers += buffers.values()
        layout = Layout(self, store or self, program, buffers, dtype, meets, resources)
        tables = self._agree(layout)
        match(tables, self.near, what)
        binding = Binding(self, program, layout, tables, dtype, op, what, resources)
        return resources, binding.turns(far, tag)

    def _agree(self, layout: Layout) -> list[Table]:
        """Exchange tables, growing the memory until all have room; free what nobody reads."""
        while True:
            before, self.retired = self.retired, []
            under_way = frozenset(each.serial for each in self.lives.values() if each.under_way)
            tables: list[Table] = self.exchange(layout.table(under_way))
            busy = frozenset().union(*(each.under_way for each in tables))
            for serial, heap, area in before:
                if serial in busy:
                    self.retired.append((serial, heap, area))
                else:
                    heap.give(area)
            words = max(each.lacks[0] for each in tables)
            apart = max(each.lacks[1] for each in tables)
            if words:
                self.grow(max(words, _FIRST, self.largest))
            if apart:
                layout.store.grow(max(apart, _FIRST))
            if not words and not apart:
                return tables

    def retire(self, serial: int, heap: Heap, area: Area) -> None:
        """Give an area back once no rank can be reading it; safe to call from a finalizer."""
        self.retired.append((serial, heap, area))

    # -- as a store ---------------------------------------------------------------------

    def array(self, rank: int, segment: int, start: int, dtype: str, count: int) -> Array:
        """Return an array over a part of a rank's memory."""
        memory = self.view(rank, segment, start, count * itemsize(dtype))
        return self.arrays.over(memory, dtype, (count,))

    def locate(self, array: Array) -> tuple[int, int]:
        """Return this process, and the address of an array."""
        return os.getpid(), self.arrays.span(array)[0]

    def foreign(self, where: Any, start: int, dtype: str, count: int) -> tuple[Array, object]:
        """Refuse: a call of the system fetches from another process's memory, but maps none."""
        raise Unavailable(f"the memory of process {where[0]} can be fetched only")

    def release(self, nbytes: int) -> Thunk | None:
        """Return the fence that must stand between `nbytes` and their flag.

        Where the processor keeps stores in order and loads too, none must; but copies of
        many bytes may stream past the cache, out of order.
        """
        return self._fence if self._fence or nbytes < _STREAMED else self.segments.fence

    acquire = release


def _fence(segments: Segments) -> Thunk | None:
    """Return the fence that every flag needs here, None where the processor keeps the order."""
    forced = os.environ.get(FENCES, "").lower() in ("1", "always", "yes")
    ordered = platform.machine().lower() in _ORDERED
    return segments.fence if forced or not ordered else None


def open_memory(
    transport: Transport, apart: str, make: Callable[[Sequence[int]], Segments]
) -> tuple[SharedMemory | None, str]:
    """Return a group's shared memory, or None and why there is none; collective.

    Args:
        apart: why ranks of a node cannot share memory, nothing where they can.
    """
    if os.environ.get(SWITCH, "").lower() in ("0", "off", "no", "false"):
        return None, f"{SWITCH} turns it off"
    if max(map(len, transport.nodes)) == 1:
        return None, "no two ranks share a node"
    if apart:
        return None, apart
    node = next(each for each in transport.nodes if transport.rank in each)
    try:
        memory = SharedMemory(
            make(node), transport.arrays, transport.rank, node, transport.size,
            transport.exchange,
        )  # fmt: skip
    except Unavailable as error:
        return None, str(error)
    return memory, ""
