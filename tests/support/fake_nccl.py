"""A fake NCCL on fake GPUs: one stream for each communicator, batches in order, no tags.

A communicator is made in its first call, by all ranks. A batch begins when the work that the
caller's stream held is done and the batch before has ended, and ends when its own messages have.
Messages between two ranks are matched by their order alone. Whatever waits for ever on a real one
ends with TimeoutError here. An abort ends what is under way, and the communicator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, NamedTuple

import fake_gpu
import pytest
import torch
import torch.distributed as dist

from mpicoll import Collectives
from mpicoll.machine.hidden_threads import HiddenThread

SECONDS = 15.0


class Operation(NamedTuple):
    """A send or a receive of a batch."""

    sends: bool
    tensor: Any
    peer: int


class Batch:
    """Operations that run together, and the work that comes before them."""

    def __init__(self, before: Sequence[Callable[[], object]], messages: Sequence[Any]) -> None:
        self.before, self.messages = before, messages
        self.begun, self.ended = threading.Event(), threading.Event()
        self.error: BaseException | None = None

    def begin(self) -> None:
        """Wait until what came before has been done."""
        self._wait(self.begun)

    def wait(self) -> None:
        """Wait until it has ended."""
        self._wait(self.ended)

    def end(self) -> None:
        """Let go whatever waits for it."""
        self.begun.set()
        self.ended.set()

    def _wait(self, event: threading.Event) -> None:
        if not event.wait(SECONDS):
            raise TimeoutError("NCCL's stream waits for ever")
        if self.error is not None:
            raise self.error


class Work:
    """`torch.distributed.Work`: a wait holds up the stream, not the host."""

    def __init__(self, batch: Batch, stream: fake_gpu.Stream) -> None:
        self.batch, self.stream = batch, stream

    def wait(self) -> None:
        self.stream.work.append(self.batch.wait)

    def is_completed(self) -> bool:
        return self.batch.ended.is_set()


class Communicator:
    """NCCL's communicator of one group, over a group of gloo; torch's ProcessGroupNCCL, too.

    Attributes:
        open: the operations of a batch that has begun.
    """

    def __init__(self, wire: Any, stream: fake_gpu.Stream) -> None:
        self.wire, self.stream, self.batches = wire, stream, 0
        self.aborted, self.posted = False, list[Batch]()
        self.queue: SimpleQueue[Batch | None] = SimpleQueue()
        self.thread: HiddenThread | None = None
        self.open: list[Operation] | None = None

    supports_coalescing = True

    def _get_backend(self, device: Any) -> Communicator:
        return self

    def rank(self) -> int:
        return int(self.wire.rank())

    def make(self) -> None:
        """Return when all ranks have called, as ncclCommInitRank does."""
        if self.thread is not None:
            return
        options = dist.BarrierOptions()
        options.timeout = timedelta(seconds=SECONDS)
        try:
            self.wire.barrier(options).wait()
        except RuntimeError as error:
            raise TimeoutError("ncclCommInitRank waits for the other ranks for ever") from error
        self.thread = HiddenThread(self._serve, "fake NCCL")

    def abort(self) -> None:
        self.aborted = True
        for each in self.posted:
            each.end()

    def allreduce(self, tensors: list[Any], options: Any) -> Work:
        """Connect the ranks, as the first call of a communicator does; it reduces nothing."""
        return self.post([])

    def _start_coalescing(self, device: Any) -> None:
        assert self.open is None
        self.open = []

    def send(self, tensors: list[Any], peer: int, tag: int) -> None:
        self._add(Operation(True, tensors[0], peer))

    def recv(self, tensors: list[Any], peer: int, tag: int) -> None:
        self._add(Operation(False, tensors[0], peer))

    def _add(self, operation: Operation) -> None:
        assert self.open is not None, "a message alone may wait for ever"
        self.check()
        self.open.append(operation)

    def _end_coalescing(self, device: Any) -> Work:
        assert self.open is not None
        operations, self.open = self.open, None
        return self.post(operations)

    def post(self, operations: Sequence[Operation]) -> Work:
        self.check()
        self.make()
        self.batches += 1
        batch = Batch([*self.stream.work], operations)
        self.stream.work.clear()
        self.stream.work.append(batch.begin)
        self.posted.append(batch)
        self.queue.put(batch)
        return Work(batch, self.stream)

    def check(self) -> None:
        if self.aborted:
            raise dist.DistBackendError("NCCL communicator was aborted")

    def _serve(self) -> None:
        while (batch := self.queue.get()) is not None:
            try:
                for thunk in batch.before:
                    thunk()
                batch.begun.set()
                posted = [self._start(each) for each in batch.messages]
                for work in posted:
                    work.wait(timedelta(seconds=SECONDS))
            except Exception as error:
                batch.error = None if self.aborted else error
            batch.end()

    def _start(self, each: Operation) -> Any:
        how = self.wire.send if each.sends else self.wire.recv
        return how([each.tensor], each.peer, 0)

    def close(self) -> None:
        self.queue.put(None)


def install(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> Communicator:
    """Give each rank of a group a GPU of its own, and the group NCCL."""
    from torchcoll.nccl import Nccl

    wire = c.split(0)
    assert wire is not None
    arrays = fake_gpu.install(c)
    transport: Any = c.transport
    communicator = Communicator(wire.transport.group, arrays.stream(c.gpu()))  # type: ignore[attr-defined]
    # The tensors lie on the host in truth, whose device has no number.
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr("torchcoll.requests.nccl_of", lambda group: communicator)
    transport.nccl = Nccl(communicator)
    return communicator
