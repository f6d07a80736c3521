"""Host staging: GPU arrays by way of page-locked host memory.

An array is copied and sent in pieces, so that copies and messages overlap: while one piece is
being sent, the next is copied from the GPU, and the receiver copies the one before to its GPU.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from mpicoll.interfaces import Array

PIECE_BYTES = 1 << 20
"""Bytes that are copied and sent at a time, the same on all ranks."""


class Event(Protocol):
    """A point in a stream of GPU work."""

    def synchronize(self) -> object:
        """Wait until the GPU has reached it."""


class Copies(Protocol):
    """Copies between a GPU and the host: `mpicoll.mpi.staging` and `torchcoll.staging`."""

    def allocate(self, data: Array) -> Array:
        """Return page-locked host memory of the shape and dtype of a flat GPU array."""

    def copy(self, target: Array, source: Array) -> Event:
        """Start a copy on the caller's stream; return the event of its end."""


class StagedPiece(NamedTuple):
    """A part of a GPU array, and the host memory for it."""

    gpu: Array
    host: Array


class HostStaging:
    """The host memory of a flat GPU array.

    Args:
        piece_bytes: how many bytes are copied at a time; None for all at once.
    """

    def __init__(self, data: Array, copies: Copies, piece_bytes: int | None) -> None:
        host, self.copies = copies.allocate(data), copies
        width = data.nbytes // len(data) if len(data) else 1
        step = max(1, len(data) if piece_bytes is None else piece_bytes // width)
        self.pieces = [
            StagedPiece(data[start : start + step], host[start : start + step])
            for start in range(0, max(1, len(data)), step)
        ]
        self.events: list[Event | None] = [None] * len(self.pieces)
        # CuPy's pool hands freed memory out again at once (PinnedMemoryPool.free), though an upload
        # from there may be queued; torch's waits for it (CachingHostAllocator).
        weakref.finalize(self, _keep, host, self.events).atexit = False

    def start_to_host(self) -> None:
        """Start to copy every piece to the host."""
        for index, piece in enumerate(self.pieces):
            self.events[index] = self.copies.copy(piece.host, piece.gpu)

    def start_to_gpu(self, index: int) -> None:
        """Start to copy one piece to the GPU."""
        piece = self.pieces[index]
        self.events[index] = self.copies.copy(piece.gpu, piece.host)

    def start_all_to_gpu(self) -> None:
        """Start to copy every piece to the GPU."""
        for index in range(len(self.pieces)):
            self.start_to_gpu(index)

    def wait(self, index: int) -> None:
        """Wait for the last copy of one piece."""
        event = self.events[index]
        if event is not None:
            event.synchronize()

    def wait_all(self) -> None:
        """Wait for the last copy of every piece."""
        for index in range(len(self.pieces)):
            self.wait(index)


def _keep(host: Array, events: Sequence[Event | None]) -> None:
    """Keep host memory until the last copies are done."""
    for event in events:
        if event is not None:
            event.synchronize()
