"""The protocols that a backend implements, and the values that pass through them.

`Transport` is implemented by `mpicoll.mpi.transport`, `torchcoll.transport` and
`mpicoll.threads.transport`. Nothing else of a backend is visible above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from mpicoll.errors import RankLost
    from mpicoll.lowering.fusing import Steps
    from mpicoll.lowering.instructions import Reach
    from mpicoll.lowering.messages import Buffer
    from mpicoll.notation.contract import Collective
    from mpicoll.notation.elements import ReduceOp

Array = Any
Thunk = Callable[[], Any]
Memory = memoryview
"""Bytes that this process can write."""
Words = Any
"""A memoryview of 64-bit integers."""
Nodes = tuple[tuple[int, ...], ...]
"""The ranks of each node, in order."""
Location = tuple[int | bytes, int]
"""Private memory as another rank finds it: a process or the handle of a GPU's allocation, and the
address there."""

POINT_TO_POINT = "point-to-point"
"""Messages of the library."""
SYMMETRIC, CMA = "symmetric", "cma"
"""Shared memory alone; large private arrays by cross-memory attach."""
IPC, DIRECT, STAGED = "ipc", "direct", "staged"
"""GPU arrays: mapped by CUDA IPC, read by the library, copied through pinned host memory."""
TRANSPORTS = (POINT_TO_POINT, SYMMETRIC, CMA, IPC, DIRECT, STAGED)
GPU_TRANSPORTS = (IPC, DIRECT, STAGED)

# -- arrays --------------------------------------------------------------------------------------


class Arrays(Protocol):
    """The operations on memory that the front and the plans need."""

    def owns(self, x: object) -> bool:
        """Whether `x` is an array of this backend."""

    def unfit(self, x: Array, *, written: bool) -> str | None:
        """Return why `x` cannot be read (or `written`); None where it can."""

    def dtype(self, x: Array) -> str:
        """Return the dtype's name, as in `mpicoll.notation.elements`.

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

    def describe(self, x: object) -> tuple[int, int, int, tuple[int, ...]] | None:
        """Return the address, bytes and shape of an array that `layout` does not cover.

        The third item is a number for its dtype and device. None where arrays alike may fail
        different checks, or `x` is no such array.
        """

    def layout(self) -> tuple[Array, object] | None:
        """Return an example array, and the table with which the executor reads arrays of its type.

        NumPy's table lists the dtypes with their itemsizes and DLPack codes. Other types have
        DLPack's exchange table. The result is None if the type has neither.
        """

    def empty(self, shape: tuple[int, ...], dtype: str, like: Array | None = None) -> Array:
        """Allocate, on the device of `like`.

        Raises:
            UnknownName: this backend has no such dtype.
        """

    def copier(self, target: Array, source: Array) -> Thunk:
        """Bind a copy between flat arrays of one length."""

    def copy(self, target: Array, source: Array) -> None:
        """Copy between C-contiguous arrays of one shape, once."""

    def folder(self, op: ReduceOp, lhs: Array, rhs: Array, out: Array) -> Thunk:
        """Bind ``out = lhs op rhs`` on flat arrays; `out` may be either operand."""

    def fuser(
        self, op: ReduceOp, operands: Sequence[Array], steps: Steps, out: Array
    ) -> Thunk | None:
        """Bind a chain of folds into `out` as one call; return None where there is none."""

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

    def gpu(self, x: Array) -> int:
        """Return the number of the GPU that `x` is on, as the driver counts them."""

    def gpu_name(self, x: Array) -> str:
        """Return the model of the GPU that `x` is on."""

    def over(self, memory: Memory, dtype: str, shape: tuple[int, ...]) -> Array:
        """Return an array of this shape over the first bytes of `memory`.

        Raises:
            UnknownName: this backend has no such dtype.
        """

    def on_gpu(self, turn: int) -> Array:
        """Return an empty array on this thread's GPU.

        A thread that uses no GPU yet takes the one of this number, modulo the number of GPUs.

        Raises:
            Unavailable: this process sees no GPU.
        """

    def stopwatch(self) -> Stopwatch:
        """Return a stopwatch for the work on the caller's stream."""

    def current_stream(self, gpu: int) -> Stream:
        """Return the caller's stream on a GPU, by its number."""

    def at(self, address: int, dtype: str, count: int, like: Array) -> Array:
        """Return a flat array over GPU memory that another object owns, on the GPU of `like`."""


