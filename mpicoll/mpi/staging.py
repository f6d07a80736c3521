"""CuPy arrays under an MPI that reads host memory only: copies to the host and back.

Its counterpart is `torchcoll.staging`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mpicoll.backend import Array
from mpicoll.gpu.staging import Step
from mpicoll.mpi.arrays import is_cupy


class CupyCopies:
    """`mpicoll.gpu.staging.Copies` for CuPy arrays and NumPy's."""

    def allocate(self, data: Array) -> Any:
        cupy = sys.modules["cupy"]
        memory = cupy.cuda.alloc_pinned_memory(max(1, data.nbytes))
        return np.frombuffer(memory, data.dtype, data.size).reshape(data.shape)

    def copy(self, target: Array, source: Array) -> Any:
        cuda = sys.modules["cupy"].cuda
        runtime, to_host = cuda.runtime, is_cupy(source)
        kind = runtime.memcpyDeviceToHost if to_host else runtime.memcpyHostToDevice
        # A thread may have another GPU, and the null stream and a new event are those of its own.
        with (source if to_host else target).device:
            stream = cuda.get_current_stream()
            if source.nbytes:
                span = _address(target), _address(source), source.nbytes
                runtime.memcpyAsync(*span, kind, stream.ptr)
            return stream.record()

    def is_done(self, event: Any) -> bool:
        return bool(event.done)


class StagedMessages:
    """Messages in pieces, which go on as they are tested.

    Args:
        lanes: for each peer and direction, what begins and returns the tests in turn.
    """

    def __init__(self, lanes: Sequence[Callable[[], Iterator[Step]]]) -> None:
        self.lanes = lanes
        self.under_way: list[tuple[Iterator[Step], Step]] = []

    def start(self) -> None:
        """Post the first receives, and start the first copies."""
        self.under_way = [(steps, next(steps)) for steps in (begin() for begin in self.lanes)]

    def test(self) -> bool:
        """Go on as far as is possible without waiting; whether all have come to their end."""
        self.under_way = [lane for lane in map(_advanced, self.under_way) if lane is not None]
        return not self.under_way


def _advanced(lane: tuple[Iterator[Step], Step]) -> tuple[Iterator[Step], Step] | None:
    """Return where a lane is now; None where it has come to its end."""
    steps, test = lane
    while test():
        following = next(steps, None)
        if following is None:
            return None
        test = following
    return steps, test


def _address(x: Array) -> int:
    return int(x.data.ptr if is_cupy(x) else x.ctypes.data)
