"""NCCL's collectives on CuPy arrays: ``native:nccl``, which users of MPI would take themselves.

CuPy's binding (`cupy.cuda.nccl`) hands every number on to NCCL as it is. Calls are put on the
caller's stream: "The NCCL call returns when the operation has been effectively enqueued to the
given stream" (NCCL's user guide, CUDA Stream Semantics), so no rank waits on the host. gather,
scatter and alltoall, which CuPy's binding lacks, are groups of messages: "Calls within a group can
be seen as progressing independently, hence should never block each other" (the same,
Point-to-point communication), but for those to the same peer, of which each group has one in each
direction.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple, cast

from mpicoll.backend import DIRECT, Array, Arrays, Native, NativeCall, Request, Stage, Stream
from mpicoll.errors import RankLost, Unavailable, first_error, on_all
from mpicoll.gpu.natives import Queued
from mpicoll.gpu.nccl import Memory, blocks, why_not_shared
from mpicoll.gpu.streams import PlanStream
from mpicoll.machine.nodes import host_identity
from mpicoll.mpi.arrays import numpy_dtype
from mpicoll.notation.elements import ReduceOp
from mpicoll.peers.known import Peers
from mpicoll.peers.polling import wait_polling
from mpicoll.peers.search import AllRanks

_BYTE = 1
_TYPES = {
    "bool": _BYTE, "int8": 0, "uint8": _BYTE, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9, "complex64": 7, "complex128": 8,
}  # fmt: skip
"""ncclDataType_t (nccl.h); a complex number is two floats."""
_OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
"""ncclRedOp_t (nccl.h)."""
_OPS_ON_BOOL = {"band": 3, "land": 3, "min": 3, "bor": 2, "lor": 2, "max": 2}

Post = Callable[[int], object]
"""Puts a call on the stream at an address, the last argument of NCCL's calls."""


