"""Communicators of mpi4py whose blocking collectives are ours.

Each method hands its arguments to what serves its communicator, which calls MPI's own where MPI is
to run the call. What is not here is mpi4py's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from math import inf
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mpi4py import MPI

from mpicoll.c_extension import _compiled
from mpicoll.mpi.communicator.recording import (
    ISSUED,
    LOG,
    NAMES,
    mpi_calls,
    mpi_method,
    recorded,
)

if TYPE_CHECKING:
    from mpicoll.mpi.communicator.channels import OneNode
    from mpicoll.mpi.communicator.levels import Levels
    from mpicoll.mpi.communicator.named import Named

    _Base = MPI.Intracomm
else:
    _Base = recorded(MPI.Intracomm)


Kind = TypeVar("Kind", bound=MPI.Comm)

_OWN = {"_call", "_server", *NAMES, *ISSUED}
"""The attributes of a communicator that call what serves it, or MPI by its handle."""

_LISTS = list, tuple
"""The types of a buffer with its count or datatype."""

FIRST_MADE, FIRST_CALLS = _compiled.FIRST_MADE, _compiled.FIRST_CALLS


def _documented(kind: type[MPI.Intracomm]) -> Any:
    """Give the methods of a class what mpi4py's say of themselves."""
    for name, method in vars(kind).items():
        function = getattr(method, "__func__", method)
        if isinstance(function, FunctionType) and function.__doc__ is None:
            function.__doc__ = getattr(getattr(super(kind, kind), name, None), "__doc__", None)
    return kind


