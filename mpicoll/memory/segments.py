"""Map memory that the ranks of a node share, for one group of ranks.

Each rank owns a part of every segment, where its publications (`mpicoll.memory.slots`) and the
arrays that it allocates lie.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpicoll.backend import (
    CMA,
    SYMMETRIC,
    Array,
    Arrays,
    Location,
    Memory,
    Nodes,
    Thunk,
    WaitPolicy,
)
from mpicoll.errors import FREED, CollectiveError, Unavailable, first_error, on_all
from mpicoll.lowering.instructions import Reach
from mpicoll.lowering.messages import INPUT, OUTPUT, SCRATCH, Buffer
from mpicoll.machine.forks import FORKED
from mpicoll.machine.nodes import Cores, is_oversubscribed, own_cores
from mpicoll.machine.settings import default_deadline
from mpicoll.memory import cma
from mpicoll.memory.allocator import Area, FirstFit, whole_lines
from mpicoll.memory.files import SWITCH, Files, Segment, is_switched_off
from mpicoll.memory.mailbox import Mailbox
from mpicoll.memory.notes import Notes
from mpicoll.memory.slots import SharedResources
from mpicoll.memory.waiting import ProcessWaits
from mpicoll.notation.elements import itemsize
from mpicoll.tuning import FETCHED_ROW, FETCHED_TILE, TILE

FIRST = 15 << 16
"""Bytes of the first segment. A later one has a power of two times as many."""


class _Peer(NamedTuple):
    """A rank's process, the address and content of some of its private memory, and its cores."""

    process: int
    address: int
    content: bytes
    cores: Cores


Retired = tuple[int, FirstFit, Area]
"""An area that the plan of this number no longer needs."""


