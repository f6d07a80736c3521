"""GPU tensors under gloo, which reads host memory only: copies to the host and back.

Its counterpart is `mpicoll.mpi.staging`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import torch

from mpicoll.backend import Array, Stream
from mpicoll.gpu.staging import Step
from torchcoll.requests import Works, in_background


class TorchCopies:
    """`mpicoll.gpu.staging.Copies` for tensors."""

    def allocate(self, data: Array) -> Array:
        return torch.empty(data.shape, dtype=data.dtype, device="cpu", pin_memory=data.is_cuda)

    def copy(self, target: Array, source: Array) -> torch.cuda.Event:
        target.copy_(source, non_blocking=True)
        device = source.device if source.is_cuda else target.device
        event: torch.cuda.Event = torch.cuda.current_stream(device).record_event()
        return event

    def is_done(self, event: Any) -> bool:
        return bool(event.query())


class StagedMessages:
    """The messages of a round, some of them in more pieces than blocks.

    gloo's sends and receives end in a wait alone. So each peer and direction has a thread, as the
    next piece of one may be what another rank waits for while this one waits for another.

    Args:
        lanes: for each peer and direction, what begins and returns the waits in turn.
        works: the other messages.
        stream: returns the caller's.
    """

    def __init__(
        self, lanes: Sequence[Callable[[], Iterator[Step]]], works: Works,
        stream: Callable[[], Stream],
    ) -> None:  # fmt: skip
        self.lanes, self.works, self.stream = lanes, works, stream
        self.waiting: list[Future[None]] = []
        self.under_way = False

    def start(self) -> None:
        """Post the first receives, start the first copies, and let threads go on."""
        self.under_way, stream = True, self.stream()
        lanes = [begin() for begin in self.lanes]
        first = [next(lane) for lane in lanes]
        self.works.start()
        self.waiting = [
            in_background(partial(_go_on, stream, *step_and_lane))
            for step_and_lane in zip(first, lanes, strict=True)
        ]

    def wait(self) -> None:
        """Wait until all pieces have been sent or received."""
        if self.under_way:
            self.works.wait()
            for future in self.waiting:
                future.result()
            self.under_way, self.waiting = False, []

    def test(self) -> bool:
        """Whether all have; the messages that need a wait are waited for beside the caller."""
        are_done = all(future.done() for future in self.waiting)
        if self.under_way and self.works.test() and are_done:
            self.wait()
        return not self.under_way


def _go_on(stream: Stream, first: Step, steps: Iterator[Step]) -> None:
    with stream.use():
        first()
        for wait in steps:
            wait()