@_documented
class Comm(_Base):
    """An intracommunicator of mpi4py whose blocking collectives are ours.

    The first call imports the modules that serve it, where nobody has before.

    >>> import numpy as np
    >>> comm, out = Comm(MPI.COMM_SELF), np.empty(2)
    >>> comm.Allreduce(np.ones(2), out)
    >>> out, comm.scan(3), comm.Get_size()
    (array([1., 1.]), 3, 1)

    Args:
        comm: whose handle it has, as with mpi4py's own classes: it is the same communicator, and
            freeing the one frees the other.
    """

    __slots__ = ("_calls",)  # counted by `FirstCalls`
    _child_count = 0
    _is_plain = False  # or it is not known yet

    def _call(self, *arguments: Any) -> None:
        """Run a collective. A channel takes this method's place."""
        _compiled.uninterrupted(self._begin, *arguments)

    def _begin(self, name: str, *arguments: Any) -> None:
        if "_server" not in self.__dict__:
            _compiled.postpone_handlers()
        server, method = self._settled(), name.capitalize()
        limit = inf if server is None else server.limit(name)
        if limit and getattr(type(self), method, None) is vars(Comm).get(method, self):
            # Further calls begin there.
            setattr(self, method, _divided(self, method, server, limit))
        _run(server, mpi_calls(self), name, *arguments)

    def _settled(self) -> OneNode | Levels | Named | None:
        """Return what serves this communicator, None for MPI; collective in its first call."""
        if "_server" not in self.__dict__:
            from mpicoll.mpi.communicator.state import state_of

            state = state_of(self)
            self._server, self._is_plain = state.server, state.is_plain
            setattr(self, LOG, state.flight and state.flight.log)
            if state.channel is not None:
                self._call = state.channel  # type: ignore[method-assign]
        return self._server

    def Free(self) -> None:
        _compiled.uninterrupted(self._release, super().Free)

    def Disconnect(self) -> None:
        _compiled.uninterrupted(self._release, super().Disconnect)

    def _release(self, release: Callable[[], None]) -> None:
        if self.__dict__.get("_server"):
            _compiled.postpone_handlers()
        release()
        self._forget()

    def _open_method(self, name: str) -> Callable[..., Any]:
        """Return what runs a method of objects as long as this communicator keeps none."""
        return partial(_compiled.uninterrupted, self._run_method, name)

    def _run_method(self, name: str, *arguments: Any) -> Any:
        _compiled.postpone_handlers()
        return self._method(name)(*arguments)

    def _method(self, name: str) -> Callable[..., Any]:
        """Return a method of objects, which this communicator keeps."""
        server, run = self._settled(), getattr(_Base, name)
        exchange = server and server.exchange_of(name)
        if exchange is not None:
            from mpicoll.mpi.communicator.objects import METHODS

            run = partial(METHODS[name], exchange)
        elif getattr(type(self), name) is getattr(Comm, name):
            setattr(self, name, mpi_method(self, name))  # further calls begin there
            return run  # type: ignore[no-any-return]
        setattr(self, f"_ours_{name}", run)
        return run  # type: ignore[no-any-return]

    def _forget(self) -> None:
        """Drop what has served this object."""
        for name in [*vars(self)]:
            if name in _OWN or name.startswith("_ours_"):
                delattr(self, name)

    # -- collectives, with mpi4py's own arguments -----------------------------------------

    def Barrier(self) -> None:
        self._call("barrier", None, None, None, 0)

    def Bcast(self, buf: Any, root: int = 0) -> None:
        self._call("bcast", buf, buf, None, root)

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        self._call("gather", sendbuf, recvbuf, None, root)

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        self._call("gatherv", sendbuf, recvbuf, None, root)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        self._call("scatter", sendbuf, recvbuf, None, root)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        self._call("scatterv", sendbuf, recvbuf, None, root)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        self._call("allgather", sendbuf, recvbuf, None, 0)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        self._call("allgatherv", sendbuf, recvbuf, None, 0)

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        self._call("alltoall", sendbuf, recvbuf, None, 0)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        self._call("alltoallv", sendbuf, recvbuf, None, 0)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0) -> None:
        self._call("reduce", sendbuf, recvbuf, op, root)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        self._call("allreduce", sendbuf, recvbuf, op, 0)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        self._call("reduce_scatter_block", sendbuf, recvbuf, op, 0)

    def Reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: MPI.Op = MPI.SUM
    ) -> None:
        out = [recvbuf, recvcounts]  # a channel adds counts, for which mpi4py asks all ranks first
        self._call("reduce_scatter", sendbuf, out, op, 0)

    def Scan(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        self._call("scan", sendbuf, recvbuf, op, 0)

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        self._call("exscan", sendbuf, recvbuf, op, 0)

    # -- collectives of objects -------------------------------------------------------------

    def barrier(self) -> None:
        self.Barrier()

    def bcast(self, obj: Any, root: int = 0) -> Any:
        run = self.__dict__.get("_ours_bcast") or self._open_method("bcast")
        return run(self, obj, root)

    def gather(self, sendobj: Any, root: int = 0) -> Any:
        run = self.__dict__.get("_ours_gather") or self._open_method("gather")
        return run(self, sendobj, root)

    def allgather(self, sendobj: Any) -> Any:
        run = self.__dict__.get("_ours_allgather") or self._open_method("allgather")
        return run(self, sendobj)

    def scatter(self, sendobj: Any, root: int = 0) -> Any:
        run = self.__dict__.get("_ours_scatter") or self._open_method("scatter")
        return run(self, sendobj, root)

    def alltoall(self, sendobj: Any) -> Any:
        run = self.__dict__.get("_ours_alltoall") or self._open_method("alltoall")
        return run(self, sendobj)

    def reduce(self, sendobj: Any, op: Any = MPI.SUM, root: int = 0) -> Any:
        run = self.__dict__.get("_ours_reduce") or self._open_method("reduce")
        return run(self, sendobj, op, root)

    def allreduce(self, sendobj: Any, op: Any = MPI.SUM) -> Any:
        run = self.__dict__.get("_ours_allreduce") or self._open_method("allreduce")
        return run(self, sendobj, op)

    def scan(self, sendobj: Any, op: Any = MPI.SUM) -> Any:
        run = self.__dict__.get("_ours_scan") or self._open_method("scan")
        return run(self, sendobj, op)

    def exscan(self, sendobj: Any, op: Any = MPI.SUM) -> Any:
        run = self.__dict__.get("_ours_exscan") or self._open_method("exscan")
        return run(self, sendobj, op)

    # -- other communicators are of this kind, too ------------------------------------------

    def _wrap(self, kind: type[Kind], plain: MPI.Comm, *, is_collective: bool = True) -> Kind:
        """Return a communicator that was made from this one, as one of a class of ours.

        MPI runs the first calls of those after the first few.

        Args:
            is_collective: all ranks of this one have made it, so their counts agree.
        """
        if not self._is_plain:
            return kind(plain)
        if not is_collective or self._child_count >= FIRST_MADE:
            return _new_class(kind)(plain)  # type: ignore[arg-type, no-any-return]
        self._child_count += 1
        comm = kind(plain)
        comm._is_plain = True  # type: ignore[attr-defined]
        return comm

    def Dup(self, info: MPI.Info | None = None) -> Self:
        return self._wrap(type(self), super().Dup(info))

    def Dup_with_info(self, info: MPI.Info) -> Self:
        return self._wrap(type(self), super().Dup_with_info(info))

    def Clone(self) -> Self:
        return self._wrap(type(self), super().Clone())

    def Create(self, group: MPI.Group) -> Comm:
        return self._wrap(Comm, super().Create(group))

    def Split(self, color: int = 0, key: int = 0) -> Comm:
        return self._wrap(Comm, super().Split(color, key))

    def Split_type(self, split_type: int, key: int = 0, info: MPI.Info = MPI.INFO_NULL) -> Comm:
        return self._wrap(Comm, super().Split_type(split_type, key, info))

    def Create_group(self, group: MPI.Group, tag: int = 0) -> Comm:
        return self._wrap(Comm, super().Create_group(group, tag), is_collective=False)

    @classmethod
    def Create_from_group(cls, *arguments: Any, **keywords: Any) -> Comm:
        return Comm(super().Create_from_group(*arguments, **keywords))

    def Create_cart(self, dims: Any, periods: Any = None, reorder: bool = False) -> CartComm:
        return self._wrap(CartComm, super().Create_cart(dims, periods, reorder))

    def Create_graph(self, index: Any, edges: Any, reorder: bool = False) -> GraphComm:
        return self._wrap(GraphComm, super().Create_graph(index, edges, reorder))

    def Create_dist_graph(self, *arguments: Any, **keywords: Any) -> DistgraphComm:
        return self._wrap(DistgraphComm, super().Create_dist_graph(*arguments, **keywords))

    def Create_dist_graph_adjacent(self, *arguments: Any, **keywords: Any) -> DistgraphComm:
        return self._wrap(DistgraphComm, super().Create_dist_graph_adjacent(*arguments, **keywords))

    def __reduce__(self) -> Any:
        return reduced(self) or super().__reduce__()


@_documented
class CartComm(Comm, MPI.Cartcomm):
    """A communicator of mpi4py with a Cartesian topology, whose blocking collectives are ours.

    >>> grid = Comm(MPI.COMM_SELF).Create_cart([1, 1])
    >>> type(grid).__name__, grid.dim
    ('CartComm', 2)
    """

    def Sub(self, remain_dims: Any) -> CartComm:
        return self._wrap(CartComm, super().Sub(remain_dims))


class GraphComm(Comm, MPI.Graphcomm):
    """A communicator of mpi4py with a graph as topology, whose blocking collectives are ours.

    >>> graph = Comm(MPI.COMM_SELF).Create_graph([1], [0])
    >>> type(graph).__name__, graph.allreduce(1)
    ('GraphComm', 1)
    """


class DistgraphComm(Comm, MPI.Distgraphcomm):
    """The same with a distributed graph.

    >>> graph = Comm(MPI.COMM_SELF).Create_dist_graph_adjacent([], [])
    >>> type(graph).__name__, graph.allreduce(1)
    ('DistgraphComm', 1)
    """


@cache
def _new_class(kind: Any) -> Any:
    """Return the class of the communicators of a kind whose first calls MPI runs alone.

    Any other class than ours stays as it is. All ranks make the same collective calls, so their
    counts agree without communication.
    """
    if kind not in (Comm, CartComm, GraphComm, DistgraphComm):
        return kind
    methods = {
        name: _compiled.FirstCalls(getattr(MPI.Intracomm, name), Comm._calls, FIRST_CALLS, kind)  # type: ignore[attr-defined]
        for name in (*NAMES, *ISSUED) if hasattr(MPI.Intracomm, name)
    }  # fmt: skip
    methods |= {name: getattr(MPI.Comm, name) for name in ("Free", "Disconnect")}
    return type(kind.__name__, (kind,), {"__slots__": (), "_is_plain": True, **methods})


def reduced(comm: MPI.Comm) -> Any:
    """Return what pickle makes one of MPI's own communicators of, None for any other."""
    for name in ("COMM_NULL", "COMM_SELF", "COMM_WORLD"):
        if comm == getattr(MPI, name):
            return _named, (type(comm), name)
    return None


def _run(server: Any, run_mpi: Callable[..., None], *arguments: Any) -> None:
    """Run a call by what serves a communicator, or by MPI."""
    if server is None or server.run(*arguments):
        run_mpi(*arguments)


def _divided(comm: Comm, name: str, server: Any, limit: float) -> Callable[..., Any]:
    """Return a method that is MPI's own for calls with a result of less than some bytes."""
    short, method = mpi_method(comm, name), getattr(Comm, name)
    if limit == inf:
        return short
    served = Comm(MPI.Intracomm(comm))  # lest `comm` has itself
    run = partial(_run, server, mpi_calls(comm))
    served._call = partial(_compiled.uninterrupted, run)  # type: ignore[method-assign]

    def call(sendbuf: Any, recvbuf: Any, *more: Any, **named: Any) -> Any:
        memory = recvbuf[0] if type(recvbuf) in _LISTS and recvbuf else recvbuf
        if getattr(memory, "nbytes", limit) < limit:
            return short(sendbuf, recvbuf, *more, **named)
        return method(served, sendbuf, recvbuf, *more, **named)

    return call


def _named(kind: type[MPI.Comm], name: str) -> MPI.Comm:
    comm: MPI.Comm = getattr(MPI, name)
    return comm if type(comm) is kind else kind(comm)
