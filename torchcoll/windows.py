"""Memory that the ranks of a node share without MPI: one anonymous file per rank and segment.

Its counterpart is `mpicoll.mpi.windows`.

The files (Linux's ``memfd_create``) never have a name in a file system: the others open them
through ``/proc``, by process and descriptor. So nothing stays in ``/dev/shm``, however a process
ends, and the size limit of that, 64 MiB in most containers, does not apply.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from mpicoll.errors import Unavailable
from mpicoll.interfaces import Memory


class Files:
    """`mpicoll.interfaces.Segments` over anonymous files."""

    def __init__(self, exchange: Callable[..., list[Any]], rank: int, node: Sequence[int]) -> None:
        self.exchange, self.rank, self.node = exchange, rank, node
        self.held = threading.Lock()
        self.held.acquire()

    def map(self, nbytes: int) -> list[Memory]:
        """Create this rank's file and return every rank's, mapped, in the node's rank order."""
        handle, mapped, failure = -1, [], ""
        try:
            handle = os.memfd_create("torchcoll")
            os.posix_fallocate(handle, 0, nbytes)
        except OSError as error:
            failure = f"rank {self.rank} cannot create {nbytes} bytes: {error.strerror}"
        handles = self.exchange((os.getpid(), handle), tuple[int, int])
        if not failure:
            try:
                mapped = [
                    _mapped(process, descriptor, nbytes)
                    for process, descriptor in map(handles.__getitem__, self.node)
                ]
            except OSError as error:
                failure = f"rank {self.rank} cannot map memory of its node: {error}"
        failures = self.exchange(failure)
        with suppress(OSError):
            os.close(handle)
        if any(failures):
            raise Unavailable("no shared memory: " + next(filter(None, failures)))
        return mapped

    def fence(self) -> None:
        """Order this rank's loads and stores before the call before those after it.

        A release followed by an acquire is a full fence; POSIX (base definitions, 4.15)
        demands as much of both.
        """
        self.held.release()
        self.held.acquire()

    def progress(self) -> None:
        """Do nothing: gloo and NCCL move messages on threads of their own."""

    def close(self, *, held: bool) -> None:
        """Do nothing: a mapping ends with the last array in it."""


def _mapped(process: int, descriptor: int, nbytes: int) -> Memory:
    """Map an anonymous file that another process of this user has open, and nothing else."""
    handle = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    try:
        file = os.fstat(handle)
        if (file.st_uid, file.st_nlink, file.st_size) != (os.geteuid(), 0, nbytes):
            raise OSError(f"descriptor {descriptor} of process {process} is no such memory")
        return memoryview(mmap.mmap(handle, nbytes))
    finally:
        os.close(handle)
