"""All of mpi4py: persistent point-to-point requests, and MPI's own collectives.

Its counterpart, line by line, is `torchcoll.transport`.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.errors import Unavailable
from mpicoll.gpu.driver import Driver
from mpicoll.gpu.natives import behind, on_host
from mpicoll.gpu.staging import PIECE, Copies, Mirror
from mpicoll.interfaces import (
    DIRECT,
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
from mpicoll.machine.cores import is_oversubscribed, own_cores
from mpicoll.machine.nodes import group_by_node, stated_node
from mpicoll.memory.numpy_arrays import NumpyArrays
from mpicoll.memory.segments import open_memory
from mpicoll.memory.waiting import wait_yielding
from mpicoll.mpi.arrays import MpiArrays, numpy_dtype
from mpicoll.mpi.staging import CupyCopies, GpuAwareness
from mpicoll.mpi.windows import Windows
from mpicoll.notation.contract import Collective
from mpicoll.notation.operators import ReduceOp

_TYPES = {
    "bool": MPI.C_BOOL,
    "int8": MPI.INT8_T, "int16": MPI.INT16_T, "int32": MPI.INT32_T, "int64": MPI.INT64_T,
    "uint8": MPI.UINT8_T, "uint16": MPI.UINT16_T, "uint32": MPI.UINT32_T, "uint64": MPI.UINT64_T,
    "float32": MPI.FLOAT, "float64": MPI.DOUBLE,
    "complex64": MPI.C_FLOAT_COMPLEX, "complex128": MPI.C_DOUBLE_COMPLEX,
}  # fmt: skip
_OPS = {
    "sum": MPI.SUM, "avg": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX,
    "band": MPI.BAND, "bor": MPI.BOR, "bxor": MPI.BXOR, "land": MPI.LAND, "lor": MPI.LOR,
}  # fmt: skip
_OPS_ON_BOOL = {**_OPS, "band": MPI.LAND, "bor": MPI.LOR, "bxor": MPI.LXOR}
_FEW = 3


class MpiTransport:
    """`mpicoll.interfaces.Transport` over a communicator."""

    backend = "mpi4py"

    def __init__(self, comm: MPI.Comm) -> None:
        self.natives = comm.Dup()
        self.private = comm.Dup()
        self.users = comm.Dup()
        self.rank, self.size = comm.rank, comm.size
        self.arrays = MpiArrays()
        self.library = MPI.Get_library_version().split("\n")[0].strip("\0, ")
        self.copies: Copies = CupyCopies()
        self.gpu = GpuAwareness.agreed(comm.allgather(GpuAwareness.detect()))
        self.name = "point-to-point"
        self.nodes, obstacle = _placed(comm)
        self.oversubscribed = _is_oversubscribed(comm, self.nodes)
        self.shared: SharedMemory | None = None
        self.shared, self.unshared = open_memory(
            self.rank, self.nodes, self.arrays, self.exchange, obstacle,
            lambda node: Windows(self.private, node),
        )  # fmt: skip
        self._mine = np.empty(2, np.int64)
        self._most = np.empty(2, np.int64)

    # -- messages -------------------------------------------------------------------

    @property
    def way(self) -> str:
        return DIRECT if self.gpu.aware else STAGED

    def driver(self) -> Gpu:
        return Driver()

    def messages(self, sends: Sequence[Message], receives: Sequence[Message], tag: int) -> Messages:
        """Compile one round into persistent requests."""
        held = _Held()
        before: list[Thunk] = []
        start: list[Thunk] = []
        wait: list[Thunk] = []
        land: list[Thunk] = []
        for peer, data in receives:
            pieces, mirror = self._reachable(data, before)
            before += [mirror.settle_all] if mirror else []
            for index, memory in enumerate(pieces):
                request = held.keep(self.private.Recv_init(_bytes(memory), peer, tag))
                start.append(request.Start)
                wait += [request.Wait, *([partial(mirror.upload, index)] if mirror else [])]
            land += [mirror.upload_all] if mirror else []
        for peer, data in sends:
            pieces, mirror = self._reachable(data, before)
            before += [mirror.download] if mirror else []
            for index, memory in enumerate(pieces):
                request = held.keep(self.private.Send_init(_bytes(memory), peer, tag))
                start += [*([partial(mirror.settle, index)] if mirror else []), request.Start]
                wait.append(request.Wait)
        requests = held.requests
        if len(start) == len(wait) == len(requests) > _FEW:
            start = [partial(MPI.Prequest.Startall, requests)]
            wait = [partial(MPI.Request.Waitall, requests)]

        def test() -> bool:
            done = MPI.Request.Testall(requests)
            if done:
                for thunk in land:
                    thunk()
            return done

        if self.oversubscribed and not land and requests:
            wait = [partial(wait_yielding, partial(MPI.Request.Testall, requests))]
        return Messages((*before, *start), tuple(wait), test, held.free)

    def _reachable(
        self, data: Array | None, before: list[Thunk]
    ) -> tuple[list[Array | None], Mirror | None]:
        """Return memory that this MPI can read: the array's own, or pieces of its mirror."""
        if not self._is_far(data):
            # A stream may still be at work on memory that MPI is about to read or write.
            if not self.arrays.is_on_host(data):
                before.append(partial(self.arrays.synchronize, data))
            return [data], None
        mirror = Mirror(data, self.copies, PIECE)
        return [each.host for each in mirror.pieces], mirror

    def _is_far(self, x: Array | None) -> bool:
        """Whether an array is on a GPU and this MPI cannot read it there."""
        return not (self.gpu.aware or self.arrays.is_on_host(x))

    # -- natives --------------------------------------------------------------------

    def lacks(self, what: Collective, *, uneven: bool = False) -> str | None:
        """MPI has every collective in every form."""
        return None

    def native(self, call: NativeCall, *, persistent: bool = False) -> Native:
        """Bind MPI's own collective (MPI-4.1, chapter 6)."""
        if self._is_far(call.x) or self._is_far(call.out):
            bind = partial(self.native, persistent=persistent)
            return on_host(call, self.arrays, self.copies, bind)
        array = call.x if call.x is not None else call.out
        if not self.arrays.is_on_host(array):
            return behind(self._bound(call, persistent), partial(self.arrays.synchronize, array))
        return self._bound(call, persistent)

    def _bound(self, call: NativeCall, persistent: bool) -> Native:
        if call.in_place and (call.collective.name == "reduce_scatter" or _alltoallv(call)):
            return self._apart(call, persistent)
        name, arguments, copies = _arguments(call)
        held = _Held()
        if call.collective.reduces:
            position = 3 if name == "Reduce_scatter" else 2
            arguments.insert(position, self._op(call, held))
        if call.collective.rooted:
            arguments.append(call.root)
        if persistent:
            return self._persistent(name, arguments, held, copies)
        run = partial(getattr(self.natives, name), *arguments)
        begin = partial(getattr(self.natives, "I" + name.lower()), *arguments)
        if not copies:
            return Native(held.keeping(run), lambda: _Started(begin(), held, []), held.free)
        return Native(
            lambda: (run(), *(copy() for copy in copies), held),
            lambda: _Started(begin(), held, copies),
            held.free,
        )

    def _persistent(
        self, name: str, arguments: list[Any], held: _Held, copies: list[Thunk]
    ) -> Native:
        try:
            request = getattr(self.natives, f"{name}_init")(*arguments)
        except (AttributeError, NotImplementedError, MPI.Exception) as error:
            raise Unavailable(f"{self.library} has no {name}_init: {error}") from None
        held.requests.append(request)

        def start() -> Request:
            request.Start()
            return _Started(request, held, copies)

        def run(_alive: object = held) -> None:
            request.Start()
            request.Wait()
            for copy in copies:
                copy()

        return Native(run, start, held.free)

    def _apart(self, call: NativeCall, persistent: bool) -> Native:
        """Run out of place and copy, where MPI's in-place form lays the result out differently."""
        assert call.out is not None
        other = np.empty_like(call.out)
        apart = replace(call, out=other, in_place=False)
        bound = self.native(apart, persistent=persistent)
        back = self.arrays.copier(call.out, other)
        return Native(
            lambda: (bound.run(), back()),
            lambda: _Started(bound.start(), bound, [back]),
            bound.free,
        )

    def _op(self, call: NativeCall, held: _Held) -> MPI.Op:
        assert call.x is not None
        dtype = self.arrays.dtype(call.x)
        if call.op.function is None and dtype in _TYPES:
            return (_OPS_ON_BOOL if dtype == "bool" else _OPS)[call.op.name]
        held.ops.append(MPI.Op.Create(_fold_bytes(call.op, dtype), call.op.commutative))
        return held.ops[-1]

    # -- control --------------------------------------------------------------------

    def exchange(self, item: Any) -> list[Any]:
        if self.shared is not None and self.shared.mailbox is not None:
            return self.shared.mailbox.exchange(item)
        return self.users.allgather(item)

    def agree(self, digest: bytes) -> bool:
        """Compare through shared memory, or one MAX of the number and of its complement."""
        if self.shared is not None and self.shared.mailbox is not None:
            return self.shared.mailbox.agree(digest)
        number = int.from_bytes(digest, "little", signed=True)
        self._mine[:] = number, ~number
        self.natives.Allreduce(self._mine, self._most, MPI.MAX)
        return bool(self._most[0] == number and self._most[1] == ~number)

    def isend(self, x: Array, peer: int, tag: int) -> Request:
        memory = x
        if self._is_far(x):
            mirror = Mirror(x, self.copies, None)
            mirror.download()
            mirror.settle_all()
            memory = mirror.pieces[0].host
        else:
            self.arrays.synchronize(x)
        return _Started(self.users.Isend(_bytes(memory), peer, tag), memory, [])

    def irecv(self, x: Array, peer: int, tag: int) -> Request:
        if not self._is_far(x):
            self.arrays.synchronize(x)
            return _Started(self.users.Irecv(_bytes(x), peer, tag), x, [])
        mirror = Mirror(x, self.copies, None)
        request = self.users.Irecv(_bytes(mirror.pieces[0].host), peer, tag)
        return _Started(request, mirror, [mirror.upload_all, mirror.settle_all])

    def split(self, color: int | None, key: int) -> MpiTransport | None:
        part = self.users.Split(MPI.UNDEFINED if color is None else color, key)
        if part == MPI.COMM_NULL:
            return None
        transport = MpiTransport(part)
        part.Free()
        return transport

    def close(self) -> None:
        if self.shared is not None:
            self.shared.close()
            self.shared = None
        for comm in (self.natives, self.private, self.users):
            if comm != MPI.COMM_NULL:
                comm.Free()


