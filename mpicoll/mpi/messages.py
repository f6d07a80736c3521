"""The messages of one round over mpi4py: persistent requests, and pieces through the host.

Its counterpart is `torchcoll.messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from mpicoll.backend import Array, Message, Messages, Poll, Stage, Thunk
from mpicoll.mpi.requests import Resources, Waits
from mpicoll.peers.transport import PeerTransport

if TYPE_CHECKING:
    from mpicoll.gpu.staging import Mirror, Pieces, Step
    from mpicoll.mpi.arrays import MpiArrays
    from mpicoll.mpi.gpu_awareness import GpuAwareness
    from mpicoll.mpi.staging import CupyCopies, StagedMessages

_MAX_SINGLE_STARTS = 3
"""More requests than these are started by one call, and waited for by one."""


class MpiMessages(PeerTransport):
    """The binder of the messages in the rounds of one group."""

    plans_comm: MPI.Comm
    arrays: MpiArrays
    gpu: GpuAwareness

    @cached_property
    def copies(self) -> CupyCopies:
        """How arrays are copied between GPU and host."""
        from mpicoll.mpi.staging import CupyCopies

        return CupyCopies()

    def messages(
        self, sends: Sequence[Message], receives: Sequence[Message], tag: int, stage: Stage
    ) -> Messages:
        """Bind one round to persistent requests."""
        resources, waits = Resources(), Waits(self.peers, stage)
        starts: list[Thunk] = []
        ends: list[Poll | Thunk] = []
        comm = self.plans_comm
        if any(message.nbytes for message in (*receives, *sends)):
            return self._unbound(sends, receives, tag, resources, waits)
        requests: list[MPI.Prequest] = []
        for messages, init in ((receives, comm.Recv_init), (sends, comm.Send_init)):
            for peer, data, *_ in messages:
                if self._needs_staging(data):
                    continue
                # A stream may still be at work on memory that MPI is about to read or write.
                if not self.arrays.is_on_host(data):
                    starts.append(partial(self.arrays.synchronize, data))
                requests.append(resources.add(init(as_buffer(data), peer, tag)))
                waits.requests.append((requests[-1], peer))
        if 0 < len(requests) <= _MAX_SINGLE_STARTS:
            starts += [waits.begin(request.Start) for request in requests]
            ends += [waits.poll(request.Test) for request in requests]
        elif requests:
            starts.append(waits.begin(partial(MPI.Prequest.Startall, requests)))
            ends.append(waits.poll(partial(MPI.Request.Testall, requests)))
        if staged := self._staged(receives, sends, tag):
            mirror, received, sent = staged
            starts.insert(0, mirror.wait)
            if any(pieces.is_long for pieces in (*received, *sent)):
                in_turn = self._in_turn(received, sent, mirror, tag, resources, waits)
                starts.insert(1, waits.begin(in_turn.start))
                # The next piece of a message may be what another rank waits for.
                ends.insert(0, waits.poll(in_turn.test))
            else:
                self._at_once(received, sent, mirror, tag, resources, waits, starts, ends)
        return Messages(
            tuple(starts), tuple(ends), resources.free, waits.lost, waits.look, waits.translated
        )

    def _unbound(
        self, sends: Sequence[Message], receives: Sequence[Message], tag: int,
        resources: Resources, waits: Waits,
    ) -> Messages:  # fmt: skip
        """Bind messages whose addresses each run gives."""
        comm = self.plans_comm
        messages = [
            *(UnboundMessage(comm.Irecv, message, tag, resources, waits) for message in receives),
            *(UnboundMessage(comm.Isend, message, tag, resources, waits) for message in sends),
        ]
        return Messages(
            (), tuple(waits.poll(message.test) for message in messages), resources.free,
            waits.lost, waits.look, waits.translated, tuple(message.start for message in messages),
        )  # fmt: skip

    def _at_once(
        self, receives: Sequence[Pieces], sends: Sequence[Pieces], mirror: Mirror, tag: int,
        resources: Resources, waits: Waits, starts: list[Thunk], ends: list[Poll | Thunk],
    ) -> None:  # fmt: skip
        """Bind pieces that all have a block to requests."""
        from mpicoll.gpu.staging import Downloads

        comm = self.plans_comm
        for pieces in receives:
            for gpu, host in zip(pieces.gpu, pieces.host, strict=True):
                request = resources.add(comm.Recv_init(as_buffer(host), pieces.peer, tag))
                waits.requests.append((request, pieces.peer))
                starts.append(waits.begin(request.Start))
                ends += [waits.poll(request.Test), partial(mirror.copy, gpu, host)]
        downloads = [Downloads(send, mirror) for send in sends]
        starts += [download.start for download in downloads]
        for pieces, of_these in zip(sends, downloads, strict=True):
            for number, host in enumerate(pieces.host):
                request = resources.add(comm.Send_init(as_buffer(host), pieces.peer, tag))
                waits.requests.append((request, pieces.peer))
                starts += [partial(of_these.wait, number), waits.begin(request.Start)]
                ends.append(waits.poll(request.Test))

    def _in_turn(
        self, receives: list[Pieces], sends: list[Pieces], mirror: Mirror, tag: int,
        resources: Resources, waits: Waits,
    ) -> StagedMessages:  # fmt: skip
        """Bind pieces that share blocks to persistent requests, one for each block and length."""
        from mpicoll.gpu.staging import receiving, sending
        from mpicoll.mpi.staging import StagedMessages

        comm, lanes = self.plans_comm, []

        def copy(target: Array, source: Array) -> Step:
            return partial(self.copies.is_done, mirror.copy(target, source))

        for every, init, steps in (
            (receives, comm.Recv_init, receiving),
            (sends, comm.Send_init, sending),
        ):
            for pieces in every:
                block_requests: dict[tuple[int, int], MPI.Prequest] = {}
                requests = []
                for number, host in enumerate(pieces.host):
                    key = number % pieces.depth, len(host)
                    if key not in block_requests:
                        block_requests[key] = resources.add(init(as_buffer(host), pieces.peer, tag))
                        waits.requests.append((block_requests[key], pieces.peer))
                    requests.append(block_requests[key])
                lanes.append(partial(steps, pieces, copy, partial(_posted, requests)))
        return StagedMessages(lanes)

    def _needs_staging(self, x: Array | None) -> bool:
        """Whether an array is on a GPU and this MPI cannot, or not yet surely, read it there."""
        reads = self.gpu.aware and self.gpu.is_sure
        return not (reads or self.arrays.is_on_host(x))


class UnboundMessage:
    """A message whose address each run gives.

    Args:
        begin: the communicator's `Isend` or `Irecv`.
    """

    def __init__(
        self, begin: Callable[..., MPI.Request], message: Message, tag: int, resources: Resources,
        waits: Waits,
    ) -> None:  # fmt: skip
        self.begin, self.inside = begin, waits.peers.inside
        self.peer, self.nbytes, self.tag = message.peer, message.nbytes, tag
        self.request, self.place = MPI.REQUEST_NULL, len(waits.requests)
        self.under_way, self.requests = waits.requests, resources.requests
        waits.requests.append((self.request, self.peer))
        resources.add(self.request, message.owner)

    def start(self, address: int) -> None:
        memory = MPI.memory.fromaddress(address, self.nbytes) if self.nbytes else None
        self.request = request = self.inside(
            self.begin, [memory, self.nbytes, MPI.BYTE], self.peer, self.tag
        )
        self.under_way[self.place] = request, self.peer
        self.requests[self.place] = request

    def test(self) -> bool:
        return self.request.Test()


def _posted(requests: Sequence[MPI.Prequest], number: int) -> Step:
    """Start the request of a piece, and return its test."""
    requests[number].Start()
    return requests[number].Test


def as_buffer(data: Array | None) -> Any:
    """Return an array as mpi4py takes it: its bytes, which may be none."""
    if data is None:
        return [None, 0, MPI.BYTE]
    # Neither DLPack of CuPy nor mpi4py knows ml_dtypes.bfloat16.
    memory = data.view(np.uint8) if data.dtype.name == "bfloat16" else data
    return [memory, data.nbytes, MPI.BYTE]