def library() -> Any:
    """Return CuPy's binding of NCCL; None where CuPy is not loaded, or finds no NCCL."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return None
    from cupy.cuda import nccl

    return nccl if nccl.available else None


class Nccl:
    """NCCL's collectives of one group.

    Args:
        exchange: returns every rank's item, of a type.
    """

    def __init__(self, peers: Peers, arrays: Arrays, exchange: Callable[..., list[Any]]) -> None:
        self.peers, self.arrays, self.exchange = peers, arrays, exchange
        self.rank, self.size = peers.rank, peers.size
        self.communicator: Any = None
        self.gpu: int | None = None
        self.windows: list[Memory] = []
        self.lost: RankLost | None = None

    def bind(self, call: NativeCall) -> Native:
        """Bind a collective; all ranks do, as the first of them makes the communicator.

        Raises:
            Unavailable: NCCL has no such collective, operator or dtype, or does not connect the
                ranks.
        """
        like = call.array
        if like is None or self.arrays.is_on_host(like):
            raise Unavailable("NCCL takes CuPy arrays")
        reduction = (
            _reduction(call.op, self.arrays.dtype(like)) if call.collective.reduces else None
        )
        self._connect(like)
        post = self._post(call, reduction)
        order = PlanStream(self.arrays, like, captures=True)
        stage = Stage(f"NCCL's own {call.collective.name}")
        waits = partial(self._wait, stage) if blocks() else None

        def begin() -> Stream:
            stream = order.begin()
            try:
                post(stream.handle)
            except Exception:  # CuPy's own error class cannot be named without CuPy
                if self.lost is None:
                    raise
                raise self.lost from None
            return stream

        def run() -> None:
            stream = begin()
            if waits is not None:
                waits(stream)

        def start() -> Request:
            stream = begin()
            follow = partial(order.end, stream)
            if waits is None:
                return Queued(follow)
            return Queued(follow, partial(waits, stream), lambda: _is_done(stream))

        averages = reduction is not None and reduction.op == _OPS["avg"]
        return Native(run, start, lambda: None, DIRECT, averages)

    def window(self, shape: tuple[int, ...], dtype: str, like: Array) -> Array:
        """Return an array on the GPU of another, in memory that NCCL has registered; collective.

        Raises:
            Unavailable: on all ranks, and why.
        """
        self._connect(like)
        gpu = self.arrays.gpu(like)
        kind = numpy_dtype(dtype)
        nbytes = max(1, prod(shape)) * kind.itemsize
        with like.device:
            memory = on_all(partial(Memory, nbytes), self.rank, self.exchange)
            self.windows.append(memory)
            register = partial(memory.register, self.communicator.comm)
            on_all(register, self.rank, self.exchange)
        cupy = sys.modules["cupy"]
        whole = cupy.cuda.UnownedMemory(memory.address, nbytes, memory, gpu)
        return cast("Array", cupy.ndarray(shape, kind, cupy.cuda.MemoryPointer(whole, 0)))

    def _wait(self, stage: Stage, stream: Stream) -> None:
        """Wait on the host until a stream has done its work.

        Raises:
            RankLost: a rank has ended, or did not come within the deadline. The communicator is
                aborted, so that its kernels end.
        """
        try:
            wait_polling(partial(_is_done, stream), AllRanks(self.peers), stage, self.peers)
        except RankLost as error:
            self.lost = error
            self.communicator.abort()
            raise

    def close(self) -> None:
        """Release the communicator, and the memory registered with it."""
        for memory in self.windows if self.lost is None else ():
            memory.deregister()
        self.windows.clear()
        if self.communicator is not None:
            self.communicator.destroy()
            self.communicator = None

    def _connect(self, like: Array) -> None:
        """Make the communicator of the GPUs on which arrays like these lie; collective.

        Raises:
            Unavailable: on all ranks, and why.
        """
        gpu = self.arrays.gpu(like)
        moved = "" if self.gpu in (None, gpu) else f"rank {self.rank}: NCCL has its GPU {self.gpu}"
        everyone = self.exchange((_place(gpu), why_not_shared(), moved))
        gpus, refusals, moves = zip(*everyone, strict=True)
        shared = [rank for rank, place in enumerate(gpus) if gpus.count(place) > 1]
        if shared and (why := first_error(refusals)):
            raise Unavailable(f"ranks {shared} share one GPU: {why}")
        if reason := first_error(moves):
            raise Unavailable(f"{reason}, not another: make a group for that by split()")
        if self.gpu is not None:
            return
        nccl = library()
        local_id = nccl.get_unique_id() if self.rank == 0 else None
        # CuPy 14 takes bytes and 13 a tuple, and neither a list.
        unique = self.exchange(local_id, bytes | tuple[int, ...] | None)[0]
        error = ""
        try:
            # "Each rank is associated to a CUDA device, which has to be set before calling
            # ncclCommInitRank" (nccl.h): a thread may have another one, as CUDA keeps one for each.
            with self.arrays.current_stream(gpu).use():
                self.communicator = nccl.NcclCommunicator(self.size, unique, self.rank)
        except (RuntimeError, KeyError) as raised:  # CuPy 14 does not name NCCL's newer errors
            error = f"rank {self.rank}: {raised}"
        if reason := first_error(self.exchange(error)):
            raise Unavailable(f"NCCL does not connect the ranks: {reason}")
        self.gpu = gpu

    def _post(self, call: NativeCall, reduction: _Reduction | None) -> Post:
        """Return a function that puts a call on a stream."""
        name, comm = call.collective.name, self.communicator
        x, out = call.x, cast("Array", call.out)
        if reduction is not None:
            return self._reduce(call, reduction)
        if name == "broadcast":
            source = self._at(out if x is None else x)
            return partial(comm.broadcast, source, self._at(out), out.nbytes, _BYTE, call.root)
        if name == "allgather" and call.counts is None:
            assert x is not None
            return partial(comm.allGather, self._at(x), self._at(out), x.nbytes, _BYTE)
        sends, receives, prologue = self._messages(call)
        return partial(_grouped, library(), comm, sends, receives, prologue)

    def _reduce(self, call: NativeCall, reduction: _Reduction) -> Post:
        name, comm = call.collective.name, self.communicator
        x, out = self._at(call.x), 0 if call.out is None else self._at(call.out)
        counted = call.out if name == "reduce_scatter" else call.x
        arguments = x, out, reduction.count(counted), *reduction[:2]
        if name == "allreduce":
            return partial(comm.allReduce, *arguments)
        if name == "reduce":
            return partial(comm.reduce, *arguments, call.root)
        if name == "reduce_scatter" and call.counts is None:
            return partial(comm.reduceScatter, *arguments)
        raise _lacks(call)

    def _messages(
        self, call: NativeCall
    ) -> tuple[list[_Part], list[_Part], Callable[[], object] | None]:
        """Return the parts that this rank sends and receives, and the work to be done before."""
        name, x, out = call.collective.name, cast("Array", call.x), cast("Array", call.out)
        prologue: Callable[[], object] | None = None
        everyone, root, counts = range(self.size), call.root, call.counts
        if name == "alltoall":
            if call.in_place:
                x = self.arrays.empty(tuple(out.shape), self.arrays.dtype(out), out)
                prologue = self.arrays.copier(self.arrays.flat(x), self.arrays.flat(out))
            sent = None if counts is None else counts[self.rank]
            received = None if counts is None else [row[self.rank] for row in counts]
            return self._rows(x, sent), self._rows(out, received), prologue
        if name == "scatter":
            sends = self._rows(x, counts) if self.rank == root else []
            receives = [] if call.in_place else [_Part(self._at(out), out.nbytes, root)]
        elif name == "gather":
            sends = [] if call.in_place else [_Part(self._at(x), x.nbytes, root)]
            receives = self._rows(out, counts) if self.rank == root else []
        elif name == "allgather":
            sends = [_Part(self._at(x), x.nbytes, peer) for peer in everyone]
            receives = self._rows(out, counts)
        else:
            raise _lacks(call)
        if call.in_place:  # this rank's own part is there already
            sends = [part for part in sends if part.peer != self.rank]
            receives = [part for part in receives if part.peer != self.rank]
        return sends, receives, prologue

    def _rows(self, array: Array, counts: Sequence[int] | None) -> list[_Part]:
        """Return the part of each rank in an array of their rows."""
        if counts is None:
            sizes = [array.nbytes // self.size] * self.size
        else:
            width = prod(array.shape[1:]) * array.itemsize
            sizes = [rows * width for rows in counts]
        starts = accumulate(sizes, initial=self._at(array))
        return [_Part(at, n, peer) for peer, (at, n) in enumerate(zip(starts, sizes, strict=False))]

    def _at(self, array: Array) -> int:
        return self.arrays.span(array)[0]


class _Part(NamedTuple):
    """Bytes at an address, for or from a peer."""

    address: int
    nbytes: int
    peer: int


class _Reduction(NamedTuple):
    """NCCL's dtype and operator, and how many of its elements one of ours is."""

    kind: int
    op: int
    width: int

    def count(self, array: Array) -> int:
        return int(array.size) * self.width


