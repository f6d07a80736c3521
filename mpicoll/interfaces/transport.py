"""The transport of a backend: messages, shared memory and its library's own collectives.

`mpicoll.mpi.transport`, `torchcoll.transport` and `mpicoll.threads.transport` implement
`Transport`. Nothing else of a backend is visible above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from mpicoll.interfaces.arrays import Array, Arrays, Thunk
from mpicoll.interfaces.memory import Gpu, SharedMemory
from mpicoll.notation.contract import Collective
from mpicoll.notation.elements import ReduceOp

Nodes = tuple[tuple[int, ...], ...]

POINT_TO_POINT = "point-to-point"
"""Messages of the library."""
SYMMETRIC, CMA = "symmetric", "cma"
"""Shared memory alone; large private arrays by cross-memory attach."""
IPC, DIRECT, STAGED = "ipc", "direct", "staged"
"""GPU arrays: mapped by CUDA IPC, read by the library, copied through pinned host memory."""
TRANSPORTS = (POINT_TO_POINT, SYMMETRIC, CMA, IPC, DIRECT, STAGED)
GPU_TRANSPORTS = (IPC, DIRECT, STAGED)


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
class NativeCall:
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


class Native(NamedTuple):
    """A bound native collective: `run` blocks, `start` returns a request.

    Attributes:
        transport: how its arrays reach the library, for the record.
        averages: whether the library divides a mean itself.
    """

    run: Thunk
    start: Callable[[], Request]
    free: Thunk
    transport: str = "native"
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
            `unshared` is the reason then.
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
    def gpu_transport(self) -> str:
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

    def agree(self, digest: bytes) -> bool:
        """Whether all ranks gave the same 8 bytes."""

    def isend(self, x: Array, peer: int, tag: int) -> Request:
        """Start sending a flat array."""

    def irecv(self, x: Array, peer: int, tag: int) -> Request:
        """Start receiving into a flat array."""

    def split(self, color: int | None, key: int) -> Transport | None:
        """Return the group of the ranks with this color; None for color None."""

    def close(self) -> None:
        """Release the library's resources of this group."""