class Stream(Protocol):
    """A stream of one GPU; equal to another object for the same stream."""

    @property
    def handle(self) -> Any:
        """The driver's handle."""

    def use(self) -> AbstractContextManager[Any]:
        """Return a context that makes this stream the current one of its GPU."""

    def follow(self, other: Stream) -> None:
        """Let work put on it from now on wait for the work already on another one."""

    def is_capturing(self) -> bool:
        """Whether a CUDA graph records the work put on it, instead of running it."""


class Stopwatch(Protocol):
    """Two events of a GPU's stream."""

    def start(self) -> None:
        """Record the start on the caller's stream."""

    def stop(self) -> None:
        """Record the end on the caller's stream, and wait for it."""

    def nanoseconds(self) -> int:
        """Return the nanoseconds that passed on the GPU."""


# -- the driver of a GPU -------------------------------------------------------------------------


class Exported(NamedTuple):
    """An address as another process can find it: an allocation's handle, and an offset in it."""

    handle: bytes
    offset: int


class WordOperation(NamedTuple):
    """An operation of a stream on a 32-bit word.

    Attributes:
        address: of the word, for the GPU.
        value: a write stores it. A wait ends when the word is equal to it if it is 0, and when the
            word is at least as large otherwise.
    """

    address: int
    value: int
    waits: bool


class Batch(Protocol):
    """Operations on words that are put on a stream together."""

    def put(self, stream: Any) -> None:
        """Put them on a stream, given its handle."""

    def set_first(self, value: int) -> None:
        """Set the value of the first operation, for the next `put`."""


class Gpu(Protocol):
    """The driver of one GPU: `mpicoll.gpu.driver.Driver`, or the fake of the tests."""

    @property
    def identity(self) -> str:
        """The unique number of the GPU: processes with the same number share that GPU."""

    def register(self, address: int, nbytes: int) -> int:
        """Let the GPU reach memory of the host; return its address there.

        Raises:
            Unavailable: the GPU, or the driver, does not let streams wait for such memory.
        """

    def unregister(self, address: int) -> None:
        """Undo `register`, when no work under way uses the memory."""

    def batch(self, operations: Sequence[WordOperation]) -> Batch:
        """Return these operations, to be put on a stream in their order."""

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory that other processes can open.

        Raises:
            Unavailable: the GPU has too little left.
        """

    def free(self, address: int) -> None:
        """Free memory of `allocate`, which no other process may have open."""

    def export(self, address: int) -> Exported:
        """Return the handle that opens the allocation around an address in another process.

        Raises:
            Unavailable: the allocation cannot be shared.
        """

    def open(self, handle: bytes) -> int:
        """Map an allocation of another process and return its address here.

        Raises:
            Unavailable: the driver refuses.
        """

    def close(self, address: int) -> None:
        """Unmap an allocation that was opened, when the work under way on it is done."""

    def synchronize(self) -> None:
        """Wait for all work that this process has put on the GPU."""


# -- waiting -------------------------------------------------------------------------------------


class Stage(NamedTuple):
    """One round of an operation, in which a rank waits for other ranks.

    Attributes:
        rounds: 0 for an operation that has none.
        operation: the number of the operation, the same on all ranks; 0 if it has no number.
    """

    label: str
    round: int = 0
    rounds: int = 0
    operation: int = 0

    def __str__(self) -> str:
        return f"{self.label}, round {self.round} of {self.rounds}" if self.rounds else self.label


class WaitContext(NamedTuple):
    """The operation during which a rank waits for `peer`.

    Attributes:
        abort_reason: returns why that rank has left the operation, or an empty text.
    """

    stage: Stage
    peer: int
    abort_reason: Callable[[], str] = lambda: ""


class WaitPolicy(Protocol):
    """How the ranks of one group wait for each other.

    Attributes:
        oversubscribed: whether these ranks outnumber the cores they may use.
        deadline: seconds after which a rank gives up.
        lost: returns the error of a wait, given what happened as the end of a sentence.
        tell: takes the rank that this one has waited for long, None once it no longer does.
        has_exited: whether the program of a rank has ended, though its process may wait for others.
    """

    oversubscribed: bool
    deadline: float
    has_exited: Callable[[int], bool]
    lost: Callable[[WaitContext, str], RankLost]
    tell: Callable[[int | None], None]

    def test(self, words: Words, index: int, minimum: int, context: WaitContext) -> bool:
        """Whether ``words[index] >= minimum``, without waiting.

        Raises:
            RankLost: the rank that should write it has ended or left the operation.
        """


# -- memory that ranks of a node share -----------------------------------------------------------


class Store(Protocol):
    """Memory that the ranks of one node share: each rank can read the bytes of the others.

    `SharedMemory` is the store on the host, and also holds the flags. `GpuStore` is one on GPUs.

    Attributes:
        allocator: the `FirstFit` of this rank's segments.
    """

    @property
    def allocator(self) -> Any: ...

    def grow(self, nbytes: int) -> None:
        """Add a segment of at least `nbytes` to every rank's memory; collective."""

    def find(self, array: Array) -> tuple[int, int] | None:
        """Return the segment and offset of an array that lies in this rank's segments."""

    def locate(self, array: Array) -> Location:
        """Return the location of a private array, for other ranks to read it."""


