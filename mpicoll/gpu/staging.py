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


class Mirror:
    """The page-locked memory of one plan, whose rounds use it in turn; `Copies` for each of them.

    The messages of a round lie beside each other, and those of the next one lie there again: when a
    round begins, the messages of the one before are complete, and `wait` says when the GPU has
    copied what they brought.
    """

    def __init__(self, copies: Copies) -> None:
        self.copies = copies
        self.blocks: list[Array] = []
        self.used = 0
        self.last: Event | None = None

    def allocate(self, data: Array) -> Array:
        """Return memory that no other message of this round has, of the plan's dtype."""
        if self.used == len(self.blocks):
            self.blocks.append(self.copies.allocate(data))
        elif len(self.blocks[self.used]) < len(data):
            self.blocks[self.used] = self.copies.allocate(data)
        self.used += 1
        return self.blocks[self.used - 1][: len(data)]

    def copy(self, target: Array, source: Array) -> Event:
        """Start a copy; it comes after those before, as a plan's runs go on one stream in order."""
        self.last = self.copies.copy(target, source)
        return self.last

    def wait(self) -> None:
        """Wait for all copies that have been started."""
        if self.last is not None:
            self.last.synchronize()


class Mirrors:
    """The page-locked memory of the plans of a group, by their tags."""

    def __init__(self) -> None:
        self.found: weakref.WeakValueDictionary[int, Mirror] = weakref.WeakValueDictionary()

    def for_round(self, tag: int, copies: Copies) -> Mirror:
        """Return the memory for the messages of one more round of a plan.

        Args:
            tag: negative for a user's own message, which shares its memory with none.
        """
        mirror = self.found.get(tag) or Mirror(copies)
        mirror.used = 0
        if tag >= 0:
            self.found[tag] = mirror
        return mirror


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