class _Held:
    """Requests and operators of a plan, freed with it: MPICH reports each one that is leaked."""

    def __init__(self) -> None:
        self.requests: list[MPI.Prequest] = []
        self.ops: list[MPI.Op] = []
        self._finalizer = weakref.finalize(self, _free, self.requests, self.ops)

    def keep(self, request: MPI.Prequest) -> MPI.Prequest:
        """Return a request, to be freed with the plan."""
        self.requests.append(request)
        return request

    def free(self) -> None:
        self._finalizer()

    def keeping(self, run: Thunk) -> Thunk:
        """Return `run`, tied to the life of these operators where there are any."""
        return run if not self.ops else lambda: (run(), self)


def _free(requests: list[MPI.Prequest], ops: list[MPI.Op]) -> None:
    if not MPI.Is_finalized():
        for request in requests:
            request.Free()
        for op in ops:
            op.Free()
    requests.clear()
    ops.clear()


class _Started:
    """An MPI request under way, what must outlive it, and what follows it."""

    def __init__(self, request: Any, alive: object, after: list[Thunk]) -> None:
        self.request, self.alive, self.after = request, alive, after

    def _finish(self) -> None:
        after, self.after = self.after, []
        for thunk in after:
            thunk()

    def wait(self) -> None:
        wait: Callable[[], Any] = getattr(self.request, "Wait", None) or self.request.wait
        wait()
        self._finish()

    def test(self) -> bool:
        test: Callable[[], bool] = getattr(self.request, "Test", None) or self.request.test
        done = test()
        if done:
            self._finish()
        return done


