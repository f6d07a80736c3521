"""What a backend supplies: arrays, messages and its library's own collectives.

`mpicoll.mpi.transport` and `torchcoll.transport` implement `Transport`; `mpicoll.mpi.arrays`
and `torchcoll.arrays` implement `Arrays`. Nothing else of a backend is visible above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mpicoll.notation.contract import Collective, ReduceOp

if TYPE_CHECKING:
    from mpicoll.gpu.driver import Gpu
    from mpicoll.memory.allocator import Heap
    from mpicoll.memory.segments import SharedMemory
    from mpicoll.programs.fusing import Steps

Array = Any
Thunk = Callable[[], Any]
Nodes = tuple[tuple[int, ...], ...]
Memory = memoryview
"""Bytes that this process can write."""
DIRECT, STAGED = "direct", "staged"
"""How messages of GPU arrays travel: the library reads them, or pinned memory on the host."""


class Arrays(Protocol):
    """The few operations on memory that the front and the plans need."""

    def owns(self, x: object) -> bool:
        """Whether `x` is an array of this backend."""

    def unfit(self, x: Array, *, written: bool) -> str | None:
        """Return why memory of `x` cannot be read, or `written`; None where it can."""

    def dtype(self, x: Array) -> str:
        """Return the dtype's name, as in `contract.DTYPES`.

        Raises:
            UnknownName: no backend carries this dtype.
        """

    def flat(self, x: Array) -> Array:
        """Return a one-dimensional view.

        Raises:
            ArgumentError: `x` is not C-contiguous.
        """

    def span(self, x: Array) -> tuple[int, int]:
        """Return the first address of `x` and the one past its end."""

    def empty(self, shape: tuple[int, ...], dtype: str, like: Array | None = None) -> Array:
        """Allocate, on the device of `like`.

        Raises:
            UnknownName: this backend has no such dtype.
        """

    def copier(self, target: Array, source: Array) -> Thunk:
        """Bind a copy between flat arrays of one length."""

    def folder(self, op: ReduceOp, left: Array, right: Array, out: Array) -> Thunk:
        """Bind ``out = left op right`` on flat arrays; `out` may be either operand."""

    def fuser(
        self, op: ReduceOp, operands: Sequence[Array], steps: Steps, out: Array
    ) -> Thunk | None:
        """Bind several folds into `out` as one, None where nothing does (`programs.fusing`)."""

    def divider(self, x: Array, divisor: int) -> Thunk:
        """Bind a division in place."""

    def to_host(self, x: Array) -> Any:
        """Return the values as a NumPy array (bfloat16 as float32)."""

    def from_host(self, x: Array, values: Any) -> None:
        """Write NumPy values into `x`, converting to its dtype."""

    def synchronize(self, x: Array) -> None:
        """Wait until the device has finished the work that produces `x`."""

    def is_on_host(self, x: Array | None) -> bool:
        """Whether `x` is not on a GPU."""

    def over(self, memory: Memory, dtype: str, shape: tuple[int, ...]) -> Array:
        """Return an array that lies in `memory`, as long as its first elements need.

        Raises:
            UnknownName: this backend has no such dtype.
        """

    def on_gpu(self, turn: int) -> Array:
        """Make the GPU of the `turn`-th rank of this node the current one.

        Returns an empty array there, for others to be made like it.

        Raises:
            Unavailable: this process sees no GPU.
        """

    def stopwatch(self) -> Stopwatch:
        """Return what times the work on the caller's stream."""

    def at(self, address: int, dtype: str, count: int, like: Array) -> Array:
        """Return a flat array over GPU memory that somebody else keeps, on the GPU of `like`."""


class Stopwatch(Protocol):
    """Two events of a GPU's stream."""

    def start(self) -> None:
        """Note the begin on the caller's stream."""

    def stop(self) -> None:
        """Note the end there, and wait for it."""

    def nanoseconds(self) -> int:
        """Return what has passed on the GPU."""


class Segments(Protocol):
    """Memory that the ranks of one node map: `mpicoll.mpi.windows`, `torchcoll.windows`."""

    def map(self, nbytes: int) -> Sequence[Memory]:
        """Return one more segment of every rank of the node, in order; collective.

        Raises:
            Unavailable: the system refuses, on any rank.
        """

    def fence(self) -> object:
        """Order this rank's loads and stores before the call before those after it."""

    def progress(self) -> object:
        """Let the library move its own messages while this rank waits."""

    def close(self, *, held: bool) -> None:
        """Release the segments, unless a rank still has arrays or plans in them; collective."""


