"""One group of ranks over mpi4py: messages, native collectives, agreement, subgroups.

Its counterpart is `torchcoll.transport`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.gpu.driver import Driver
from mpicoll.gpu.natives import direct, staged
from mpicoll.gpu.staging import PIECE_BYTES, Copies, HostStaging, Mirrors
from mpicoll.interfaces import (
    DIRECT,
    POINT_TO_POINT,
    STAGED,
    Array,
    Gpu,
    Message,
    Messages,
    Native,
    NativeCall,
    Nodes,
    Request,
    SharedMemory,
    Thunk,
)
from mpicoll.machine.cores import Cores, is_oversubscribed, own_cores
from mpicoll.machine.nodes import group_by_node, place_on_node, stated_node
from mpicoll.memory.segments import open_memory
from mpicoll.memory.waiting import wait_yielding
from mpicoll.mpi import natives, nccl
from mpicoll.mpi.arrays import MpiArrays
from mpicoll.mpi.gpu_awareness import GpuAwareness
from mpicoll.mpi.requests import Resources, StartedRequest
from mpicoll.mpi.staging import CupyCopies
from mpicoll.notation.contract import Collective
from mpicoll.text.encoding import decode, encode

_FOLDS_STARTED_ON_HOST = MPI.get_vendor()[0] == "Open MPI"
"""Whether nonblocking and persistent reductions of GPU memory crash, as their folds read it on the
host (ompi#9845, ompi#12045): Open MPI's documentation (Networking, CUDA) counts "all non-blocking
reduction collectives like MPI_Ireduce, MPI_Iallreduce, etc" among what does not work with it."""
_FEW = 3
"""More requests than these are started by one call, and waited for by one."""


class MpiTransport:
    """`mpicoll.interfaces.Transport` over a communicator.

    Args:
        parent: the group that this one is split from.
    """

    backend = "mpi4py"
    matches_by_order = False

    def __init__(self, comm: MPI.Comm, parent: MpiTransport | None = None) -> None:
        # Messages of these three never mix.
        comm = MPI.Intracomm(comm)  # not of a class whose collectives are ours
        self.natives_comm = comm.Dup()
        self.plans_comm = comm.Dup()
        self.users_comm = comm.Dup()
        self.rank, self.size = comm.rank, comm.size
        self.arrays = MpiArrays()
        self.library = MPI.Get_library_version().split("\n")[0].strip("\0, ")
        self.copies: Copies = CupyCopies()
        self.mirrors = Mirrors()
        self.gpu: GpuAwareness = parent.gpu if parent else _gpu_awareness(comm)
        self.nccl = nccl.Nccl(self.rank, self.size, self.arrays, self.exchange)
        self.name = POINT_TO_POINT
        self.nodes, obstacle = _nodes(comm)
        self.gpu_turn: int = parent.gpu_turn if parent else place_on_node(self.rank, self.nodes)
        self.oversubscribed = _is_oversubscribed(comm, self.nodes)
        self.shared: SharedMemory | None = None
        self.shared, self.unshared = open_memory(
            self.rank, self.nodes, self.arrays, self.exchange, obstacle, self._progress
        )
        self._mine = np.empty(2, np.int64)
        self._most = np.empty(2, np.int64)

    # -- messages -------------------------------------------------------------------

    @property
    def gpu_transport(self) -> str:
        return DIRECT if self.gpu.aware else STAGED

    @property
    def other_natives(self) -> Mapping[str, Callable[[NativeCall], Native]]:
        return {"nccl": self.nccl.bind} if nccl.library() else {}

    def driver(self, device: int) -> Gpu:
        return Driver(device)

    def prepare_gpu(self, x: Array) -> None:
        """Let a process of each node try whether MPI reads GPU memory, where it only says so."""
        if not self.gpu.is_sure:
            is_first = place_on_node(self.rank, self.nodes) == 0
            found = self.gpu.tried(self.arrays.gpu(x)) if is_first else self.gpu
            self.gpu = GpuAwareness.agreed(self.exchange(found, GpuAwareness))

    def messages(self, sends: Sequence[Message], receives: Sequence[Message], tag: int) -> Messages:
        """Bind one round to persistent requests."""
        resources = Resources()
        before: list[Thunk] = []
        start: list[Thunk] = []
        wait: list[Thunk] = []
        after: list[Thunk] = []
        mirror = self.mirrors.for_round(tag, self.copies)
        for peer, data in receives:
            pieces, staging = self._readable(data, before, mirror)
            before += [mirror.wait] if staging else []
            for index, memory in enumerate(pieces):
                request = resources.add(self.plans_comm.Recv_init(_bytes(memory), peer, tag))
                start.append(request.Start)
                wait += [request.Wait, *([partial(staging.start_to_gpu, index)] if staging else [])]
            after += [staging.start_all_to_gpu] if staging else []
        for peer, data in sends:
            pieces, staging = self._readable(data, before, mirror)
            before += [staging.start_to_host] if staging else []
            for index, memory in enumerate(pieces):
                request = resources.add(self.plans_comm.Send_init(_bytes(memory), peer, tag))
                start += [*([partial(staging.wait, index)] if staging else []), request.Start]
                wait.append(request.Wait)
        requests = resources.requests
        if len(start) == len(wait) == len(requests) > _FEW:
            start = [partial(MPI.Prequest.Startall, requests)]
            wait = [partial(MPI.Request.Waitall, requests)]

        def test() -> bool:
            done = MPI.Request.Testall(requests)
            if done:
                for thunk in after:
                    thunk()
            return done

        if self.oversubscribed and not after and requests:
            wait = [partial(wait_yielding, partial(MPI.Request.Testall, requests))]
        return Messages((*before, *start), tuple(wait), test, resources.free)

    def _readable(
        self, data: Array | None, before: list[Thunk], copies: Copies
    ) -> tuple[list[Array | None], HostStaging | None]:
        """Return memory that this MPI can read: the array's own, or pieces on the host."""
        if not self._needs_staging(data):
            # A stream may still be at work on memory that MPI is about to read or write.
            if not self.arrays.is_on_host(data):
                before.append(partial(self.arrays.synchronize, data))
            return [data], None
        staging = HostStaging(data, copies, PIECE_BYTES)
        return [each.host for each in staging.pieces], staging

    def _needs_staging(self, x: Array | None) -> bool:
        """Whether an array is on a GPU and this MPI cannot, or not yet surely, read it there."""
        reads = self.gpu.aware and self.gpu.is_sure
        return not (reads or self.arrays.is_on_host(x))

    def _progress(self) -> None:
        """Let MPI move messages of its own."""
        # A plan may outlive its group.
        if self.plans_comm != MPI.COMM_NULL:
            self.plans_comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)

    # -- natives --------------------------------------------------------------------

    def lacks(self, what: Collective, *, uneven: bool = False) -> str | None:
        """MPI has every collective in every form."""
        return None

    def native(self, call: NativeCall, *, persistent: bool = False) -> Native:
        """Bind MPI's own collective (MPI-4.1, chapter 6)."""
        bind = partial(natives.bind, self.natives_comm, self.arrays, persistent=persistent)
        if self._needs_staging(call.x) or self._needs_staging(call.out):
            return staged(call, self.arrays, self.copies, bind)
        array = call.x if call.x is not None else call.out
        if self.arrays.is_on_host(array):
            return bind(call)
        ready = partial(self.arrays.synchronize, array)
        if not (call.collective.reduces and _FOLDS_STARTED_ON_HOST):
            return direct(bind(call), ready)
        through_host = cache(partial(staged, call, self.arrays, self.copies, bind))
        if persistent:
            return through_host()
        native = direct(bind(call), ready)

        def free() -> None:
            native.free()
            if through_host.cache_info().currsize:
                through_host().free()

        return native._replace(start=lambda: through_host().start(), free=free)

    # -- control --------------------------------------------------------------------

    def exchange(self, item: Any, kind: Any = Any) -> list[Any]:
        if self.shared is not None and self.shared.mailbox is not None:
            return self.shared.mailbox.exchange(item, kind)
        return exchange(self.users_comm, item, kind)

    def agree(self, digest: bytes) -> bool:
        """Compare through shared memory, or one MAX of the number and of its complement."""
        if self.shared is not None and self.shared.mailbox is not None:
            return self.shared.mailbox.agree(digest)
        number = int.from_bytes(digest, "little", signed=True)
        self._mine[:] = number, ~number
        self.natives_comm.Allreduce(self._mine, self._most, MPI.MAX)
        return bool(self._most[0] == number and self._most[1] == ~number)

    def isend(self, x: Array, peer: int, tag: int) -> Request:
        memory = x
        if self._needs_staging(x):
            staging = HostStaging(x, self.copies, None)
            staging.start_to_host()
            staging.wait_all()
            memory = staging.pieces[0].host
        else:
            self.arrays.synchronize(x)
        return StartedRequest(self.users_comm.Isend(_bytes(memory), peer, tag), memory)

    def irecv(self, x: Array, peer: int, tag: int) -> Request:
        if not self._needs_staging(x):
            self.arrays.synchronize(x)
            return StartedRequest(self.users_comm.Irecv(_bytes(x), peer, tag), x)
        staging = HostStaging(x, self.copies, None)
        request = self.users_comm.Irecv(_bytes(staging.pieces[0].host), peer, tag)
        return StartedRequest(request, staging, [staging.start_all_to_gpu, staging.wait_all])

    def sendrecv(self, send: Message, receive: Message, tag: int) -> Sequence[Request]:
        receiving = self.irecv(receive.data, receive.peer, tag)
        return receiving, self.isend(send.data, send.peer, tag)

    def split(self, color: int | None, key: int) -> MpiTransport | None:
        part = self.users_comm.Split(MPI.UNDEFINED if color is None else color, key)
        if part == MPI.COMM_NULL:
            return None
        transport = MpiTransport(part, self)
        part.Free()
        return transport

    def close(self) -> None:
        if self.shared is not None:
            self.shared.close()
            self.shared = None
        self.nccl.close()
        for comm in (self.natives_comm, self.plans_comm, self.users_comm):
            if comm != MPI.COMM_NULL:
                comm.Free()