def _bytes(data: Array | None) -> Any:
    if data is None:
        return [None, 0, MPI.BYTE]
    return [data, data.nbytes, MPI.BYTE]


def _typed(x: Array) -> Any:
    """Return mpi4py's buffer triple; halves, which MPI lacks, travel as pairs of bytes."""
    if not x.size:
        # MPI refuses aliased buffers even where they are empty, as a slice of the other may be.
        x = np.empty(1, x.dtype)[:0].reshape(x.shape)
    if x.dtype.name == "bfloat16":
        x = x.view(np.uint16)
    elif x.dtype.name in _TYPES:
        return [x, _TYPES[x.dtype.name]]
    return [x, _half()]


_HALF: list[MPI.Datatype] = []


def _half() -> MPI.Datatype:
    if not _HALF:
        _HALF.append(MPI.BYTE.Create_contiguous(2).Commit())
        weakref.finalize(_HALF[0], _HALF.clear)
    return _HALF[0]


def _uneven(x: Array, rows: Sequence[int]) -> Any:
    """Return a buffer with counts and displacements, for arrays of `rows` rows per rank."""
    width = int(np.prod(x.shape[1:], dtype=np.int64))
    counts = [count * width for count in rows]
    memory, kind = _typed(x)
    return [memory, counts, list(accumulate(counts, initial=0))[:-1], kind]


