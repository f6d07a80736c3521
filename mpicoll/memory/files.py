"""Memory that the ranks of a node share: one file for each segment, which all of them map.

The file (Linux's ``memfd_create``) has no name in a file system: the other ranks open it through
``/proc``. So nothing stays, however a process ends, and the limit of ``/dev/shm``, 64 MiB in most
containers, does not apply. Where ranks cannot open each other's files, as in containers of their
own, the file lies in ``/dev/shm``, and has a name until all have mapped it.

Each rank reserves memory of its part before it is used: where there is too little, that is an error
and not a signal, and the memory lies near the rank's core. It is given back when it is free.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from errno import ENOSPC
from typing import Any, NamedTuple

from mpicoll.errors import Disagreement, Unavailable
from mpicoll.text.opening import open_by_name

PREFIX = "mpicoll-"
SWITCH = "MPICOLL_SYMMETRIC"
_FILE = struct.Struct("<2q16s")
_DONE = b"\0"
"""The first byte of a rank's result, which a reason does not have."""


def is_switched_off() -> bool:
    """Whether the environment turns shared memory off."""
    return os.environ.get(SWITCH, "").lower() in ("0", "off", "no", "false")


class _File(NamedTuple):
    """A file, as another process finds it: open there, or in ``/dev/shm``.

    Attributes:
        mark: its first bytes, as a path may lead to another file elsewhere, and its name.
    """

    process: int
    descriptor: int
    mark: bytes

    @classmethod
    def decoded(cls, rank: int, data: bytes) -> _File:
        """Return the file of a rank, which sent it as `_FILE` packs it."""
        if len(data) != _FILE.size:
            raise Disagreement(f"rank {rank} sent something unexpected: {len(data)} bytes")
        return cls(*_FILE.unpack(data))

    def path(self, *, named: bool) -> str:
        """Return where other processes open it."""
        if named:
            from mpicoll.machine.memory import SHM  # a program starts without

            return f"{SHM}/{PREFIX}{self.mark.hex()}"
        return f"/proc/{self.process}/fd/{self.descriptor}"