def exchange(comm: MPI.Comm, item: Any, kind: Any = Any) -> list[Any]:
    """Return every rank's item of a type, in rank order: without pickle, which mpi4py would use."""
    data = encode(item)
    lengths = np.empty(comm.size, np.int64)
    comm.Allgather(np.array([len(data)]), lengths)
    found = bytearray(int(lengths.sum()))
    comm.Allgatherv(data, [found, lengths, MPI.BYTE])
    ends = np.cumsum(lengths)
    parts = zip(ends - lengths, ends, strict=True)
    return decode((bytes(found[start:stop]) for start, stop in parts), kind)


def _bytes(data: Array | None) -> Any:
    if data is None:
        return [None, 0, MPI.BYTE]
    # Neither DLPack of CuPy nor mpi4py knows ml_dtypes.bfloat16.
    memory = data.view(np.uint8) if data.dtype.name == "bfloat16" else data
    return [memory, data.nbytes, MPI.BYTE]


def _gpu_awareness(comm: MPI.Comm) -> GpuAwareness:
    return GpuAwareness.agreed(exchange(comm, GpuAwareness.detect(), GpuAwareness))


def _is_oversubscribed(comm: MPI.Comm, nodes: Nodes) -> bool:
    """Whether the ranks of this node outnumber the cores that they may use."""
    cores = exchange(comm, own_cores(), Cores)
    node = next(each for each in nodes if comm.rank in each)
    return is_oversubscribed([cores[rank] for rank in node])


def _nodes(comm: MPI.Comm) -> tuple[Nodes, str]:
    """Return the ranks of each node, and why those of some node cannot share memory."""
    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    first = np.array([comm.rank])
    local.Bcast(first)
    hosts = exchange(comm, int(first[0]))
    local.Free()
    return group_by_node(hosts, exchange(comm, stated_node(MPI.COMM_WORLD.rank)))
