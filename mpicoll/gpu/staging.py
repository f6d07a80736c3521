"""Host staging: GPU arrays by way of page-locked host memory.

The messages of a plan are copied and sent in pieces, by a few blocks of page-locked memory in
turn: while one piece is being sent, the next is copied from the GPU, and the receiver copies the
one before to its GPU. A plan locks `MAX_PIECES` pieces at most whatever its messages are, or
`MIN_PIECES` for each message of a round where that is more.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import NamedTuple, Protocol

from mpicoll.backend import Array, Message

MAX_PIECES, MIN_PIECES = 16, 4
"""Pieces of page-locked memory for the messages of a round, and the least for each message."""


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

    The blocks of a round lie beside each other, and those of the next one lie there again: when a
    round begins, the messages of the one before are complete, and `wait` says when the GPU has
    copied what they brought.
    """

    def __init__(self, copies: Copies) -> None:
        self.copies = copies
        self.blocks: list[Array] = []
        self.used = 0
        self.last: list[Event] = []
        self.lock = threading.Lock()
        self.every: list[Array] = []
        # CuPy's pool hands freed memory out again at once (PinnedMemoryPool.free), though an upload
        # from there may be queued; torch's waits for it (CachingHostAllocator).
        weakref.finalize(self, _keep, self.every, self.last, os.getpid()).atexit = False

    def allocate(self, data: Array) -> Array:
        """Return memory that no other block of this round has, of the plan's dtype."""
        if self.used == len(self.blocks):
            self.blocks.append(self._new(data))
        elif len(self.blocks[self.used]) < len(data):
            self.blocks[self.used] = self._new(data)
        self.used += 1
        return self.blocks[self.used - 1][: len(data)]

    def _new(self, data: Array) -> Array:
        self.every.append(self.copies.allocate(data))
        return self.every[-1]

    def copy(self, target: Array, source: Array) -> Event:
        """Start a copy; it comes after those before, as a plan's runs go on one stream in order."""
        with self.lock:
            event = self.copies.copy(target, source)
            self.last[:] = [event]
        return event

    def wait(self) -> None:
        """Wait for all copies that have been started."""
        for event in self.last:
            event.synchronize()


class Mirrors:
    """The page-locked memory of the plans of a group, by their tags."""

    def __init__(self) -> None:
        self.mirrors: weakref.WeakValueDictionary[int, Mirror] = weakref.WeakValueDictionary()

    def for_round(self, tag: int, copies: Copies) -> Mirror:
        """Return the memory for the messages of one more round of a plan.

        Args:
            tag: negative for a user's own message, which shares its memory with none.
        """
        mirror = self.mirrors.get(tag) or Mirror(copies)
        mirror.used = 0
        if tag >= 0:
            self.mirrors[tag] = mirror
        return mirror


# -- messages in pieces ----------------------------------------------------------------------

Step = Callable[[], object]
"""A copy or a message under way: a test of whether it is complete, or a wait for it."""


class Pieces(NamedTuple):
    """The pieces of all messages of a round to one peer, or from it.

    Attributes:
        gpu: the parts of GPU arrays, in the order in which they are sent.
        host: the page-locked memory of each, which it shares with the one `depth` before it.
    """

    peer: int
    gpu: list[Array]
    host: list[Array]
    depth: int

    @property
    def is_long(self) -> bool:
        """Whether there are more pieces than blocks."""
        return len(self.gpu) > self.depth


