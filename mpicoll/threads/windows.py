"""Memory that the ranks of a node share as threads: all can use every allocation.

Its counterparts are `mpicoll.mpi.windows` and `torchcoll.windows`.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Sequence
from typing import Any

from mpicoll.interfaces import Memory


class Pages:
    """`mpicoll.interfaces.Segments` over pages of this process.

    Args:
        gather: returns every rank's object, in rank order; collective.
    """

    def __init__(self, gather: Callable[[Any], list[Any]], node: Sequence[int]) -> None:
        self.gather, self.node = gather, node
        self.held = threading.Lock()

    def map(self, nbytes: int) -> list[Memory]:
        """Allocate this rank's segment and return every rank's, in the node's rank order."""
        every = self.gather(memoryview(mmap.mmap(-1, nbytes)))
        return [every[rank] for rank in self.node]

    def fence(self) -> None:
        """Order this rank's loads and stores before the call before those after it."""
        with self.held:
            pass

    def progress(self) -> None:
        """Do nothing: a message is delivered by its sender."""

    def close(self, *, held: bool) -> None:
        """Do nothing: pages go with the last array in them."""
