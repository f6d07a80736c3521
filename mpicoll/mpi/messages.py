"""The messages of one round over mpi4py: persistent requests, and pieces through the host.

Its counterpart is `torchcoll.messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.backend import Array, Message, Messages, Stage, Thunk
from mpicoll.gpu.staging import (
    PIECE_BYTES,
    Copies,
    Downloads,
    Mirror,
    Mirrors,
    Pieces,
    Step,
    in_blocks,
    pieces_by_peer,
    receiving,
    sending,
)
from mpicoll.mpi.arrays import MpiArrays
from mpicoll.mpi.gpu_awareness import GpuAwareness
from mpicoll.mpi.requests import Resources, Waits
from mpicoll.mpi.staging import StagedMessages
from mpicoll.peers.known import Peers

_FEW = 3
"""More requests than these are started by one call, and waited for by one."""


class MpiMessages:
    """The binder of the messages in the rounds of one group."""

    plans_comm: MPI.Comm
    arrays: MpiArrays
    peers: Peers
    gpu: GpuAwareness
    copies: Copies
    mirrors: Mirrors

    def messages(
        self, sends: Sequence[Message], receives: Sequence[Message], tag: int, stage: Stage
    ) -> Messages:
        """Bind one round to persistent requests."""
        resources, waits = Resources(), Waits(self.peers, stage)
        before: list[Thunk] = []
        start: list[Thunk] = []
        wait: list[Thunk] = []
        comm = self.plans_comm
        for messages, init in ((receives, comm.Recv_init), (sends, comm.Send_init)):
            for peer, data in messages:
                if self._needs_staging(data):
                    continue
                # A stream may still be at work on memory that MPI is about to read or write.
                if not self.arrays.is_on_host(data):
                    before.append(partial(self.arrays.synchronize, data))
                request = resources.add(init(as_buffer(data), peer, tag))
                waits.requests.append((request, peer))
                start.append(waits.begin(request.Start))
                wait.append(waits.until(request.Test))
        by_host = [
            pieces_by_peer([each for each in some if self._needs_staging(each.data)], PIECE_BYTES)
            for some in (receives, sends)
        ]
        if any(by_host):
            mirror = self.mirrors.for_round(tag, self.copies)
            found = in_blocks(mirror, *by_host)
            before.append(mirror.wait)
            if any(each.is_long for some in found for each in some):
                test = partial(waits.all_done, list(resources.requests))
                staged = self._in_turn(*found, mirror, tag, resources, waits)
                test = partial(_both, waits, staged.test, test)
                # The next piece of a message may be what another rank waits for.
                return Messages(
                    (*before, waits.begin(staged.start), *start), (waits.until(test),), test,
                    resources.free, waits.lost, waits.look,
                )  # fmt: skip
            after = self._at_once(*found, mirror, tag, resources, waits, start, wait)
        else:
            after = []
        requests = resources.requests
        if len(start) == len(wait) == len(requests) > _FEW:
            start = [waits.begin(partial(MPI.Prequest.Startall, requests))]
            wait = [waits.until(partial(MPI.Request.Testall, requests))]

        def test_all() -> bool:
            done = waits.all_done(requests)
            if done:
                for thunk in after:
                    thunk()
            return done

        return Messages(
            (*before, *start), tuple(wait), test_all, resources.free, waits.lost, waits.look
        )

    def _at_once(
        self, receives: list[Pieces], sends: list[Pieces], mirror: Mirror, tag: int,
        resources: Resources, waits: Waits, start: list[Thunk], wait: list[Thunk],
    ) -> list[Thunk]:  # fmt: skip
        """Bind pieces that all have a block to requests; return the copies of received data."""
        comm = self.plans_comm
        after: list[Thunk] = []
        for pieces in receives:
            for gpu, host in zip(pieces.gpu, pieces.host, strict=True):
                request = resources.add(comm.Recv_init(as_buffer(host), pieces.peer, tag))
                waits.requests.append((request, pieces.peer))
                start.append(waits.begin(request.Start))
                after.append(partial(mirror.copy, gpu, host))
                wait += [waits.until(request.Test), after[-1]]
        downloads = [Downloads(each, mirror) for each in sends]
        start += [each.start for each in downloads]
        for pieces, of_these in zip(sends, downloads, strict=True):
            for number, host in enumerate(pieces.host):
                request = resources.add(comm.Send_init(as_buffer(host), pieces.peer, tag))
                waits.requests.append((request, pieces.peer))
                start += [partial(of_these.wait, number), waits.begin(request.Start)]
                wait.append(waits.until(request.Test))
        return after

    def _in_turn(
        self, receives: list[Pieces], sends: list[Pieces], mirror: Mirror, tag: int,
        resources: Resources, waits: Waits,
    ) -> StagedMessages:  # fmt: skip
        """Bind pieces that share blocks to persistent requests, one for each block and length."""
        comm, lanes = self.plans_comm, []

        def copy(target: Array, source: Array) -> Step:
            return partial(mirror.is_done, mirror.copy(target, source))

        for every, init, steps in (
            (receives, comm.Recv_init, receiving),
            (sends, comm.Send_init, sending),
        ):
            for pieces in every:
                made: dict[tuple[int, int], MPI.Prequest] = {}
                requests = []
                for number, host in enumerate(pieces.host):
                    key = number % pieces.depth, len(host)
                    if key not in made:
                        made[key] = resources.add(init(as_buffer(host), pieces.peer, tag))
                        waits.requests.append((made[key], pieces.peer))
                    requests.append(made[key])
                lanes.append(partial(steps, pieces, copy, partial(_posted, requests)))
        return StagedMessages(lanes)

    def _needs_staging(self, x: Array | None) -> bool:
        """Whether an array is on a GPU and this MPI cannot, or not yet surely, read it there."""
        reads = self.gpu.aware and self.gpu.is_sure
        return not (reads or self.arrays.is_on_host(x))


def _posted(requests: Sequence[MPI.Prequest], number: int) -> Step:
    """Start the request of a piece, and return its test."""
    requests[number].Start()
    return requests[number].Test


def _both(waits: Waits, first: Callable[[], bool], then: Callable[[], bool]) -> bool:
    """Whether two tests hold, each of which advances its messages."""
    try:
        return first() & then()
    except MPI.Exception as error:
        raise waits.failed(error) from error


def as_buffer(data: Array | None) -> Any:
    """Return an array as mpi4py takes it: its bytes, which may be none."""
    if data is None:
        return [None, 0, MPI.BYTE]
    # Neither DLPack of CuPy nor mpi4py knows ml_dtypes.bfloat16.
    memory = data.view(np.uint8) if data.dtype.name == "bfloat16" else data
    return [memory, data.nbytes, MPI.BYTE]