def _arguments(call: NativeCall) -> tuple[str, list[Any], list[Thunk]]:
    """Return MPI's name of a collective, its buffers, and copies that must follow."""
    name, x, out = call.collective.name, call.x, call.out
    own = MPI.IN_PLACE if call.in_place else None if x is None else _typed(x)
    if name == "barrier":
        return "Barrier", [], []
    if name == "broadcast":
        if x is None or call.in_place:
            return "Bcast", [_typed(out)], []
        return "Bcast", [_typed(x)], [partial(operator.setitem, out, ..., x)]
    if name in ("gather", "allgather"):
        if call.counts is None:
            return name.capitalize(), [own, None if out is None else _typed(out)], []
        whole = None if out is None else _uneven(out, call.counts)
        return f"{name.capitalize()}v", [own, whole], []
    if name == "scatter":
        target = MPI.IN_PLACE if call.in_place else _typed(out)
        if call.counts is None:
            return "Scatter", [None if x is None else _typed(x), target], []
        return "Scatterv", [None if x is None else _uneven(x, call.counts), target], []
    if name == "reduce_scatter":
        if call.counts is None:
            return "Reduce_scatter_block", [own, _typed(out)], []
        counts = _uneven(out, call.counts)[1]
        return "Reduce_scatter", [own, _typed(out), counts], []
    if _alltoallv(call):
        assert call.counts is not None
        rows = [row[call.rank] for row in call.counts]
        return "Alltoallv", [_uneven(x, call.counts[call.rank]), _uneven(out, rows)], []
    return name.capitalize(), [own, None if out is None else _typed(out)], []


def _alltoallv(call: NativeCall) -> bool:
    return call.collective.name == "alltoall" and call.counts is not None


def _fold_bytes(op: ReduceOp, dtype: str) -> Callable[[Any, Any, MPI.Datatype], None]:
    """Return an MPI user function: ``inout = in op inout`` on raw memory."""
    arrays, kind = NumpyArrays(), numpy_dtype(dtype)

    def fold(left: Any, right: Any, datatype: MPI.Datatype) -> None:
        target = np.frombuffer(right, kind)
        arrays.folder(op, np.frombuffer(left, kind), target, target)()

    return fold


def _is_oversubscribed(comm: MPI.Comm, nodes: Nodes) -> bool:
    """Whether the ranks of this node outnumber the cores that they may use."""
    told = comm.allgather(own_cores())
    node = next(each for each in nodes if comm.rank in each)
    return is_oversubscribed([told[rank] for rank in node])


def _placed(comm: MPI.Comm) -> tuple[Nodes, str]:
    """Return the ranks of each node, and why those of some node cannot share memory."""
    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    told = comm.allgather((local.bcast(comm.rank), stated_node(MPI.COMM_WORLD.rank)))
    local.Free()
    return group_by_node([host for host, _ in told], [node for _, node in told])
