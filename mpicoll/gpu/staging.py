"""GPU arrays by way of pinned host memory, in pieces, so that copies and messages overlap.

While one piece of an array is on its way to another rank, the next is copied from the GPU, and
where it arrives the one before is copied to the GPU.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from mpicoll.interfaces import Array

PIECE = 1 << 20
"""Bytes that are copied and sent at a time, the same on all ranks."""


class Event(Protocol):
    """A point in a stream of GPU work."""

    def synchronize(self) -> object:
        """Wait until the GPU has got there."""


class Copies(Protocol):
    """Copies between a GPU and the host, `mpicoll.mpi.staging` and `torchcoll.staging`."""

    def pinned(self, data: Array) -> Array:
        """Return page-locked host memory like a flat GPU array."""

    def copy(self, target: Array, source: Array) -> Event:
        """Begin a copy on the caller's stream; return what tells of its end."""


class Piece(NamedTuple):
    """A part of an array, and of its mirror on the host."""

    device: Array
    host: Array


class Mirror:
    """A GPU array's pinned memory on the host."""

    def __init__(self, data: Array, copies: Copies, piece: int | None) -> None:
        """Allocate; `piece` bytes are copied at a time, everything at once if None."""
        host, self.copies = copies.pinned(data), copies
        width = data.nbytes // len(data) if len(data) else 1
        step = max(1, len(data) if piece is None else piece // width)
        self.pieces = [
            Piece(data[start : start + step], host[start : start + step])
            for start in range(0, max(1, len(data)), step)
        ]
        self.events: list[Event | None] = [None] * len(self.pieces)

    def download(self) -> None:
        """Begin to copy every piece to the host."""
        for index in range(len(self.pieces)):
            self.events[index] = self.copies.copy(*reversed(self.pieces[index]))

    def upload(self, index: int) -> None:
        """Begin to copy one piece to the GPU."""
        self.events[index] = self.copies.copy(*self.pieces[index])

    def upload_all(self) -> None:
        """Begin to copy every piece to the GPU."""
        for index in range(len(self.pieces)):
            self.upload(index)

    def settle(self, index: int) -> None:
        """Wait for the last copy of one piece."""
        event = self.events[index]
        if event is not None:
            event.synchronize()

    def settle_all(self) -> None:
        """Wait for the last copy of every piece."""
        for index in range(len(self.pieces)):
            self.settle(index)