class Segment:
    """A file that all ranks of a node map.

    Attributes:
        parts: that of each rank, in order.
        number: the same on all ranks, and another one for each segment.

    Args:
        handle: the file's descriptor, which this object closes.
        index, ranks: this rank's place among the ranks of its node, and how many these are.
        nbytes: of each part, whole pages.
        is_named: it lies in a file system, which may be full.
    """

    def __init__(
        self, handle: int, index: int, ranks: int, nbytes: int, number: int, *, is_named: bool
    ) -> None:  # fmt: skip
        weakref.finalize(self, os.close, handle)
        self.number, self.is_named = number, is_named
        self.process, self.handle, self.ranks = os.getpid(), handle, ranks
        self.mapped = _mapped(handle, ranks * nbytes)
        self.start, whole = index * nbytes, memoryview(self.mapped)
        self.parts = [whole[part * nbytes : (part + 1) * nbytes] for part in range(ranks)]

    def reserve(self, start: int, length: int) -> None:
        """Take memory for bytes of this rank's part.

        Raises:
            Unavailable: there is too little of it.
        """
        try:
            _check_room(length * self.ranks)
            os.posix_fallocate(self.handle, self.start + start, length)
        except (OSError, MemoryError) as error:
            raise Unavailable(_reason(error, length * self.ranks)) from None

    def release(self, start: int, length: int) -> None:
        """Give the memory of free bytes back, in whole pages, which read as zeros then."""
        first = -(-(self.start + start) // mmap.PAGESIZE) * mmap.PAGESIZE
        stop = (self.start + start + length) // mmap.PAGESIZE * mmap.PAGESIZE
        # A forked child sees its parent's memory; where the kernel keeps it, it is used again.
        if stop > first and os.getpid() == self.process:
            with suppress(OSError):
                self.mapped.madvise(mmap.MADV_REMOVE, first, stop - first)


def _mapped(handle: int, size: int) -> mmap.mmap:
    """Map a file; without another descriptor of it, where Python can."""
    if sys.version_info >= (3, 13):
        return mmap.mmap(handle, size, trackfd=False)
    return mmap.mmap(handle, size)


class Files:
    """Makes segments for the ranks of one node.

    Args:
        exchange: returns every rank's item of a type, in rank order.
        rank: this one.
        node: the ranks of its node, in order.
    """

    def __init__(self, exchange: Callable[..., list[Any]], rank: int, node: Sequence[int]) -> None:
        self.exchange, self.rank, self.node = exchange, rank, node

    def map(self, nbytes: int, reserved: int = 0) -> Segment:
        """Return a segment with a part of at least `nbytes` for each rank; collective.

        Args:
            reserved: so many bytes of each part are reserved, too.

        Raises:
            Unavailable: on all ranks alike, where one has too little memory or cannot map it.
        """
        nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            return self._map(nbytes, reserved, named=False)
        except Unavailable:
            return self._map(nbytes, reserved, named=True)

    def _map(self, nbytes: int, reserved: int, *, named: bool) -> Segment:
        first, size = self.node[0], nbytes * len(self.node)
        segments: list[Segment] = []
        with ExitStack() as stack:

            def prepare() -> bytes:
                if self.rank != first:
                    return b""
                return _FILE.pack(*stack.enter_context(_created(size, named=named)))

            file = _File.decoded(first, self._agreed(size, prepare)[first])

            def open_file() -> bytes:
                segments.append(self._opened(file, nbytes, named=named))
                if reserved:
                    segments[0].reserve(0, reserved)
                return b""

            self._agreed(size, open_file)
        return segments[0]

    def _opened(self, file: _File, nbytes: int, *, named: bool) -> Segment:
        path, size = file.path(named=named), nbytes * len(self.node)
        # A file without a name is opened by a link of the kernel's.
        handle = open_by_name(path, os.O_RDWR, is_of_user=not named)
        try:
            status = os.fstat(handle)
            if (status.st_uid, status.st_size) != (os.geteuid(), size) or (
                os.pread(handle, len(file.mark), 0) != file.mark
            ):
                raise OSError(f"{path} is another file here")
        except BaseException:
            os.close(handle)
            raise
        return Segment(
            handle, self.node.index(self.rank), len(self.node), nbytes,
            int.from_bytes(file.mark[:7]) + 1, is_named=named,
        )  # fmt: skip

    def _agreed(self, size: int, step: Callable[[], bytes]) -> list[bytes]:
        """Return every rank's result of a step, or raise Unavailable on all where one fails."""
        try:
            result = _DONE + step()
        except (OSError, MemoryError, Unavailable) as error:
            reason = f"no shared memory: rank {self.rank}: {_reason(error, size)}"
            result = reason.encode(errors="replace")
        results = self.exchange(result, bytes)
        for data in results:
            if data[:1] != _DONE:
                raise Unavailable(data.decode(errors="replace"))
        return [data[1:] for data in results]


def _reason(error: Exception, nbytes: int) -> str:
    """Return the text of an error, and how a file system gets room for so many bytes."""
    if isinstance(error, OSError) and error.errno == ENOSPC:
        from mpicoll.machine.memory import SHM, enlarging

        return f"{error} in {SHM}: {enlarging(2 * nbytes)}"
    return str(error)


def _check_room(nbytes: int) -> None:
    """Raise MemoryError where the ranks of a node cannot take so many bytes together."""
    from mpicoll.machine.memory import available_memory  # a program starts without

    available = available_memory()
    if nbytes > available:
        from mpicoll.text.sizes import rounded_size_text

        raise MemoryError(
            f"{rounded_size_text(nbytes)} for the ranks of its node, "
            f"where {rounded_size_text(available)} of memory are left"
        )


@contextmanager
def _created(size: int, *, named: bool) -> Iterator[_File]:
    """Make a file that others can open until this context ends."""
    mark = os.urandom(16)
    if named:
        path = _File(0, 0, mark).path(named=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    else:
        handle = os.memfd_create("mpicoll")
    try:
        os.ftruncate(handle, size)
        os.pwrite(handle, mark, 0)
        yield _File(os.getpid(), handle, mark)
    finally:
        os.close(handle)
        if named:
            os.unlink(path)
