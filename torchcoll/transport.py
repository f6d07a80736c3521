"""One group of ranks over torch.distributed: messages, native collectives, agreement, subgroups.

Its counterpart is `mpicoll.mpi.transport`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from mpicoll.backend import (
    DIRECT,
    STAGED,
    Array,
    Message,
    Native,
    NativeCall,
    Request,
    Stage,
    Transport,
)
from mpicoll.errors import ArgumentError, LaunchError, Unavailable
from mpicoll.gpu.nccl import blocks
from mpicoll.machine.nodes import group_by_node, host_identity, place_on_node, stated_node
from mpicoll.machine.settings import DEADLINE
from mpicoll.memory.waiting import agreeing
from mpicoll.notation.contract import Collective
from mpicoll.peers.polling import in_thread
from mpicoll.text.encoding import check_lengths
from torchcoll import natives
from torchcoll.arrays import TorchArrays
from torchcoll.devices import turn
from torchcoll.groups import (
    SPLITS,
    USED_GROUPS,
    Group,
    libraries_by_device,
    library_names,
    nccl_of,
    new_group,
    world_ranks,
)
from torchcoll.messages import PLANS, TorchMessages
from torchcoll.rendezvous.sealed import SealedStore
from torchcoll.rendezvous.secret import seal, unseal
from torchcoll.requests import limit_of, started

if TYPE_CHECKING:
    from mpicoll.peers.survivors import Decision
    from mpicoll.threads.transport import ThreadTransport
    from torchcoll.survivors import Meeting

T = TypeVar("T")
_TORCH_MARGIN = 60.0
"""Seconds by which torch's own watch of NCCL's calls comes after the deadline."""


class TorchTransport(TorchMessages):
    """`mpicoll.backend.Transport` over a process group, the default one if None is given.

    Args:
        ranks: those of the group in the default group; by default as torch knows them.
        store: with the key that only its ranks know, where `torchcoll.world` has set it up.
        parent: the group that this one is a part of, and has been made for.
        meeting: of the ranks of this group, as the survivors of another.
        compares: whether ranks on several nodes compare a call before they run it. Otherwise they
            must make the same calls, and a call that differs ends at the deadline.
    """

    backend = "torch"

    def __init__(
        self, group: Group = None, *, ranks: Sequence[int] | None = None,
        store: SealedStore | None = None, parent: TorchTransport | None = None,
        meeting: Meeting | None = None, compares: bool = True,
    ) -> None:  # fmt: skip
        if group is None:
            group = dist.group.WORLD
        self._group = group
        USED_GROUPS.add(group)
        self.store, self.meeting, self.compares, self.exchanges = store, meeting, compares, 0
        self.owned = parent is not None or store is not None
        self.ranks = world_ranks(group) if ranks is None else ranks
        self._begin(group.rank(), group.size(), parent.deadline if parent else None)
        by_device = libraries_by_device(self.group)
        self.nccl = None
        if "nccl" in by_device.values():
            from torchcoll.nccl import Nccl

            self.nccl = Nccl(self.group)
        # The timeout of a group that the user has made is the user's, who may have set the other.
        if self.owned or DEADLINE in os.environ or (self.nccl is not None and blocks()):
            self._set_timeout(self.peers.deadline)
        control = "cpu" if "cpu" in by_device else "cuda"
        self.arrays = TorchArrays(torch.device(control))
        self.library = " ".join(["torch", torch.__version__, *library_names(by_device)])
        self._signal = torch.zeros(1, dtype=torch.uint8, device=control)
        if self.nccl is not None and control == "cuda":
            self.nccl.device = self._signal.device  # the first exchange is NCCL's, too
        self._mine = torch.empty(2, dtype=torch.int64, device=control)
        node = stated_node(self.ranks[self.rank] if self.ranks else self.rank)
        hosts, stated_nodes = zip(
            *self.exchange((host_identity(), node), tuple[str, int | None]), strict=True
        )
        self.nodes, obstacle = group_by_node(hosts, stated_nodes)
        self.gpu_turn: int = (
            parent.gpu_turn if parent else turn(place_on_node(self.rank, self.nodes))
        )
        self._open(obstacle)

    # -- messages -------------------------------------------------------------------

    @property
    def gpu_transport(self) -> str:
        return STAGED if self.nccl is None else DIRECT

    @property
    def window(self) -> Callable[[tuple[int, ...], str, Array], Array] | None:
        return None if self.nccl is None else partial(self.nccl.window, exchange=self.exchange)

    @property
    def matches_by_order(self) -> bool:
        return self.nccl is not None

    def prepare_gpu(self, x: Array) -> None:
        """Connect all ranks by NCCL, where the group has it."""
        if self.nccl is not None:
            self.nccl.connect(x, self.exchange)

    # -- natives --------------------------------------------------------------------

    def other_natives(self, collective: str) -> Mapping[str, Callable[[NativeCall], Native]]:
        """Return the kernels of torch's symmetric memory."""
        from torchcoll.symmetric import Symmetric

        return Symmetric(self, self.group).natives(collective)

    def lacks(self, collective: Collective, *, uneven: bool = False) -> str | None:
        """torch.distributed has no prefix reductions, and counts for alltoall only."""
        name = collective.name
        if name in ("scan", "exscan"):
            return f"torch.distributed has no {name}: use a schedule, or 'auto'"
        if uneven and name in ("gather", "allgather", "scatter", "reduce_scatter"):
            return f"torch.distributed has no {name} of unequal counts: use a schedule, or 'auto'"
        return None

    def native(self, call: NativeCall, *, persistent: bool = False) -> Native:
        """Bind torch.distributed's own collective."""
        missing = self.lacks(call.collective, uneven=call.counts is not None)
        if persistent:
            missing = "torch.distributed has no persistent collectives: use 'native'"
        if missing:
            raise Unavailable(missing)
        has_nccl = self.nccl is not None
        bind = partial(natives.bind, self.group, self.arrays, self.peers, nccl=has_nccl)
        array = call.array
        if array is None or not self._needs_staging(array):
            return bind(call)
        from mpicoll.gpu.natives import after, staged
        from mpicoll.gpu.streams import PlanStream

        if call.collective.name not in natives.GLOO_ON_GPU:
            return staged(call, self.arrays, self.copies, bind)
        return after(PlanStream(self.arrays, array).begin, bind(call))

    # -- control --------------------------------------------------------------------

    def _set_timeout(self, seconds: float) -> None:
        """Set the timeout of the process group."""
        self.group.set_timeout(limit_of(seconds))
        if self.nccl is not None and blocks():
            # Where the host finds a lost rank, torch must not end the process before.
            nccl_of(self.group)._set_default_timeout(limit_of(seconds + _TORCH_MARGIN))

    def _gather(self, data: bytes) -> list[bytes]:
        self.exchanges += 1
        names = [f"{self.group.group_name} {self.exchanges} {rank}" for rank in range(self.size)]
        if self.store is not None:
            data = seal(self.store.key, names[self.rank], data)
        sealed = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        length = torch.tensor([sealed.numel()], device=self._signal.device)
        lengths = length.new_empty(self.size)
        with natives.watched(self.peers, agreeing()):
            natives.bind_method(self.group, "all_gather_single", lengths, length)()
            counts = lengths.tolist()
            check_lengths(counts)
            mine = self._signal.new_zeros(max(counts))
            mine[: sealed.numel()] = sealed.to(mine.device)
            every = mine.new_empty((self.size, mine.numel()))
            natives.bind_method(self.group, "all_gather_single", every.view(-1), mine)()
        opened: list[bytes] = []
        for name, row, count in zip(names, every.cpu().numpy(), counts, strict=True):
            data = row[:count].tobytes()
            text = data if self.store is None else unseal(self.store.key, name, data)
            if text is None:
                raise LaunchError(
                    f"rank {len(opened)} does not know this run's secret: "
                    "another process is in its place"
                )
            opened.append(text)
        return opened

    def _check_open(self) -> None:
        _ = self.group

    def _agree(self, digest: int) -> bool:
        """Compare by one MAX of the number and of its complement."""
        self._mine[0], self._mine[1] = digest, ~digest
        with natives.watched(self.peers, agreeing()):
            natives.bind_method(self.group, "allreduce", [self._mine], reduceOp=dist.ReduceOp.MAX)()
        return bool(self._mine[0] == digest and self._mine[1] == ~digest)

    @cached_property
    def loopback(self) -> ThreadTransport:
        """The messages of this rank to itself, which gloo cannot carry."""
        from mpicoll.threads import transport, world

        process = world.World(1, self.arrays, self.deadline)
        return transport.ThreadTransport(world.Group(process, [0], [0]), 0)

    def isend(self, x: Array, peer: int, tag: int) -> Request:
        if peer == self.rank:
            return self.loopback.isend(x, 0, tag)
        return self._started("sending a message", x, [Message(peer, x)], [], tag)

    def irecv(self, x: Array, peer: int, tag: int) -> Request:
        if peer == self.rank:
            return self.loopback.irecv(x, 0, tag)
        return self._started("receiving a message", x, [], [Message(peer, x)], tag)

    def _started(
        self, title: str, x: Array, sends: Sequence[Message], receives: Sequence[Message], tag: int
    ) -> Request:
        self._check_message(x)
        messages = self.messages(sends, receives, tag - PLANS, Stage(title + self._advice(x)))
        if not self._needs_staging(x):
            return started(messages)
        from mpicoll.gpu.streams import PlanStream, StreamRequest

        return StreamRequest(PlanStream(self.arrays, x), partial(started, messages))

    def sendrecv(self, send: Message, receive: Message, tag: int) -> Sequence[Request]:
        """Start both; over NCCL as one batch, as neither ends before the other begins."""
        lie_on_host = {self.arrays.is_on_host(message.data) for message in (send, receive)}
        if self.nccl is None or lie_on_host == {True} or self.rank in (send.peer, receive.peer):
            return self.irecv(receive.data, receive.peer, tag), self.isend(
                send.data, send.peer, tag
            )
        if len(lie_on_host) == 2:
            raise ArgumentError(
                "of x and out, one lies on a GPU and one on the host: "
                "NCCL carries the one and gloo the other, so give both on a GPU or both on the host"
            )
        self._check_message(send.data)
        stage = Stage("exchanging messages")
        return (started(self.messages([send], [receive], tag - PLANS, stage)),)

    def _advice(self, x: Array) -> str:
        """Return the advice for a rank that waits for a message in vain, in a group with NCCL."""
        if self.nccl is None:
            return ""
        local_kind, remote_kind = "host", "GPU"
        if not self.arrays.is_on_host(x):
            local_kind, remote_kind = remote_kind, local_kind
        return (
            f" in {local_kind} memory, which never meets one in {remote_kind} memory "
            "where NCCL serves GPUs"
        )

    def _check_message(self, x: Array) -> None:
        """Check that NCCL can carry a message of one rank alone, if it is to."""
        if self.nccl is not None and not self.arrays.is_on_host(x):
            self.nccl.check(x)

    def split(self, color: int | None, key: int) -> TorchTransport | None:
        requests = self.exchange((color, key), tuple[int | None, int])
        SPLITS[self.group.group_name] += 1
        if color is None:
            return None
        members = [rank for rank in range(self.size) if requests[rank][0] == color]
        members.sort(key=lambda rank: requests[rank][1])
        ranks = [self.ranks[rank] for rank in members] if self.ranks else []
        limit = limit_of(self.deadline)
        rank, size = members.index(self.rank), len(members)
        connects = partial(new_group, self.group, rank, size, ranks, color, limit, self.store)
        undo = dist.destroy_process_group
        part = self._blocking(connects, members, "splitting the group", undo)
        return TorchTransport(part, store=self.store, parent=self)

    def _blocking(
        self, call: Callable[[], T], ranks: Sequence[int], title: str, undo: Callable[[T], object]
    ) -> T:
        """Return the result of a call among some ranks: a store or gloo may not answer for ever."""
        missing = partial(self.peers.out, ranks)
        return in_thread(call, missing, Stage(title), self.peers, undo)

    def survive(self, make: Callable[[Transport], Any]) -> Any:
        """Return the result of `make` on the ranks that are left; collective among them.

        They meet at a store of their own, as that of the launch may have ended with a rank. torch
        has no way to end the default group and keep others, so that this one stays until the
        process ends.
        """
        from mpicoll.peers.survivors import go_on
        from torchcoll.survivors import Meeting, meet_survivors, meeting_place

        one_host = len(self.nodes) == 1
        parent, limit = self.group, limit_of(self.deadline)
        come = partial(meet_survivors, parent, self.rank, self.ranks, self.store, limit)

        def regroup(decision: Decision, attempt: int) -> Any:
            title, call = "making a group of the survivors", partial(come, decision, attempt)
            meeting = self._blocking(call, decision.ranks, title, Meeting.end)
            try:
                return make(
                    TorchTransport(
                        meeting.group, store=meeting.sealed, parent=self, meeting=meeting
                    )
                )
            except BaseException:
                meeting.end()
                raise

        place = partial(meeting_place, one_host)
        result = go_on(self.peers, place, regroup, self.attempts)
        self.owned = self.owned and self.group is not dist.group.WORLD
        return result

    def close(self) -> None:
        self._close()
        if self.nccl is not None:
            self.nccl.close()
        group, self._group = self._group, None
        if self.meeting is not None:
            self.meeting.end()
        elif self.owned and group in c10d._world.pg_map:
            is_last = group is dist.group.WORLD
            dist.destroy_process_group(group)
            if is_last and self.store is not None:
                self.store.close()
        self.store = self.meeting = None
