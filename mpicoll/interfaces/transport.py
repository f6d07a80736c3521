"""One group of ranks as a library sees it, its messages, and the names of all transports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from mpicoll.errors import RankLost
from mpicoll.interfaces.arrays import Array, Arrays, Thunk
from mpicoll.interfaces.calls import Calls, Native, NativeCall, Request
from mpicoll.interfaces.gpu import Gpu
from mpicoll.interfaces.memory import SharedMemory
from mpicoll.interfaces.waiting import Stage
from mpicoll.notation.contract import Collective

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


def _seen_by_test() -> None: ...


class Messages(NamedTuple):
    """The bound messages of one round: run all `start`, then all `wait`.

    Attributes:
        lost: returns the error of a wait for them that has lasted too long, given what happened
            as the end of a sentence.
        look: raises RankLost where a rank will not come, and `test` has no way to see that.
    """

    start: tuple[Thunk, ...]
    wait: tuple[Thunk, ...]
    test: Callable[[], bool]
    free: Thunk
    lost: Callable[[str], RankLost | None] = lambda _what: None
    look: Thunk = _seen_by_test


class Transport(Protocol):
    """One group of ranks as a library sees it.

    Attributes:
        rank, size: this process and the group.
        nodes: the ranks of each node, in order.
        backend: ``mpi4py`` or ``torch``; `library` names what is below it, with versions.
        name: how messages travel, for the record.
        shared: the memory that the ranks of a node map, None where there is none;
            `unshared` is the reason then.
        gpu_turn: the place of this process among the ranks of its node that were started with it,
            the same in every group.
        deadline: seconds after which this rank gives up waiting for another.
        calls: where ranks that wait ask each other in which call they are; None where they compare
            their calls beforehand, by `agree`.
    """

    deadline: float
    rank: int
    size: int
    nodes: Nodes
    backend: str
    library: str
    name: str
    shared: SharedMemory | None
    unshared: str
    gpu_turn: int

    @property
    def arrays(self) -> Arrays:
        """How this backend's memory is handled."""

    @property
    def calls(self) -> Calls | None: ...

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

    @property
    def serves_threads(self) -> bool:
        """Whether the library takes messages from another thread beside the one that runs plans."""

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

    def together(self) -> AbstractContextManager[None]:
        """Give the group up where this rank alone fails in steps that all ranks take here."""

    def messages(
        self, sends: Sequence[Message], receives: Sequence[Message], tag: int, stage: Stage
    ) -> Messages:
        """Bind one round's messages; those of a pair of ranks under one tag keep their order.

        A wait for them raises RankLost with the `stage`, where a rank has ended or left it, or
        does not come within the deadline.
        """

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