class MappedMemory:
    """The shared memory of one group's ranks on this node.

    Attributes:
        wait_policy: how its ranks wait; its `deadline` may be set.
        processes: the process of each rank of this node.
        leave: tells the other ranks that this one has left an operation, and why.
        releases: whether the memory of free areas is given back to the system.
    """

    def __init__(
        self, arrays: Arrays, rank: int, intra_node: Sequence[int], size: int,
        exchange: Callable[..., list[Any]], progress: Callable[[], object],
    ) -> None:  # fmt: skip
        self.arrays, self.files = arrays, Files(exchange, rank, intra_node)
        self.rank, self.intra_node, self.size = rank, tuple(intra_node), size
        self.others = frozenset(intra_node) - {rank}
        self.exchange = exchange
        self.allocator = FirstFit(self._reserve, self._release)
        self.segments: list[Segment] = []
        self.releases = True
        self.memory: dict[int, list[Memory]] = {member: [] for member in intra_node}
        self.words: dict[int, list[Memory]] = {member: [] for member in intra_node}
        self.retired: list[Retired] = []
        self.before_reuse: list[Thunk] = []
        self.user_areas: set[Area] = set()
        self.entered = 0
        self.plans = weakref.WeakValueDictionary[int, SharedResources]()
        probe = os.urandom(16)
        self._probe = arrays.empty((16,), "uint8")
        arrays.copier(self._probe, arrays.over(memoryview(bytearray(probe)), "uint8", (16,)))()
        peer = _Peer(os.getpid(), arrays.span(self._probe)[0], probe, own_cores())
        peers: list[_Peer] = exchange(peer, _Peer)
        self.processes = {member: peers[member].process for member in intra_node}
        refused = [cma.refusal(*peers[member][:3]) for member in intra_node if member != rank]
        everyone = exchange(first_error(filter(None, refused)))
        self.no_cma = first_error(everyone)
        cores = [peers[member].cores for member in intra_node]
        self.wait_policy: WaitPolicy = ProcessWaits(
            rank, self.processes, is_oversubscribed(cores), progress
        )
        self.grow(FIRST)
        self.notes = Notes(self)
        self.wait_policy.tell = self.notes.wait_for
        self.leave: Callable[[int, BaseException], None] = self.notes.leave
        self.mailbox = Mailbox(self) if len(intra_node) == size else None
        _ALL.add(self)

    # -- memory -------------------------------------------------------------------------

    def grow(self, nbytes: int) -> None:
        """Map one more segment of at least `nbytes`; collective.

        The first one is reserved, as all ranks begin to use it alone. Of later ones only areas that
        are in use hold memory, so that a long segment costs no more than a short one. Each doubles
        the length of all, so that there are few of them, whatever is taken and given back.
        """
        length = FIRST
        while length < max(nbytes, self.allocator.nbytes):
            length *= 2
        segment = self.files.map(length, reserved=0 if self.segments else length)
        self.segments.append(segment)
        for rank, memory in zip(self.intra_node, segment.parts, strict=True):
            self.memory[rank].append(memory)
            self.words[rank].append(memory.cast("B").cast("q"))
        self.allocator.add(length)

    def _reserve(self, area: Area) -> None:
        if area.segment:
            self.segments[area.segment].reserve(area.start, area.length)

    def _release(self, area: Area) -> None:
        if area.segment and self.releases:
            self.segments[area.segment].release(area.start, area.length)

    def allocate(self, shape: tuple[int, ...], dtype: str, nbytes: int) -> Array:
        area = self._take(nbytes)
        # Every array in it, NumPy's or torch's, keeps this one alive.
        owner = np.frombuffer(self.view(self.rank, *area), np.uint8)
        self.user_areas.add(area)
        weakref.finalize(owner, self._return, area).atexit = False
        return self.arrays.over(owner.data, dtype, shape)

    def _take(self, nbytes: int) -> Area:
        """Return an area of at least `nbytes`, growing the memory until all ranks have one."""
        area: Area | None = None
        while True:
            failure = ""
            try:
                area = area or self.allocator.take(nbytes)
            except Unavailable as error:
                failure = f"no shared memory: rank {self.rank}: {error}"
            lacks = 0 if area or failure else whole_lines(nbytes)
            states = self.exchange((lacks, failure), tuple[int, str])
            if failure := first_error(failure for _, failure in states):
                if area:
                    self.allocator.give(area)
                raise Unavailable(failure)
            if not any(lacks for lacks, _ in states):
                assert area is not None
                return area
            self.grow(max(lacks for lacks, _ in states))

    def _return(self, area: Area) -> None:
        self.user_areas.discard(area)
        self.allocator.give(area)

    def find(self, array: Array) -> tuple[int, int] | None:
        """Return the segment and offset of an array that lies in this rank's memory."""
        start, stop = self.arrays.span(array)
        for index, segment in enumerate(self.memory[self.rank]):
            low, _ = self.address(self.rank, index)
            if low <= start and stop <= low + len(segment):
                return index, start - low
        return None

    def address(self, rank: int, segment: int) -> tuple[int, object]:
        memory = self.memory[rank][segment]
        return self.arrays.span(self.arrays.over(memory, "uint8", (len(memory),)))[0], memory

    def view(self, rank: int, segment: int, start: int, length: int) -> Memory:
        return self.memory[rank][segment][start : start + length]

    @property
    def in_use(self) -> bool:
        return any(not plan.freed for plan in self.plans.values())

    def close(self) -> None:
        held = bool(self.user_areas) or self.in_use
        if self.mailbox is not None:
            self.mailbox.end(FREED)
        self.mailbox = None
        if not held:
            self.memory.clear()
            self.words.clear()
            self.segments.clear()

    def disown(self) -> None:
        """Run nothing here any more, in a forked child: others would take it for its parent."""
        if self.mailbox is not None:
            self.mailbox.end(FORKED)
        for plan in self.plans.values():
            plan.failed = True

    # -- programs -----------------------------------------------------------------------

    def reach(self, transport: str, buffers: dict[Buffer, Array], dtype: str) -> Reach:
        width, inside = itemsize(dtype), [name for name in buffers if self.find(buffers[name])]
        readable = frozenset((INPUT, OUTPUT, SCRATCH) if transport == CMA else inside)
        return Reach(self.others, readable, FETCHED_ROW // width, tile_of(transport) // width)

    def enter(self, plan: SharedResources) -> int:
        self.entered += 1
        self.plans[self.entered] = plan
        return self.entered

    @property
    def under_way(self) -> frozenset[int]:
        return frozenset(number for number, plan in self.plans.items() if plan.under_way)

    def take_retired(self) -> list[Retired]:
        """Return the areas that were retired until now, of plans whose runs have ended."""
        taken, self.retired = self.retired, []
        for wait in self.before_reuse:
            wait()
        return taken

    def give_back(self, retired: list[Retired], under_way: frozenset[int]) -> None:
        for entry in retired:
            number, allocator, area = entry
            if number in under_way:
                self.retired.append(entry)
            else:
                allocator.give(area)

    def retire(self, number: int, allocator: FirstFit, area: Area) -> None:
        self.retired.append((number, allocator, area))

    def locate(self, array: Array) -> Location:
        """Return this process, and the address of an array."""
        return os.getpid(), self.arrays.span(array)[0]


def tile_of(transport: str) -> int:
    """Return the bytes that are moved at a time."""
    return TILE if transport == SYMMETRIC else FETCHED_TILE


_ALL: weakref.WeakSet[MappedMemory] = weakref.WeakSet()


def _disown_all() -> None:
    for memory in _ALL:
        memory.disown()


os.register_at_fork(after_in_child=_disown_all)


def check_environment() -> None:
    """Raise where a variable of this rank turns the memory off, or has no meaning."""
    if is_switched_off():
        raise Unavailable(f"{SWITCH} turns it off")
    default_deadline()
    own_cores()


def open_memory(
    rank: int, nodes: Nodes, arrays: Arrays, exchange: Callable[..., list[Any]],
    obstacle: str = "", progress: Callable[[], object] = lambda: None,
) -> tuple[MappedMemory | None, str]:  # fmt: skip
    """Return a group's shared memory, or None and why there is none; collective.

    Args:
        exchange: returns every rank's item, in rank order.
        obstacle: why ranks of a node cannot share memory; empty where they can.
        progress: lets the library move its own messages while this rank waits.
    """
    if max(map(len, nodes)) == 1:
        return None, "no two ranks share a node"
    if obstacle:
        return None, obstacle
    node = next(ranks for ranks in nodes if rank in ranks)
    try:
        on_all(check_environment, rank, exchange, refusals=(CollectiveError,))
        size = sum(map(len, nodes))
        memory = MappedMemory(arrays, rank, node, size, exchange, progress)
    except Unavailable as error:
        return None, str(error)
    return memory, ""
