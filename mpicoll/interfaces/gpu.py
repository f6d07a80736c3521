"""The calls of a GPU driver that sharing memory between processes needs."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Exported(NamedTuple):
    """An address as another process can find it: an allocation's handle, and an offset in it."""

    handle: bytes
    offset: int


class Gpu(Protocol):
    """A GPU driver: `mpicoll.gpu.driver.Driver`."""

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
