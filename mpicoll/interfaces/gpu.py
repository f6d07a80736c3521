"""The driver of one GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class Exported(NamedTuple):
    """An address as another process can find it: an allocation's handle, and an offset in it."""

    handle: bytes
    offset: int


class WordOperation(NamedTuple):
    """An operation of a stream on a 32-bit word.

    Attributes:
        address: of the word, for the GPU.
        value: what is written, or waited for: 0, or at least so much.
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
    """The driver of one GPU: `mpicoll.gpu.driver.Driver`."""

    @property
    def identity(self) -> str:
        """The GPU's own number, by which processes know that they share it."""

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