def _reduction(op: ReduceOp, dtype: str) -> _Reduction:
    """Return how NCCL reduces a dtype.

    Raises:
        Unavailable: it does not.
    """
    if op.function is not None:
        raise Unavailable(f"NCCL takes no user operator ({op.name}): use a schedule")
    kind = _TYPES.get(dtype)
    reduce_op = (_OPS_ON_BOOL if dtype == "bool" else _OPS).get(op.name)
    is_complex = dtype.startswith("complex")
    if kind is None or reduce_op is None or (is_complex and op.name not in ("sum", "avg")):
        raise Unavailable(f"NCCL has no op {op.name!r} on {dtype}: use a schedule")
    # Its mean divides the two floats of a complex number, which rounds otherwise than a division.
    return _Reduction(kind, _OPS["sum"], 2) if is_complex else _Reduction(kind, reduce_op, 1)


def _grouped(
    nccl: Any, comm: Any, sends: Sequence[_Part], receives: Sequence[_Part],
    prologue: Callable[[], object] | None, stream: int,
) -> None:  # fmt: skip
    """Put messages on a stream as one group.

    The group ends also where a call in it fails, as after an abort: all that this thread gives
    NCCL later, for any communicator, would wait in it.
    """
    if prologue is not None:
        prologue()
    nccl.groupStart()
    try:
        for part in sends:
            comm.send(part.address, part.nbytes, _BYTE, part.peer, stream)
        for part in receives:
            comm.recv(part.address, part.nbytes, _BYTE, part.peer, stream)
    finally:
        nccl.groupEnd()


def _lacks(call: NativeCall) -> Unavailable:
    counts = "" if call.counts is None else " of unequal counts"
    return Unavailable(f"NCCL has no {call.collective.name}{counts}: use a schedule")


def _place(gpu: int) -> tuple[Any, str]:
    """Return a GPU of this host as the other ranks can tell it from theirs."""
    return host_identity(), str(sys.modules["cupy"].cuda.runtime.deviceGetPCIBusId(gpu))


def _is_done(stream: Stream) -> bool:
    """Whether a stream of CuPy has done its work."""
    with stream.use():  # the null stream is that of the current GPU
        return bool(stream.stream.done)  # type: ignore[attr-defined]