def cut(data: Array, piece_bytes: int) -> list[Array]:
    """Return the pieces of a flat array, the same on both sides; one of an empty array."""
    width = data.nbytes // len(data) if len(data) else 1
    step = max(1, piece_bytes // width)
    return [data[start : start + step] for start in range(0, max(1, len(data)), step)]


def pieces_by_peer(messages: Sequence[Message], piece_bytes: int) -> dict[int, list[Array]]:
    """Return the pieces for each peer: the messages of a pair of ranks keep their order."""
    pieces: dict[int, list[Array]] = {}
    for peer, data, *_ in messages:
        pieces.setdefault(peer, []).extend(cut(data, piece_bytes))
    return pieces


def in_blocks(
    mirror: Mirror, receives: dict[int, list[Array]], sends: dict[int, list[Array]]
) -> tuple[list[Pieces], list[Pieces]]:
    """Return the pieces of a round with their page-locked memory."""
    max_blocks = max(MIN_PIECES, MAX_PIECES // max(1, len(receives) + len(sends)))

    def placed(peer: int, gpu: list[Array]) -> Pieces:
        if len(gpu) <= max_blocks:
            return Pieces(peer, gpu, [mirror.allocate(piece) for piece in gpu], len(gpu))
        longest = max(gpu, key=len)
        blocks = [mirror.allocate(longest) for _ in range(max_blocks)]
        host = [block[: len(piece)] for block, piece in zip(cycle(blocks), gpu, strict=False)]
        return Pieces(peer, gpu, host, max_blocks)

    return [placed(*item) for item in receives.items()], [placed(*item) for item in sends.items()]


class Downloads:
    """The copies to the host of pieces that have a block each."""

    def __init__(self, pieces: Pieces, copies: Copies) -> None:
        self.pieces, self.copies = pieces, copies
        self.events: list[Event] = []

    def start(self) -> None:
        """Start all copies."""
        copy, pieces = self.copies.copy, self.pieces
        self.events = [copy(host, gpu) for host, gpu in zip(pieces.host, pieces.gpu, strict=True)]

    def wait(self, number: int) -> None:
        """Wait for the copy of one piece."""
        self.events[number].synchronize()


def sending(
    pieces: Pieces, copy: Callable[[Array, Array], Step], post: Callable[[int], Step]
) -> Iterator[Step]:
    """Copy and send pieces in order; yield what must be complete before it goes on.

    Args:
        copy: starts to copy to the first array from the second.
        post: starts to send the piece of a number from its block.
    """
    _, gpu, host, depth = pieces
    count = len(gpu)

    def download(number: int) -> Step:
        return copy(host[number], gpu[number])

    copies = deque(download(number) for number in range(depth))
    sends: deque[Step] = deque()
    copied = depth
    for number in range(count):
        yield copies.popleft()
        sends.append(post(number))
        # One piece is copied ahead: a copy takes less than a message.
        if copied < count and copied < number + 2:
            yield sends.popleft()
            copies.append(download(copied))
            copied += 1
    yield from sends


def receiving(
    pieces: Pieces, copy: Callable[[Array, Array], Step], post: Callable[[int], Step]
) -> Iterator[Step]:
    """Receive and copy pieces in order; yield what must be complete before it goes on.

    The last copies are under way in the end.

    Args:
        copy: starts to copy to the first array from the second.
        post: starts to receive the piece of a number into its block.
    """
    _, gpu, host, depth = pieces
    count = len(gpu)
    receives = deque(post(number) for number in range(depth))
    copies: deque[Step] = deque()
    posted = depth
    for number in range(count):
        yield receives.popleft()
        copies.append(copy(gpu[number], host[number]))
        # Of the copy of one piece alone the end is not waited for.
        if posted < count and posted < number + depth:
            yield copies.popleft()
            receives.append(post(posted))
            posted += 1


# -- whole arrays ----------------------------------------------------------------------------


class HostStaging:
    """The host memory of a whole flat GPU array.

    Attributes:
        host: the memory.
    """

    def __init__(self, data: Array, copies: Copies) -> None:
        self.gpu, self.host, self.copies = data, copies.allocate(data), copies
        self.last: list[Event] = []
        weakref.finalize(self, _keep, [self.host], self.last, os.getpid()).atexit = False

    def start_to_host(self) -> None:
        """Start to copy the array to the host."""
        self.last[:] = [self.copies.copy(self.host, self.gpu)]

    def start_to_gpu(self) -> None:
        """Start to copy the host's memory to the array."""
        self.last[:] = [self.copies.copy(self.gpu, self.host)]

    def wait(self) -> None:
        """Wait for the last copy."""
        for event in self.last:
            event.synchronize()


def _keep(host: list[Array], last: list[Event], process: int) -> None:
    """Keep host memory until the last copy is done, which a forked child cannot ask about."""
    for event in last if os.getpid() == process else ():
        event.synchronize()
