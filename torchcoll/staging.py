"""GPU tensors under gloo, which reads host memory only: copies to the host and back.

Its counterpart is `mpicoll.mpi.staging`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from mpicoll.backend import Array, Stream
from mpicoll.gpu.staging import Step
from mpicoll.machine.background import background


class TorchCopies:
    """`mpicoll.gpu.staging.Copies` for tensors."""

    def allocate(self, data: Array) -> Array:
        return torch.empty(data.shape, dtype=data.dtype, device="cpu", pin_memory=data.is_cuda)

    def copy(self, target: Array, source: Array) -> torch.cuda.Event:
        target.copy_(source, non_blocking=True)
        device = source.device if source.is_cuda else target.device
        event: torch.cuda.Event = torch.cuda.current_stream(device).record_event()
        return event


class StagedWork:
    """The pieces for one peer in one direction, as a work of torch.

    gloo's sends and receives end in a wait alone. So a thread waits for them, as the next piece may
    be what another rank waits for.

    Args:
        steps: begins to send or receive, and yields the waits in turn.
        stream: returns the caller's.
    """

    def __init__(self, steps: Callable[[], Iterator[Step]], stream: Callable[[], Stream]) -> None:
        waits = steps()
        first = next(waits)
        self._future = background(partial(_go_on, stream(), first, waits), "torchcoll wait")

    def wait(self, _timeout: object) -> None:
        self._future.result()


def _go_on(stream: Stream, first: Step, steps: Iterator[Step]) -> None:
    with stream.use():
        first()
        for wait in steps:
            wait()
