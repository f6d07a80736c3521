"""Memory that the ranks of a node share: one file for each segment, which all of them map.

The file (Linux's ``memfd_create``) has no name in a file system: the other ranks open it through
``/proc``. So nothing stays, however a process ends, and the limit of ``/dev/shm``, 64 MiB in most
containers, does not apply. Where ranks cannot open each other's files, as in containers of their
own, the file lies in ``/dev/shm``, and has a name until all have mapped it.

Each rank reserves its part before it is mapped: where there is too little memory, that is an error
and not a signal, and the part lies near the rank's core.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from errno import ENOSPC
from typing import Any, NamedTuple

from mpicoll.errors import Unavailable, first_error
from mpicoll.interfaces import Memory
from mpicoll.machine.memory import SHM, available_memory, enlarging
from mpicoll.text.sizes import rounded_size_text

PREFIX = "mpicoll-"


class _File(NamedTuple):
    """A file, as another process finds it: open there, or in ``/dev/shm``.

    Attributes:
        mark: its first bytes, as a path may lead to another file elsewhere, and its name.
    """

    process: int
    descriptor: int
    mark: bytes

    def path(self, *, named: bool) -> str:
        """Return where other processes open it."""
        if named:
            return f"{SHM}/{PREFIX}{self.mark.hex()}"
        return f"/proc/{self.process}/fd/{self.descriptor}"


class Files:
    """Makes segments for the ranks of one node.

    Args:
        exchange: returns every rank's item, in rank order.
        rank: this one.
        node: the ranks of its node, in order.
    """

    def __init__(self, exchange: Callable[..., list[Any]], rank: int, node: Sequence[int]) -> None:
        self.exchange, self.rank, self.node = exchange, rank, node

    def map(self, nbytes: int) -> list[Memory]:
        """Return a part of at least `nbytes` for each rank of the node, in order; collective.

        Raises:
            Unavailable: on all ranks alike, where one has too little memory or cannot map it.
        """
        nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            return self._map(nbytes, named=False)
        except Unavailable:
            return self._map(nbytes, named=True)

    def _map(self, nbytes: int, *, named: bool) -> list[Memory]:
        first, size = self.node[0], nbytes * len(self.node)
        parts: list[Memory] = []
        with ExitStack() as stack:

            def prepare() -> _File | None:
                _check_room(size)
                return (
                    stack.enter_context(_created(size, named=named)) if self.rank == first else None
                )

            file = self._agreed(size, prepare)[first]
            assert file is not None
            self._agreed(size, lambda: parts.extend(self._parts(file, nbytes, named=named)))
        return parts

    def _parts(self, file: _File, nbytes: int, *, named: bool) -> Iterator[Memory]:
        """Reserve this rank's part of a file; return the parts of all, mapped."""
        index, size = self.node.index(self.rank), nbytes * len(self.node)
        path = file.path(named=named)
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW * named)
        try:
            found = os.fstat(handle)
            if (found.st_uid, found.st_size) != (os.geteuid(), size) or (
                os.pread(handle, len(file.mark), 0) != file.mark
            ):
                raise OSError(f"{path} is another file here")
            os.posix_fallocate(handle, index * nbytes, nbytes)
            mapped = memoryview(mmap.mmap(handle, size))
        finally:
            os.close(handle)
        return (mapped[start : start + nbytes] for start in range(0, size, nbytes))

    def _agreed(self, size: int, step: Callable[[], _File | None]) -> list[_File | None]:
        """Return every rank's result of a step, or raise Unavailable on all where one fails."""
        result, failure = None, ""
        try:
            result = step()
        except (OSError, MemoryError) as error:
            failure = f"no shared memory: rank {self.rank}: {error}"
            if isinstance(error, OSError) and error.errno == ENOSPC:
                failure += f" in {SHM}: {enlarging(2 * size)}"
        every = self.exchange((result, failure), tuple[_File | None, str])
        if failure := first_error(each for _, each in every):
            raise Unavailable(failure)
        return [found for found, _ in every]


def _check_room(nbytes: int) -> None:
    """Raise MemoryError where the ranks of a node cannot take so many bytes together."""
    left = available_memory()
    if nbytes > left:
        raise MemoryError(
            f"{rounded_size_text(nbytes)} for the ranks of its node, "
            f"where {rounded_size_text(left)} of memory are left"
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
