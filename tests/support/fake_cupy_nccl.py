"""A fake of `cupy.cuda.nccl` on fake GPUs, over MPI: what is called happens late, on the stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import fake_gpu
import numpy as np
import pytest
from mpi4py import MPI

from mpicoll import Collectives

KINDS = {0: "int8", 1: "uint8", 2: "int32", 3: "uint32", 4: "int64", 5: "uint64", 6: "float16",
         7: "float32", 8: "float64"}  # fmt: skip
OPS = {0: MPI.SUM, 1: MPI.PROD, 2: MPI.MAX, 3: MPI.MIN, 4: MPI.SUM}
AVERAGE = 4


def over(address: int, count: int, kind: int) -> Any:
    """Return an array over memory."""
    dtype = np.dtype(KINDS[kind])
    return np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype)


class Nccl:
    """The module.

    Attributes:
        unique: the number of a communicator: CuPy 14's is bytes, and a tuple before.
    """

    available = True
    unique: bytes | tuple[int, ...] = bytes(range(128))

    def __init__(self, comm: MPI.Comm, arrays: fake_gpu.Arrays, like: Any) -> None:
        self.comm, self.arrays, self.like = comm, arrays, like
        self.made = 0
        self.aborted = False
        self.group: list[Callable[[], MPI.Request]] | None = None

    def get_unique_id(self) -> bytes | tuple[int, ...]:
        return self.unique

    def NcclCommunicator(self, size: int, unique: object, rank: int) -> Nccl:
        assert (size, rank) == (self.comm.size, self.comm.rank)
        assert unique == self.unique  # of its type, too
        self.made += 1
        return self

    def check(self) -> None:
        if self.aborted:
            raise RuntimeError("NCCL_ERROR_INVALID_ARGUMENT: invalid argument")

    def put(self, thunk: Callable[[], object]) -> None:
        self.check()
        self.arrays.stream(self.like).work.append(thunk)

    def destroy(self) -> None:
        self.made -= 1

    def abort(self) -> None:
        """End what is under way: nothing of it happens."""
        self.aborted = True
        self.arrays.stream(self.like).work.clear()

    def groupStart(self) -> None:
        assert self.group is None
        self.group = []

    def groupEnd(self) -> None:
        group, self.group = self.group, None
        assert group is not None
        self.put(lambda: MPI.Request.Waitall([start() for start in group]))

    def send(self, address: int, count: int, kind: int, peer: int, stream: int) -> None:
        assert self.group is not None, "a message alone may wait for ever"
        self.check()
        self.group.append(lambda: self.comm.Isend(over(address, count, kind), peer))

    def recv(self, address: int, count: int, kind: int, peer: int, stream: int) -> None:
        assert self.group is not None, "a message alone may wait for ever"
        self.check()
        self.group.append(lambda: self.comm.Irecv(over(address, count, kind), peer))

    def _fold(self, x: int, count: int, kind: int, op: int) -> Any:
        found = np.empty(count, KINDS[kind])
        self.comm.Allreduce(over(x, count, kind).copy(), found, OPS[op])
        return found / self.comm.size if op == AVERAGE else found

    def allReduce(self, x: int, out: int, count: int, kind: int, op: int, stream: int) -> None:
        def run() -> None:
            over(out, count, kind)[:] = self._fold(x, count, kind, op)

        self.put(run)

    def reduce(
        self, x: int, out: int, count: int, kind: int, op: int, root: int, stream: int
    ) -> None:
        def run() -> None:
            found = self._fold(x, count, kind, op)
            if self.comm.rank == root:
                over(out, count, kind)[:] = found

        self.put(run)

    def reduceScatter(self, x: int, out: int, count: int, kind: int, op: int, stream: int) -> None:
        def run() -> None:
            found = self._fold(x, count * self.comm.size, kind, op)
            over(out, count, kind)[:] = found.reshape(-1, count)[self.comm.rank]

        self.put(run)

    def allGather(self, x: int, out: int, count: int, kind: int, stream: int) -> None:
        def run() -> None:
            self.comm.Allgather(
                over(x, count, kind).copy(), over(out, count * self.comm.size, kind)
            )

        self.put(run)

    def broadcast(self, x: int, out: int, count: int, kind: int, root: int, stream: int) -> None:
        def run() -> None:
            found = over(x, count, kind).copy()
            self.comm.Bcast(found, root)
            over(out, count, kind)[:] = found

        self.put(run)


def install(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> Nccl:
    """Give each rank of a group of MPI a GPU of its own, and CuPy NCCL."""
    from mpicoll.mpi import nccl

    transport: Any = c.transport
    arrays = fake_gpu.install(c)
    fake = Nccl(transport.users_comm, arrays, c.gpu())
    transport.nccl.arrays = arrays
    monkeypatch.setattr(nccl, "library", lambda: fake)
    monkeypatch.setattr(nccl, "_place", lambda gpu: ("here", f"{c.rank}"))
    return fake
