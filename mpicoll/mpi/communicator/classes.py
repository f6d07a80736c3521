"""Communicators of mpi4py whose blocking collectives are ours.

Each method hands its arguments to what serves its communicator, and calls MPI's own where that
says so. What is not here is mpi4py's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from mpicoll.execution.extension import METHODS
from mpicoll.mpi.communicator import objects
from mpicoll.mpi.communicator.objects import PREDEFINED
from mpicoll.mpi.communicator.recording import LOG, recorded
from mpicoll.mpi.communicator.served import LEFT_ALONE
from mpicoll.mpi.communicator.state import find_flight, serving, theirs
from mpicoll.mpi.communicator.tracing import AS_OBJECT, base

if TYPE_CHECKING:
    _Base = MPI.Intracomm
else:
    _Base = recorded(base())


def _by_operator(method: Any) -> Any:
    """Return a reduction of objects that leaves users' operators to MPI without a question.

    As with arrays, all ranks give the same operator. Of objects that are certainly long the ranks
    are told, as those of others may be short.
    """
    left = getattr(_Base, method.__name__)
    return METHODS.by_operator(
        "_call", MPI.Op, PREDEFINED, objects.SHORT, objects.LONG, LEFT_ALONE, left, method
    )


class Comm(_Base):
    """An intracommunicator of mpi4py whose blocking collectives are ours.

    Args:
        comm: whose handle it has, as with mpi4py's own classes: it is the same communicator, and
            freeing the one frees the other.

    Attributes:
        left: the class with MPI's own methods, as they are traced and recorded.
    """

    left = _Base

    def _call(self, *given: Any) -> Any:
        """Run a collective; whether MPI is to do so. What serves it takes this method's place."""
        served = self._serving()
        if served is None:
            return True
        self._call = served  # type: ignore[method-assign]
        return served(*given)

    def _serving(self) -> Any:
        served, flight = serving(self), find_flight(self)
        setattr(self, LOG, flight and flight.log)
        return served

    # -- collectives, with mpi4py's own arguments -----------------------------------------

    def Barrier(self) -> None:
        if self._call("barrier", None, None, None, 0, None, None):
            super().Barrier()

    def Bcast(self, buf: Any, root: int = 0) -> None:
        if self._call("bcast", buf, buf, None, root, None, None):
            super().Bcast(buf, root)

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        if self._call("gather", sendbuf, recvbuf, None, root, None, None):
            super().Gather(sendbuf, recvbuf, root)

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        if self._call("gatherv", sendbuf, recvbuf, None, root, None, None):
            super().Gatherv(sendbuf, recvbuf, root)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        if self._call("scatter", sendbuf, recvbuf, None, root, None, None):
            super().Scatter(sendbuf, recvbuf, root)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        if self._call("scatterv", sendbuf, recvbuf, None, root, None, None):
            super().Scatterv(sendbuf, recvbuf, root)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        if self._call("allgather", sendbuf, recvbuf, None, 0, None, None):
            super().Allgather(sendbuf, recvbuf)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        if self._call("allgatherv", sendbuf, recvbuf, None, 0, None, None):
            super().Allgatherv(sendbuf, recvbuf)

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        if self._call("alltoall", sendbuf, recvbuf, None, 0, None, None):
            super().Alltoall(sendbuf, recvbuf)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        if self._call("alltoallv", sendbuf, recvbuf, None, 0, None, None):
            super().Alltoallv(sendbuf, recvbuf)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0) -> None:
        if self._call("reduce", sendbuf, recvbuf, op, root, None, None):
            super().Reduce(sendbuf, recvbuf, op, root)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        if self._call("allreduce", sendbuf, recvbuf, op, 0, None, None):
            super().Allreduce(sendbuf, recvbuf, op)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        if self._call("reduce_scatter_block", sendbuf, recvbuf, op, 0, None, None):
            super().Reduce_scatter_block(sendbuf, recvbuf, op)

    def Reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: MPI.Op = MPI.SUM
    ) -> None:
        if recvcounts is None:  # mpi4py asks all ranks for theirs first
            theirs = self._call("reduce_scatter_own", sendbuf, recvbuf, op, 0, None, None)
        else:
            out = [recvbuf, recvcounts]
            theirs = self._call("reduce_scatter", sendbuf, out, op, 0, None, None)
        if theirs:
            super().Reduce_scatter(sendbuf, recvbuf, recvcounts, op)

    def Scan(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        if self._call("scan", sendbuf, recvbuf, op, 0, None, None):
            super().Scan(sendbuf, recvbuf, op)

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        if self._call("exscan", sendbuf, recvbuf, op, 0, None, None):
            super().Exscan(sendbuf, recvbuf, op)

    # -- collectives of objects -------------------------------------------------------------

    def barrier(self) -> None:
        self.Barrier()

    def bcast(self, obj: Any, root: int = 0) -> Any:
        if not self._is_ours():
            return super().bcast(obj, root)
        return objects.bcast(self, obj, root)

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        if not self._is_ours():
            return super().gather(sendobj, root)
        return objects.gather(self, sendobj, root)

    def allgather(self, sendobj: Any) -> list[Any]:
        if not self._is_ours():
            return super().allgather(sendobj)
        return objects.gather(self, sendobj, None) or []

    def scatter(self, sendobj: Any, root: int = 0) -> Any:
        if not self._is_ours():
            return super().scatter(sendobj, root)
        return objects.scatter(self, sendobj, root)

    def alltoall(self, sendobj: Any) -> list[Any]:
        if not self._is_ours():
            return super().alltoall(sendobj)
        return objects.alltoall(self, sendobj)

    @_by_operator
    def reduce(self, sendobj: Any, op: Any = MPI.SUM, root: int = 0) -> Any:
        found = self._fold("reduce", sendobj, op, root)
        if found is None:
            return super().reduce(sendobj, op, root)
        return found[0] if self.rank == root else None

    @_by_operator
    def allreduce(self, sendobj: Any, op: Any = MPI.SUM) -> Any:
        found = self._fold("allreduce", sendobj, op, 0)
        return super().allreduce(sendobj, op) if found is None else found[0]

    @_by_operator
    def scan(self, sendobj: Any, op: Any = MPI.SUM) -> Any:
        found = self._fold("scan", sendobj, op, 0)
        return super().scan(sendobj, op) if found is None else found[0]

    @_by_operator
    def exscan(self, sendobj: Any, op: Any = MPI.SUM) -> Any:
        found = self._fold("exscan", sendobj, op, 0)
        if found is None:
            return super().exscan(sendobj, op)
        return found[0] if self.rank else None

    def _is_ours(self) -> bool:
        """Whether collectives here are ours, the same on all ranks."""
        served = self.__dict__.get("_call")
        if served is None:
            served = self._serving()
            if served is None:
                return False
            self._call = served  # type: ignore[method-assign]
        return served is not theirs

    def _fold(self, name: str, item: Any, op: Any, root: int) -> tuple[Any] | None:
        """Return the fold of all ranks' objects, None where MPI must make it.

        Args:
            op: predefined, once it is settled what serves this communicator.
        """
        served = self.__dict__.get("_call")
        if served is None:
            if not self._is_ours() or not isinstance(op, MPI.Op) or op.handle not in PREDEFINED:
                return None
        elif served is theirs:
            return None
        x = objects.foldable(item, op, self.size) if type(item) in objects.AS_ARRAYS else None
        if x is None:
            return objects.fold(self, name, item, op, root)
        out = np.empty_like(x)
        if self._call(name, x, out, op, root, None, AS_OBJECT):
            return None
        return (out if x.ndim else out.item(),)

    # -- other communicators are of this kind, too ------------------------------------------

    def Create(self, group: MPI.Group) -> Comm:
        return Comm(super().Create(group))

    def Split(self, color: int = 0, key: int = 0) -> Comm:
        return Comm(super().Split(color, key))

    def Split_type(self, split_type: int, key: int = 0, info: MPI.Info = MPI.INFO_NULL) -> Comm:
        return Comm(super().Split_type(split_type, key, info))

    def Create_group(self, group: MPI.Group, tag: int = 0) -> Comm:
        return Comm(super().Create_group(group, tag))

    @classmethod
    def Create_from_group(cls, *arguments: Any, **keywords: Any) -> Comm:
        return Comm(super().Create_from_group(*arguments, **keywords))

    def Create_cart(self, dims: Any, periods: Any = None, reorder: bool = False) -> CartComm:
        return CartComm(super().Create_cart(dims, periods, reorder))

    def Create_graph(self, index: Any, edges: Any, reorder: bool = False) -> GraphComm:
        return GraphComm(super().Create_graph(index, edges, reorder))

    def Create_dist_graph(self, *arguments: Any, **keywords: Any) -> DistgraphComm:
        return DistgraphComm(super().Create_dist_graph(*arguments, **keywords))

    def Create_dist_graph_adjacent(self, *arguments: Any, **keywords: Any) -> DistgraphComm:
        return DistgraphComm(super().Create_dist_graph_adjacent(*arguments, **keywords))

    def __reduce__(self) -> Any:
        return reduced(self) or super().__reduce__()


class CartComm(Comm, MPI.Cartcomm):
    """A communicator of mpi4py with a Cartesian topology, whose blocking collectives are ours."""

    def Sub(self, remain_dims: Any) -> CartComm:
        return CartComm(super().Sub(remain_dims))


class GraphComm(Comm, MPI.Graphcomm):
    """A communicator of mpi4py with a graph as topology, whose blocking collectives are ours."""


class DistgraphComm(Comm, MPI.Distgraphcomm):
    """The same with a distributed graph."""


def reduced(comm: MPI.Comm) -> Any:
    """Return what pickle makes one of MPI's own communicators of, None for any other."""
    for name in ("COMM_NULL", "COMM_SELF", "COMM_WORLD"):
        if comm == getattr(MPI, name):
            return _named, (type(comm), name)
    return None


def _named(kind: type[MPI.Comm], name: str) -> MPI.Comm:
    found: MPI.Comm = getattr(MPI, name)
    return found if type(found) is kind else kind(found)