class Store(Protocol):
    """Where the bytes lie that ranks of one node read of each other.

    `mpicoll.memory.segments.SharedMemory` on the host, where flags lie too;
    `mpicoll.gpu.ipc.GpuMemory` on GPUs.

    Attributes:
        heap: who uses which part of this rank's segments.
        maps: whether private memory of other ranks can be mapped, or only fetched by a call.
    """

    heap: Heap
    maps: bool

    def grow(self, nbytes: int) -> None:
        """Add a segment to every rank's memory; collective."""

    def array(self, rank: int, segment: int, start: int, dtype: str, count: int) -> Array:
        """Return an array over a part of a rank's segment."""

    def find(self, array: Array) -> tuple[int, int] | None:
        """Return the segment and offset of an array that lies in this rank's segments."""

    def locate(self, array: Array) -> Any:
        """Return what tells other ranks where a private array lies."""

    def foreign(self, where: Any, start: int, dtype: str, count: int) -> tuple[Array, object]:
        """Return an array over private memory of another rank, `start` bytes on, and its owner."""

    def release(self, nbytes: int) -> Thunk | None:
        """Return what must come between work on `nbytes` and the flag that tells of it."""

    def acquire(self, nbytes: int) -> Thunk | None:
        """Return what must come between a flag and the first use of the `nbytes` it tells of."""


class Message(NamedTuple):
    """A flat array for one peer; None is an empty signal."""

    peer: int
    data: Array | None


class Messages(NamedTuple):
    """The bound messages of one round: run all `start`, then all `wait`."""

    start: tuple[Thunk, ...]
    wait: tuple[Thunk, ...]
    test: Callable[[], bool]
    free: Thunk


@dataclass(frozen=True)
class Call:
    """A checked call of a native collective.

    Attributes:
        x: the input array, None where this rank gives none; `out` likewise.
        counts: rows per rank, or per pair of ranks; None for equal ones.
        in_place: `x` and `out` share memory, each block at its own place.
        rank: of the caller in its group.
    """

    collective: Collective
    x: Array | None
    out: Array | None
    op: ReduceOp
    root: int
    counts: Sequence[Any] | None
    in_place: bool
    rank: int


class Native(NamedTuple):
    """A bound native collective: `run` blocks, `start` returns what to wait for.

    Attributes:
        way: how its arrays get to the library, for the record.
        averages: whether the library divides a mean itself.
    """

    run: Thunk
    start: Callable[[], Request]
    free: Thunk
    way: str = "native"
    averages: bool = False


class Request(Protocol):
    """An operation under way."""

    def wait(self) -> None:
        """Block until it is complete."""

    def test(self) -> bool:
        """Advance without blocking; whether it is complete."""


class Transport(Protocol):
    """One group of ranks as a library sees it.

    Attributes:
        rank, size: this process and the group.
        nodes: the ranks of each node, in order.
        backend: ``mpi4py`` or ``torch``; `library` names what is below it, with versions.
        name: how messages travel, for the record.
        shared: the memory that the ranks of a node map, None where there is none;
            `unshared` then says why.
    """

    rank: int
    size: int
    nodes: Nodes
    backend: str
    library: str
    name: str
    shared: SharedMemory | None
    unshared: str

    @property
    def arrays(self) -> Arrays:
        """How this backend's memory is handled."""

    @property
    def way(self) -> str:
        """How messages of GPU arrays travel, `DIRECT` or `STAGED`."""

    def driver(self) -> Gpu:
        """Return the GPU driver.

        Raises:
            Unavailable: there is none.
        """

    def messages(self, sends: Sequence[Message], receives: Sequence[Message], tag: int) -> Messages:
        """Bind one round's messages; those of a pair of ranks under one tag keep their order."""

    def lacks(self, what: Collective, *, uneven: bool = False) -> str | None:
        """Return why the library has no native form of a collective, or None."""

    def native(self, call: Call, *, persistent: bool = False) -> Native:
        """Bind the library's own collective.

        Raises:
            Unavailable: the library has no such call for these arguments.
        """

    def exchange(self, item: Any) -> list[Any]:
        """Return every rank's (small, picklable) item, in rank order."""

    def agree(self, digest: bytes) -> bool:
        """Whether all ranks gave the same 8 bytes."""

    def isend(self, x: Array, peer: int, tag: int) -> Request:
        """Start sending a flat array."""

    def irecv(self, x: Array, peer: int, tag: int) -> Request:
        """Start receiving into a flat array."""

    def split(self, color: int | None, key: int) -> Transport | None:
        """Return the group of the ranks with this color; None for color None."""

    def close(self) -> None:
        """Release what this group holds of the library."""
