"""Memory in which the ranks of a node read each other's bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from mpicoll.interfaces.arrays import Array, Arrays, Memory, Thunk
from mpicoll.interfaces.gpu import Gpu
from mpicoll.interfaces.waiting import Exchange, Notes, WaitPolicy
from mpicoll.programs.instructions import Reach

Location = tuple[int | bytes, int]
"""Private memory, as another rank finds it: a process or the handle of a GPU's allocation, and the
address there."""


class Area(NamedTuple):
    """A part of one segment: bytes."""

    segment: int
    start: int
    length: int


class Allocator(Protocol):
    """Which parts of this rank's segments are in use: `mpicoll.memory.allocator`."""

    @property
    def used(self) -> int: ...

    def take(self, nbytes: int) -> Area | None:
        """Return a free area, None where there is no room."""

    def give(self, area: Area) -> None:
        """Take an area back; safe to call from a finalizer."""


class Retired(NamedTuple):
    """An area that the plan of this number no longer needs."""

    number: int
    allocator: Allocator
    area: Area


class Store(Protocol):
    """Memory in which ranks of one node read each other's bytes.

    `SharedMemory` on the host, which holds the flags, too; `mpicoll.gpu.ipc.GpuMemory` on GPUs.

    Attributes:
        allocator: which parts of this rank's segments are in use.
        maps: whether private memory of other ranks can be mapped, or only fetched by a call.
        orders: whether streams of GPUs wait for flags and raise them, on all ranks.
    """

    orders: bool

    @property
    def allocator(self) -> Allocator: ...

    @property
    def maps(self) -> bool: ...

    def grow(self, nbytes: int) -> None:
        """Add a segment of at least `nbytes` to every rank's memory; collective."""

    def array(self, rank: int, segment: int, start: int, dtype: str, count: int) -> Array:
        """Return an array over a part of a rank's segment."""

    def find(self, array: Array) -> tuple[int, int] | None:
        """Return the segment and offset of an array that lies in this rank's segments."""

    def locate(self, array: Array) -> Location:
        """Return the location of a private array, for other ranks to read it."""

    def foreign(self, where: Location, start: int, dtype: str, count: int) -> tuple[Array, object]:
        """Return an array over private memory of another rank, `start` bytes on, and its owner."""

    def release(self, nbytes: int) -> Thunk | None:
        """Return the fence between work on `nbytes` and the flag that announces it."""

    def acquire(self, nbytes: int) -> Thunk | None:
        """Return the fence between a flag and the first use of the `nbytes` it announces."""


class WordStore(Store, Protocol):
    """GPU memory whose flags streams wait for and raise.

    Attributes:
        gpu: its driver.
    """

    gpu: Gpu

    def word(self, rank: int, segment: int, offset: int) -> int:
        """Return where the GPU finds a word of a rank's memory on the host.

        Raises:
            Unavailable: it cannot reach that memory.
        """


class SharedMemory(Store, Protocol):
    """The host memory of one group's ranks on this node: `mpicoll.memory.segments`.

    Attributes:
        intra_node: the ranks of the group on this node, this one included; `others` without it.
        words: every rank's segments as 64-bit words.
        mailbox: exchanges small items, where all ranks of the group are on this node.
        notes: say why a rank of this node has left an operation.
        leave: tells the other ranks that this one has left an operation, and why.
        no_cma: why cross-memory attach cannot be used; empty where it can.
        least_fetched: bytes of the smallest message that is fetched from private memory.
        releases: whether the memory of free areas is given back to the system.
        before_reuse: waits for the GPUs on which plans in this memory have work under way.
        processes: the process of each rank of this node.
        cores: how many cores these may use together.
    """

    processes: dict[int, int]
    cores: float
    least_fetched: int
    releases: bool
    before_reuse: list[Thunk]
    rank: int
    size: int
    intra_node: tuple[int, ...]
    others: frozenset[int]
    words: dict[int, list[Memory]]
    no_cma: str
    leave: Callable[[int, BaseException], None]

    @property
    def arrays(self) -> Arrays: ...

    @property
    def wait_policy(self) -> WaitPolicy: ...

    @property
    def mailbox(self) -> Exchange | None: ...

    @property
    def notes(self) -> Notes: ...

    def exchange(self, item: Any, kind: Any = Any) -> list[Any]:
        """Return every rank's small item of a type, in rank order."""

    def address(self, rank: int, segment: int) -> tuple[int, object]:
        """Return where this process maps a rank's segment, and the owner of the mapping."""

    def view(self, rank: int, segment: int, start: int, length: int) -> Memory:
        """Return a part of a rank's memory."""

    def allocate(self, shape: tuple[int, ...], dtype: str, nbytes: int) -> Array:
        """Return an array in this rank's part of a segment; collective."""

    def reach(
        self, transport: str, buffers: dict[str, Array], dtype: str, *, compiled: bool = False,
        unbound: bool = False, block: int = 0, one_way: bool = False,
    ) -> Reach:  # fmt: skip
        """Return the buffers that others read in place, and the smallest zero-copy message.

        Args:
            compiled: the compiled executor reads them.
            unbound: input and output may lie elsewhere in each run, and are not in `buffers`.
            block: the bytes of the schedule's largest block; `one_way`: as `Collective` has it.
        """

    def enter(self, plan: SharedPlan) -> int:
        """Register a plan that runs in this memory, and return its number; collective."""

    @property
    def under_way(self) -> frozenset[int]:
        """The numbers of the plans of which a started run is not complete."""

    def take_retired(self) -> list[Retired]:
        """Return the areas that were retired until now."""

    def give_back(self, retired: list[Retired], under_way: frozenset[int]) -> None:
        """Give areas back, except those of plans that are `under_way` on some rank."""

    def retire(self, number: int, allocator: Allocator, area: Area) -> None:
        """Give an area back once no rank can be reading it; safe to call from a finalizer."""

    @property
    def in_use(self) -> bool:
        """Whether this rank holds a plan that has not been freed."""

    def close(self) -> None:
        """Release the memory, unless this rank holds an array or a plan in it."""


class SharedPlan(Protocol):
    """A plan that runs in shared memory.

    Attributes:
        under_way: whether a started run is not complete.
        failed: whether it runs no more.
    """

    under_way: bool
    failed: bool
    freed: bool
