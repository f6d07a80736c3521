"""One group of ranks over mpi4py: messages, native collectives, agreement, subgroups.

Its counterpart is `torchcoll.transport`.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from mpicoll.backend import (
    DIRECT,
    STAGED,
    Array,
    Message,
    Native,
    NativeCall,
    Nodes,
    Request,
    Stage,
    Thunk,
    Transport,
)
from mpicoll.errors import FREED
from mpicoll.machine.nodes import (
    group_by_node,
    place_on_node,
    stated_node,
)
from mpicoll.memory.waiting import agreeing
from mpicoll.mpi.arrays import MpiArrays
from mpicoll.mpi.exchange import exchange_bytes
from mpicoll.mpi.gpu_awareness import GpuAwareness
from mpicoll.mpi.messages import MpiMessages, as_buffer
from mpicoll.mpi.requests import completed, end, of_message, within
from mpicoll.mpi.serving import serve
from mpicoll.notation.contract import Collective
from mpicoll.peers.known import Peers
from mpicoll.peers.watch import GRACE, guarded

if TYPE_CHECKING:
    from mpicoll.mpi.nccl import Nccl
    from mpicoll.peers.survivors import Decision

_FOLDS_STARTED_ON_HOST = MPI.get_vendor()[0] == "Open MPI"
"""Whether nonblocking and persistent reductions of GPU memory crash, as their folds read it on the
host (ompi#9845, ompi#12045): Open MPI's documentation (Networking, CUDA) counts "all non-blocking
reduction collectives like MPI_Ireduce, MPI_Iallreduce, etc" among what does not work with it."""


LIBRARY = MPI.Get_library_version().split("\n")[0].strip("\0, ")
"""The MPI library and its version."""


class MpiTransport(MpiMessages):
    """`mpicoll.backend.Transport` over a communicator.

    Args:
        parent: the group that this one is split from.
        deadline: in seconds; by default that of the parent or the environment.
    """

    backend = "mpi4py"
    matches_by_order = False

    def __init__(
        self, comm: MPI.Comm, parent: MpiTransport | None = None, deadline: float | None = None
    ) -> None:
        # Messages of these three never mix.
        comm = MPI.Intracomm(comm)  # not of a class whose collectives are ours
        if deadline is None and parent is not None:
            deadline = parent.deadline
        self._begin(comm.rank, comm.size, deadline)
        self.peers.inside = guarded(operator.call, self.peers, "a call inside of MPI", end, GRACE)
        self.peers.serve = serve
        self.natives_comm = _bare(comm, self.peers)
        self.plans_comm, self.users_comm = (
            _duplicate(self.natives_comm, self.peers) for _ in range(2)
        )
        self.arrays = MpiArrays()
        self.library = LIBRARY
        self.gpu = parent.gpu if parent else self._agreed(GpuAwareness.detect())
        self.nodes, obstacle = self._nodes()
        self.gpu_turn: int = parent.gpu_turn if parent else place_on_node(self.rank, self.nodes)
        self._open(obstacle, self._progress)

    # -- messages -------------------------------------------------------------------

    @property
    def gpu_transport(self) -> str:
        return DIRECT if self.gpu.aware else STAGED

    def other_natives(self, collective: str) -> Mapping[str, Callable[[NativeCall], Native]]:
        return {"nccl": self.nccl.bind} if _has_nccl() else {}

    @property
    def window(self) -> Callable[[tuple[int, ...], str, Array], Array] | None:
        return self.nccl.window if _has_nccl() else None

    @cached_property
    def nccl(self) -> Nccl:
        from mpicoll.mpi.nccl import Nccl

        return Nccl(self.peers, self.arrays, partial(MpiTransport.exchange, self))

    def prepare_gpu(self, x: Array) -> None:
        """Let a process of each node try whether MPI reads GPU memory, where it only says so."""
        if not self.gpu.is_sure:
            is_first = place_on_node(self.rank, self.nodes) == 0
            self.gpu = self._agreed(self.gpu.try_on(self.arrays.gpu(x)) if is_first else self.gpu)

    def _agreed(self, awareness: GpuAwareness) -> GpuAwareness:
        return GpuAwareness.agreed(self.exchange(awareness, GpuAwareness))

    def _progress(self) -> None:
        """Let MPI move messages of its own."""
        # A plan may outlive its group.
        if self.plans_comm != MPI.COMM_NULL:
            self.peers.inside(self.plans_comm.Iprobe, MPI.ANY_SOURCE, MPI.ANY_TAG)

    # -- natives --------------------------------------------------------------------

    def lacks(self, collective: Collective, *, uneven: bool = False) -> str | None:
        """MPI has every collective in every form."""
        return None

    def native(self, call: NativeCall, *, persistent: bool = False) -> Native:
        """Bind MPI's own collective (MPI-4.1, chapter 6)."""
        from mpicoll.mpi import natives

        bind = partial(
            natives.bind, self.natives_comm, self.arrays, self.peers, persistent=persistent
        )
        array = call.array
        if array is None or self.arrays.is_on_host(array):
            return bind(call)
        from mpicoll.gpu.natives import direct, staged

        if self._needs_staging(call.x) or self._needs_staging(call.out):
            return staged(call, self.arrays, self.copies, bind)
        if not (call.collective.reduces and _FOLDS_STARTED_ON_HOST):
            return direct(bind(call), self.arrays, array)
        through_host = cache(partial(staged, call, self.arrays, self.copies, bind))
        if persistent:
            return through_host()
        native = direct(bind(call), self.arrays, array)

        def free() -> None:
            native.free()
            if through_host.cache_info().currsize:
                through_host().free()

        return native._replace(start=lambda: through_host().start(), free=free)

    # -- control --------------------------------------------------------------------

    def _gather(self, data: bytes) -> list[bytes]:
        """Return the bytes of every rank: without pickle, which mpi4py would use."""
        peers, stage = self.peers, Stage(agreeing())

        def complete(comm: MPI.Comm, name: str, data: Any, received: Any) -> None:
            request = peers.inside(getattr(comm, f"I{name.lower()}"), data, received)
            completed(request, peers, stage, data, received)

        return exchange_bytes(self.users_comm, data, complete)

    def _check_open(self) -> None:
        if self.users_comm == MPI.COMM_NULL:
            raise RuntimeError(FREED)

    def _agree(self, digest: int) -> bool:
        """Compare by one MAX of the number and of its complement."""
        pair, peers = np.array([digest, ~digest]), self.peers
        peers.exchanges += 1
        request = peers.inside(self.users_comm.Iallreduce, MPI.IN_PLACE, pair, MPI.MAX)
        completed(request, peers, Stage(agreeing()), pair)
        return bool(pair[0] == digest and pair[1] == ~digest)

    def isend(self, x: Array, peer: int, tag: int) -> Request:
        memory = x
        if not self.arrays.is_on_host(x):
            from mpicoll.gpu.streams import PlanStream

            PlanStream(self.arrays, x).begin()
        if self._needs_staging(x):
            from mpicoll.gpu.staging import HostStaging

            staging = HostStaging(x, self.copies)
            staging.start_to_host()
            staging.wait()
            memory = staging.host
        else:
            self.arrays.synchronize(x)
        request = self.peers.inside(self.users_comm.Isend, as_buffer(memory), peer, tag)
        return of_message(request, memory, self.peers, "sending a message", peer)

    def irecv(self, x: Array, peer: int, tag: int) -> Request:
        if self.arrays.is_on_host(x):
            return self._received(x, peer, tag, x)
        from mpicoll.gpu.staging import HostStaging
        from mpicoll.gpu.streams import PlanStream, StreamRequest

        order = PlanStream(self.arrays, x)
        if self._needs_staging(x):
            staging = HostStaging(x, self.copies)
            epilogue = [staging.start_to_gpu]
            return StreamRequest(
                order, partial(self._received, staging.host, peer, tag, staging, epilogue)
            )
        order.begin()
        self.arrays.synchronize(x)
        return self._received(x, peer, tag, x)

    def _received(
        self, memory: Array, peer: int, tag: int, buffers: object, epilogue: Sequence[Thunk] = ()
    ) -> Request:
        request = self.peers.inside(self.users_comm.Irecv, as_buffer(memory), peer, tag)
        return of_message(request, buffers, self.peers, "receiving a message", peer, epilogue)

    def sendrecv(self, send: Message, receive: Message, tag: int) -> Sequence[Request]:
        receiving = self.irecv(receive.data, receive.peer, tag)
        return receiving, self.isend(send.data, send.peer, tag)

    def split(self, color: int | None, key: int) -> MpiTransport | None:
        chosen = MPI.UNDEFINED if color is None else color
        part = within(self.peers, "splitting the group", lambda: self.users_comm.Split(chosen, key))
        if part == MPI.COMM_NULL:
            return None
        transport = MpiTransport(part, self)
        part.Free()
        return transport

    def survive(self, make: Callable[[Transport], Any]) -> Any:
        """Return the result of `make` on the ranks that are left; collective among them.

        MPI makes a group by a call of its members alone (MPI-4.1, 7.4.2, MPI_Comm_create_group),
        where the launcher has let them live.
        """
        # Open MPI 5 makes no group from a communicator while another such call has not returned
        # there, which one that a rank has left in its middle never does.
        parents = [*map(MPI.Intracomm, (self.users_comm, self.plans_comm, self.natives_comm))]

        def regroup(decision: Decision, attempt: int) -> Any:
            comm = parents[attempt % len(parents)]
            members = comm.group.Incl(decision.ranks)
            create: Callable[[], MPI.Comm] = partial(comm.Create_group, members, attempt)
            missing = partial(self.peers.out, decision.ranks)
            part = within(self.peers, "making a group of the survivors", create, missing)
            result = make(MpiTransport(part, self))
            part.Free()
            return result

        from mpicoll.peers.survivors import go_on

        return go_on(self.peers, str, regroup, self.attempts)

    def _nodes(self) -> tuple[Nodes, str]:
        """Return the ranks of each node, and why those of some node cannot share memory."""

        def first_of_node() -> int:
            local = self.users_comm.Split_type(MPI.COMM_TYPE_SHARED)
            first = np.array([self.rank])
            local.Bcast(first)
            local.Free()
            return int(first[0])

        hosts = self.exchange(within(self.peers, str(_MAKING), first_of_node))
        return group_by_node(hosts, self.exchange(stated_node(MPI.COMM_WORLD.rank)))

    def close(self) -> None:
        self._close()
        if "nccl" in vars(self):
            self.nccl.close()
        if MPI.Is_finalized():
            return  # MPI ends the process where it is called then
        if self.peers.has_lost:
            # Its messages may be under way for ever, and must reach no group made later, to which
            # MPI would give the context of a communicator that is freed.
            return
        for comm in (self.natives_comm, self.plans_comm, self.users_comm):
            if comm != MPI.COMM_NULL:
                comm.Free()


_MAKING = Stage("making a group")


def _has_nccl() -> bool:
    """Whether CuPy is loaded, and finds NCCL."""
    if sys.modules.keys().isdisjoint(("cupy", "mpicoll.mpi.nccl")):
        return False
    from mpicoll.mpi import nccl

    return nccl.library() is not None


def _bare(comm: MPI.Intracomm, peers: Peers) -> MPI.Comm:
    """Return a communicator of the same ranks without the user's attributes and hints.

    A duplicate would call the functions that copy and delete the attributes.
    """
    completed(peers.inside(comm.Ibarrier), peers, _MAKING)  # which may wait without a thread
    return within(peers, str(_MAKING), lambda: comm.Split(0, comm.rank))


def _duplicate(comm: MPI.Comm, peers: Peers) -> MPI.Comm:
    duplicate: tuple[MPI.Comm, MPI.Request] = peers.inside(comm.Idup)
    copy, request = duplicate
    completed(request, peers, _MAKING, copy)
    return copy
