"""Memory that the ranks of a node share under MPI: one shared window per segment.

Its counterpart is `torchcoll.windows`.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

from mpicoll.interfaces import Memory


class Windows:
    """`mpicoll.interfaces.Segments` over MPI shared windows (MPI-4.1, section 12.2.3)."""

    def __init__(self, comm: MPI.Comm, node: Sequence[int]) -> None:
        self.local = MPI.Intracomm(comm.Split(node[0], comm.rank))
        self.windows: list[MPI.Win] = []
        self.process = os.getpid()
        # Some networks cannot be closed by MPI_Finalize while there are windows.
        atexit.register(_at_exit, weakref.ref(self))

    def map(self, nbytes: int) -> list[Memory]:
        """Allocate a window and return every rank's part of it, in the node's rank order."""
        window = MPI.Win.Allocate_shared(nbytes, 1, comm=self.local)
        window.Lock_all(MPI.MODE_NOCHECK)
        self.windows.append(window)
        self.local.Barrier()
        parts = [window.Shared_query(rank)[0] for rank in range(self.local.size)]
        return [memoryview(part)[:nbytes] for part in parts]  # type: ignore[arg-type]

    def fence(self) -> None:
        """Order this rank's loads and stores before the call before those after it."""
        self.windows[0].Sync()

    def progress(self) -> None:
        """Let MPI move messages of its own."""
        # A plan may outlive its group.
        if self.local != MPI.COMM_NULL:
            self.local.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)

    def close(self, *, held: bool) -> None:
        """Free the windows, unless a rank still uses them; collective over the node."""
        if MPI.Is_finalized():
            return
        on_any = np.array([held])
        self.local.Allreduce(MPI.IN_PLACE, on_any, MPI.LOR)
        if on_any[0]:
            _KEPT.append(self)
        else:
            self._free()
        self.local.Free()

    def _free(self) -> None:
        for window in self.windows:
            window.Unlock_all()
            window.Free()
        self.windows.clear()


def _at_exit(ref: weakref.ref[Windows]) -> None:
    """Free the windows of a group that was not freed; a forked child leaves them to its parent."""
    kept = ref()
    if kept is not None and kept.process == os.getpid() and not MPI.Is_finalized():
        kept._free()


_KEPT: list[Windows] = []
"""Windows of groups that were freed while arrays or plans still used them."""
