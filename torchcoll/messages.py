"""The messages of one round over torch.distributed: works, and pieces through the host.

Its counterpart is `mpicoll.mpi.messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch

from mpicoll.backend import Array, Message, Messages, Poll, Stage, Thunk
from mpicoll.errors import FREED
from mpicoll.memory.addresses import array_at
from mpicoll.peers.transport import PeerTransport
from torchcoll.arrays import TorchArrays, as_bytes
from torchcoll.groups import Group
from torchcoll.requests import NcclWaits, Post, Waits, Works

if TYPE_CHECKING:
    from mpicoll.gpu.staging import Copies, Event, Mirror, Pieces, Step
    from torchcoll.nccl import Nccl

PLANS = 1 << 20
"""Above every tag of a user: the messages of plans and of users never mix."""


class TorchMessages(PeerTransport):
    """The binder of the messages in the rounds of one group."""

    arrays: TorchArrays
    nccl: Nccl | None
    _group: Group | None
    _signal: torch.Tensor

    @cached_property
    def copies(self) -> Copies:
        """How tensors are copied between GPU and host."""
        from torchcoll.staging import TorchCopies

        return TorchCopies()

    @property
    def group(self) -> Group:
        """The process group.

        Raises:
            RuntimeError: it has been freed.
        """
        if self._group is None:
            raise RuntimeError(FREED)
        return self._group

    def messages(
        self, sends: Sequence[Message], receives: Sequence[Message], tag: int, stage: Stage
    ) -> Messages:
        """Bind one round to `send` and `recv` calls, or to one batch of NCCL."""
        works = Works(polls=False, waits=Waits(self.peers, stage))
        batch: list[Post] = []
        takes: list[Callable[[int], object]] = []
        is_unbound = any(message.nbytes for message in (*receives, *sends))
        for messages, method in ((receives, "recv"), (sends, "send")):
            post = getattr(self.group, method)
            for peer, data, nbytes, owner in messages:
                if self._needs_staging(data):
                    continue
                # A receive must not land in the byte that a send reads: each signal has its own.
                memory = [self._signal.clone() if data is None else as_bytes(data)]
                if is_unbound:
                    takes.append(_mover(self.arrays, memory, nbytes, owner))
                elif self.nccl and not self.arrays.is_on_host(memory[0]):
                    batch.append(partial(getattr(self.nccl.group, method), memory, peer, 0))
                    continue
                works.add(peer, partial(post, memory, peer, tag + PLANS))
        if self.nccl and batch:
            among = [message.peer for message in (*receives, *sends)]
            works.waits = NcclWaits(self.group, self.peers, stage, among)
            works.posts.insert(0, self.nccl.batch(batch))
        starts: list[Thunk] = []
        if staged := self._staged(receives, sends, tag):
            mirror, received, sent = staged
            starts.append(mirror.wait)
            if any(pieces.is_long for pieces in (*received, *sent)):
                self._in_turn(received, sent, mirror, tag + PLANS, works)
            else:
                starts += self._at_once(received, sent, mirror, tag + PLANS, works)
        starts.append(works.start)
        works.polls = len(works.posts) == bool(batch)
        ends = (Poll(works.test, works.wait),)
        return Messages(tuple(starts), ends, works.free, works.waits.lost, takes=tuple(takes))

    def _at_once(
        self, receives: list[Pieces], sends: list[Pieces], mirror: Mirror, tag: int, works: Works
    ) -> list[Thunk]:
        """Bind pieces that all have a block; return what starts their copies to the host."""
        from mpicoll.gpu.staging import Downloads

        for peer, *arrays, _ in receives:
            for gpu, host in zip(*arrays, strict=True):
                post = partial(self.group.recv, [as_bytes(host)], peer, tag)
                works.add(peer, post, partial(mirror.copy, gpu, host))
        every = [Downloads(pieces, mirror) for pieces in sends]
        for downloads in every:
            peer = downloads.pieces.peer
            for number, host in enumerate(downloads.pieces.host):
                post = partial(self.group.send, [as_bytes(host)], peer, tag)
                works.add(peer, partial(_post_after, partial(downloads.wait, number), post))
        return [downloads.start for downloads in every]

    def _in_turn(
        self, receives: list[Pieces], sends: list[Pieces], mirror: Mirror, tag: int, works: Works
    ) -> None:
        """Bind pieces that share blocks."""
        from mpicoll.gpu.staging import receiving, sending
        from torchcoll.staging import StagedWork

        def copy(target: Array, source: Array) -> Step:
            event: Event = mirror.copy(target, source)
            return event.synchronize

        for every, start, steps in (
            (receives, self.group.recv, receiving),
            (sends, self.group.send, sending),
        ):
            for pieces in every:
                data, place = [as_bytes(host) for host in pieces.host], len(works.posts)
                post = partial(_post, start, data, pieces.peer, tag, works.waits, place)
                stream = partial(self.arrays.current_stream, self.arrays.gpu(pieces.gpu[0]))
                work = partial(StagedWork, partial(steps, pieces, copy, post), stream)
                works.add(pieces.peer, work)

    def _needs_staging(self, x: Array | None) -> bool:
        """Whether a tensor is on a GPU and the group has gloo only."""
        return self.nccl is None and not self.arrays.is_on_host(x)


def _mover(
    arrays: TorchArrays, memory: list[Array], nbytes: int, owner: object
) -> Callable[[int], None]:
    """Return a function that takes the address of a message's array, which each run gives.

    Args:
        memory: the array as the library takes it, replaced where the address is another one.
        nbytes: the length of the message.
        owner: keeps the memory.
    """
    last_address = 0

    def move(address: int) -> None:
        nonlocal last_address
        if address != last_address and nbytes:
            memory[0] = array_at(arrays, address, "uint8", nbytes, owner)
            last_address = address

    return move


def _post_after(first: Thunk, post: Post) -> Any:
    first()
    return post()


def _post(
    start: Callable[..., Any], data: Sequence[Array], peer: int, tag: int, waits: Waits,
    place: int, number: int,
) -> Step:  # fmt: skip
    """Start to send or receive a piece, and return the wait for it."""
    try:
        work = start([data[number]], peer, tag)
    except RuntimeError as error:
        raise waits.failed(error, peer) from error
    return partial(waits.wait, work, place)