class GpuStore(Store, Protocol):
    """A store on GPUs: `mpicoll.gpu.ipc.GpuMemory`.

    Attributes:
        orders: whether streams wait for flags and raise them, on all ranks.
        synchronize: waits for this rank's stream: the work that a flag announces must be done.
    """

    orders: bool
    synchronize: Thunk

    def array(self, rank: int, segment: int, start: int, dtype: str, count: int) -> Array:
        """Return an array over a part of a rank's segment."""

    def foreign(
        self, location: Location, start: int, dtype: str, count: int
    ) -> tuple[Array, object]:
        """Return an array over private memory of another rank, `start` bytes on, and its owner."""


class Exchange(Protocol):
    """A small allgather between all ranks: `mpicoll.memory.mailbox.Mailbox`.

    Attributes:
        start: the offset of a rank's buffers in its first segment.
        complete: completes the call that is under way, or raises RuntimeError.
    """

    start: int
    number: Any
    complete: Callable[[], object]

    def poison_on_error(self) -> AbstractContextManager[None]:
        """Give the group up where this rank alone fails in steps that all ranks take here."""

    def wait(self, rank: int, number: int, name: str | None = None) -> None:
        """Return when a rank has begun a round, of the call of a name."""

    def exchange(self, item: Any, kind: Any = Any) -> list[Any]:
        """Return every rank's item of a type, in rank order."""


class SharedMemory(Store, Protocol):
    """The host memory of one group's ranks on this node.

    `mpicoll.memory.segments` implements it; its parts know it by this protocol.

    Attributes:
        intra_node: the ranks of the group on this node, this one included; `others` without it.
        words: every rank's segments as 64-bit words.
        mailbox: exchanges small items, where all ranks of the group are on this node.
        notes: the `Notes` that say why a rank of this node has left an operation.
        leave: tells the other ranks that this one has left an operation, and why.
        no_cma: why cross-memory attach cannot be used; empty where it can.
        releases: whether the memory of free areas is given back to the system.
        before_reuse: waits for the GPUs on which plans in this memory have work under way.
        processes: the process of each rank of this node.
    """

    processes: dict[int, int]
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
    def notes(self) -> Any: ...

    def exchange(self, item: Any, kind: Any = Any) -> list[Any]:
        """Return every rank's small item of a type, in rank order."""

    def address(self, rank: int, segment: int) -> tuple[int, object]:
        """Return where this process maps a rank's segment, and the owner of the mapping."""

    def view(self, rank: int, segment: int, start: int, length: int) -> Memory:
        """Return a part of a rank's memory."""

    def allocate(self, shape: tuple[int, ...], dtype: str, nbytes: int) -> Array:
        """Return an array in this rank's part of a segment; collective."""

    def reach(self, transport: str, buffers: dict[Buffer, Array], dtype: str) -> Reach:
        """Return the buffers that others read in place, and the smallest zero-copy message.

        Args:
            buffers: without input and output where these may lie elsewhere in each run.
        """

    def enter(self, plan: Any) -> int:
        """Register a plan that runs in this memory, and return its number; collective."""

    @property
    def under_way(self) -> frozenset[int]:
        """The numbers of the plans of which a started run is not complete."""

    def take_retired(self) -> list[Any]:
        """Return the areas that were retired until now."""

    def give_back(self, retired: list[Any], under_way: frozenset[int]) -> None:
        """Give areas back, except those of plans that are `under_way` on some rank."""

    def retire(self, number: int, allocator: Any, area: Any) -> None:
        """Give an area back once no rank can be reading it; safe to call from a finalizer."""

    @property
    def in_use(self) -> bool:
        """Whether this rank holds a plan that has not been freed."""

    def close(self) -> None:
        """Release the memory, unless this rank holds an array or a plan in it."""


# -- the library's own collectives ---------------------------------------------------------------

RunOn = Callable[[Array | None, Array | None], object]
"""Runs a call for an x and an out."""


class Request(Protocol):
    """An operation under way, as `Collectives.isend` and `Plan.start` return it.

    >>> import mpicoll, numpy as np
    >>> def program(c):
    ...     with c.plan("allreduce", np.ones(2)) as plan:
    ...         request = plan.start()
    ...         while not request.test():
    ...             pass  # other work
    ...         request.wait()  # complete: returns at once
    ...         return plan.out
    >>> mpicoll.threads(2)(program)[0]
    array([2., 2.])
    """

    def wait(self) -> None:
        """Block until it is complete.

        Raises:
            RankLost: a rank that it waits for has ended, or did not come in time.
        """

    def test(self) -> bool:
        """Advance without blocking; whether it is complete.

        Raises:
            RankLost: a rank that it waits for has ended.
        """


class CompletedRequest:
    """A request that was complete at once."""

    def wait(self) -> None: ...

    def test(self) -> bool:
        return True


class NativeCall(NamedTuple):
    """The checked arguments of a native collective.

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

    @property
    def array(self) -> Array | None:
        """One of its arrays, which lie on one device; None where this rank has none."""
        return self.out if self.x is None else self.x


class Native(NamedTuple):
    """A bound native collective: `run` blocks, `start` returns a request.

    Attributes:
        transport: how its arrays reach the library, for the record.
        averages: whether the library divides a mean itself.
        method: the library's own method as its users write it; None where `run` is that.
        run_on: runs it on arrays that are like its own, and keeps none of them; None for arrays on
            a GPU.
    """

    run: Thunk
    start: Callable[[], Request]
    free: Thunk
    transport: str = "native"
    averages: bool = False
    method: Thunk | None = None
    run_on: RunOn | None = None


# -- transports ----------------------------------------------------------------------------------


class Message(NamedTuple):
    """A flat array for one peer.

    Attributes:
        data: the array. None for an empty signal, or for memory whose address each run gives.
        nbytes, owner: of that memory. The owner keeps it while a run is under way.
    """

    peer: int
    data: Array | None
    nbytes: int = 0
    owner: object = None


class Poll(NamedTuple):
    """A test of messages that are under way.

    Attributes:
        test: whether they are complete, without waiting.
        wait: returns when they are complete.
        may_test: a rank may wait by tests, with yields of its core between them; else by `wait`.
    """

    test: Callable[[], bool]
    wait: Thunk
    may_test: bool = False


class Messages(NamedTuple):
    """The bound messages of one round: run all `starts`, then all `ends` in order.

    Attributes:
        takes: where messages have no arrays, these functions precede the starts. Each takes the
            address of one message, receives first.
        ends: polls, and the local work that follows them.
        free: releases the library's requests.
        lost: returns the error of a wait for them that has lasted too long, given what happened
            as the end of a sentence.
        look: raises RankLost where a rank will not come, and a poll has no way to see that.
        failed: returns the error to raise where a poll has raised one.
    """

    starts: tuple[Thunk, ...]
    ends: tuple[Poll | Thunk, ...]
    free: Thunk
    lost: Callable[[str], RankLost | None] = lambda _what: None
    look: Thunk = lambda: None
    failed: Callable[[BaseException], BaseException] = lambda error: error
    takes: tuple[Callable[[int], object], ...] = ()


EXCHANGE = int.from_bytes(b"exchange", "little")
"""Instead of the digest of a call, where ranks that share no memory begin an exchange."""


class Transport(Protocol):
    """One group of ranks as a library sees it.

    Attributes:
        rank, size: this process and the group.
        backend: ``mpi4py`` or ``torch``; `library` names what is below it, with versions.
        compares: the ranks compare a call of a method before they run it.
        name: how messages travel, for the record.
        shared: the memory that the ranks of a node map, None where there is none;
            `unshared` is the reason then.
        gpu_turn: the place of this process among the ranks of its node that were started with it,
            the same in every group.
        deadline: seconds after which this rank gives up waiting for another.
        rounds: the `mpicoll.memory.mailbox.Rounds` of ranks that share no memory.
    """

    deadline: float
    rounds: Any
    rank: int
    size: int
    nodes: Nodes
    backend: str
    compares: bool
    library: str
    name: str
    shared: SharedMemory | None
    unshared: str
    gpu_turn: int

    @property
    def arrays(self) -> Arrays:
        """How this backend's memory is handled."""

    @property
    def gpu_transport(self) -> str:
        """How messages of GPU arrays travel, `DIRECT` or `STAGED`."""

    def other_natives(self, collective: str) -> Mapping[str, Callable[[NativeCall], Native]]:
        """Return other libraries' ways to bind a collective, by the name in ``native:nccl``.

        All ranks bind a call. It raises Unavailable, on all of them, where the library cannot
        serve it.
        """

    @property
    def window(self) -> Callable[[tuple[int, ...], str, Array], Array] | None:
        """The maker of an array of a shape and dtype on the GPU of another, registered with NCCL.

        Collective. None where the group has no NCCL.
        """

    @property
    def matches_by_order(self) -> bool:
        """Whether the library matches messages of GPU arrays by their order, whatever their tags.

        Then every rank must post them in the same order.
        """

    def prepare_gpu(self, x: Array) -> None:
        """Prepare the library for arrays on the GPU of `x`; collective.

        Raises:
            Unavailable: on all ranks, where the library cannot serve those of one.
        """

    def driver(self, device: int) -> Gpu:
        """Return the driver of a GPU.

        Raises:
            Unavailable: there is none.
        """

    def leave(self, operation: int, error: BaseException) -> None:
        """Tell the other ranks that this one has left an operation, and why."""

    def poison_on_error(self) -> AbstractContextManager[None]:
        """Give the group up where this rank alone fails in steps that all ranks take here."""

    def messages(
        self, sends: Sequence[Message], receives: Sequence[Message], tag: int, stage: Stage
    ) -> Messages:
        """Bind one round's messages; those of a pair of ranks under one tag keep their order.

        A wait for them raises RankLost with the `stage`, where a rank has ended or left it, or
        does not come within the deadline.
        """

    def lacks(self, collective: Collective, *, uneven: bool = False) -> str | None:
        """Return why the library has no native form of a collective, or None."""

    def native(self, call: NativeCall, *, persistent: bool = False) -> Native:
        """Bind the library's own collective.

        Raises:
            Unavailable: the library has no such call for these arguments.
        """

    def exchange(self, item: Any, kind: Any = Any) -> list[Any]:
        """Return every rank's item, in rank order.

        Args:
            item: small, and plain data as in `mpicoll.text.encoding`.
            kind: the type of all items; with `Any`, tuples and sets become lists.
        """

    def agree(self, digest: int) -> bool:
        """Whether all ranks gave the same 64 bits; for ranks that share no memory."""

    def isend(self, x: Array, peer: int, tag: int) -> Request:
        """Start sending a flat array."""

    def irecv(self, x: Array, peer: int, tag: int) -> Request:
        """Start receiving into a flat array."""

    def sendrecv(self, send: Message, receive: Message, tag: int) -> Sequence[Request]:
        """Start both, so that neither waits for the other."""

    def split(self, color: int | None, key: int) -> Transport | None:
        """Return the group of the ranks with this color; None for color None."""

    def survive(self, make: Callable[[Transport], Any]) -> Any:
        """Return the result of `make` on the ranks that are left; collective among them.

        Where one of them ends meanwhile, those that are left make it anew.

        Raises:
            RankLost: the others go on without this rank.
        """

    def close(self) -> None:
        """Release the library's resources of this group."""
