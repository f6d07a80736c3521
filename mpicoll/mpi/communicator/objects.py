"""Collectives of Python's objects: mpi4py's lower-case methods, over a channel.

An object is pickled by mpi4py's serializer, and its bytes go through the slots of the channel. A
reader learns their number from the first slot, so a method that moves objects is one call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.c_extension import _compiled
from mpicoll.engine.channels import ALLGATHER, ALLTOALL, BROADCAST, GATHER, REDUCE, SCATTER
from mpicoll.errors import brief

Method = Callable[..., Any]
_pickle = MPI.pickle
"""mpi4py's serializer, which a program may change."""
_FAILED = b"mpicoll: a fold has raised on "
"""Begins what a rank sends instead of a fold that has raised."""
_NOTHING = object()
_FLOATS = float, np.floating
_NUMBERS = {int, bool, float, complex, *np.sctypeDict.values()} - {np.object_, np.void}
"""The types of what all ranks fold alike by MPI's operators, as they do tuples of these."""


def _valid_root(comm: Any, root: Any) -> int:
    """Return a root as a number, before other ranks hear of the call.

    Raises:
        TypeError: it is no number; MPI.Exception, as mpi4py does, where it is no rank.
    """
    if type(root) is not int:
        if not hasattr(root, "__int__"):
            raise TypeError(f"a root is a rank, not {root!r}")
        root = int(root)
    if not 0 <= root < comm.size:
        comm.Call_errhandler(MPI.ERR_ROOT)
        raise MPI.Exception(MPI.ERR_ROOT)
    return root  # type: ignore[no-any-return]


def _load_all(items: list[Any], rank: int, local: bytes) -> list[Any]:
    """Return the objects of all ranks, of which this one's bytes are `local`."""
    load = _pickle.loads
    return [load(local if index == rank else item) for index, item in enumerate(items)]


def _dump_all(comm: Any, values: Any) -> list[bytes]:
    """Return the bytes of an object for each rank.

    Raises:
        ValueError: there are not as many items as ranks.
    """
    items = (None,) * comm.size if values is None else tuple(values)
    if len(items) != comm.size:
        raise ValueError(f"expecting {comm.size} items, got {len(items)}")
    return [_pickle.dumps(item) for item in items]


def bcast(exchange: Method, comm: Any, obj: Any, root: int = 0) -> Any:
    """Return the root's object on every rank, a copy of it on the root."""
    root = _valid_root(comm, root)
    if comm.rank == root:
        data = _pickle.dumps(obj)
        exchange(BROADCAST, root, data)
    else:
        (data,) = exchange(BROADCAST, root, None)
    return _pickle.loads(data)


def gather(exchange: Method, comm: Any, sendobj: Any, root: int = 0) -> list[Any] | None:
    """Return every rank's object on the root, None elsewhere."""
    root = _valid_root(comm, root)
    data = _pickle.dumps(sendobj)
    items = exchange(GATHER, root, data)
    return _load_all(items, root, data) if comm.rank == root else None


def allgather(exchange: Method, comm: Any, sendobj: Any) -> list[Any]:
    """Return every rank's object on all ranks."""
    data = _pickle.dumps(sendobj)
    return _load_all(exchange(ALLGATHER, 0, data), comm.rank, data)


def scatter(exchange: Method, comm: Any, sendobj: Any, root: int = 0) -> Any:
    """Return this rank's item of the root's."""
    root = _valid_root(comm, root)
    if comm.rank == root:
        items = _dump_all(comm, sendobj)
        exchange(SCATTER, root, items)
        return _pickle.loads(items[root])
    (data,) = exchange(SCATTER, root, None)
    return _pickle.loads(data)


def alltoall(exchange: Method, comm: Any, sendobj: Any) -> list[Any]:
    """Return every rank's item for this one."""
    items = _dump_all(comm, sendobj)
    return _load_all(exchange(ALLTOALL, 0, items), comm.rank, items[comm.rank])


def reduce_objects(
    exchange: Method, comm: Any, sendobj: Any, op: Any = MPI.SUM, root: int = 0
) -> Any:  # fmt: skip
    """Return the fold of all ranks' objects on the root, None elsewhere.

    The root folds by MPI's operators, and several ranks by a function, which may take long.
    """
    if not _is_mpis(op) and comm.size > 2:
        root, data = _valid_root(comm, root), _pickle.dumps(sendobj)
        return _compiled.uninterrupted(_fold_in_tree, exchange, comm, data, op, root)
    items = gather(exchange, comm, sendobj, root)
    return None if items is None else reduce(fold_of(op), items)


def allreduce(exchange: Method, comm: Any, sendobj: Any, op: Any = MPI.SUM) -> Any:
    """Return the fold on all ranks.

    All ranks fold numbers. Two folds of other objects can differ, as a set's texts have another
    order in each process: a single rank makes each of these.
    """
    data, is_mpis, is_number = _pickle.dumps(sendobj), _is_mpis(op), _is_number(sendobj)
    if is_mpis and is_number:
        items = exchange(ALLGATHER, 0, data)
        if b"" not in items:
            load = _pickle.loads
            numbers = [sendobj if item is None else load(item) for item in items]
            return reduce(fold_of(op), numbers)
    tells = is_mpis and not is_number
    return _compiled.uninterrupted(_fold_in_tree, exchange, comm, data, op, None, tells)


def _fold_in_tree(
    exchange: Method, comm: Any, data: bytes, op: Any, root: int | None, tells: bool = False
) -> Any:
    """Return the fold of all ranks' objects on a root, or on all ranks.

    Args:
        data: this rank's object.
        tells: the other ranks are to hear that this one has no number.

    Raises:
        RuntimeError: a fold has raised on another rank, where its own error is raised.
    """
    _compiled.postpone_handlers()  # which run after all parts of the call
    if tells:
        exchange(ALLGATHER, 0, b"")
    load, fold, error = _pickle.loads, fold_of(op), None
    levels, value = (comm.size - 1).bit_length(), _NOTHING
    for level in range(levels):
        items = exchange(REDUCE, 1 << level, data)
        if not items or data.startswith(_FAILED):
            continue
        try:
            if items[0].startswith(_FAILED):
                data = items[0]
                continue
            value = fold(load(data) if value is _NOTHING else value, load(items[0]))
            if comm.rank or (root != 0 and level == levels - 1):
                data = _pickle.dumps(value)
        except Exception as failure:
            error, data = failure, _failure_of(comm.rank, failure)
    if root is None:
        items = exchange(BROADCAST, 0, None if comm.rank else data)
    elif root:
        items = exchange(GATHER, root, b"" if comm.rank else data)
    if error is not None:
        raise error
    if root not in (None, comm.rank):
        return None
    data = items[0] if root != 0 and comm.rank else data
    if data.startswith(_FAILED):
        raise RuntimeError(f"the reduction has failed on {data[len(_FAILED) :].decode()}")
    return value if root == 0 else load(data)


def _failure_of(rank: int, error: Exception) -> bytes:
    return _FAILED + f"rank {rank}: {brief(error)}".encode(errors="replace")


def _is_mpis(op: Any) -> bool:
    return isinstance(op, MPI.Op) and op.is_predefined


def _is_number(item: Any) -> bool:
    return type(item) in _NUMBERS or (
        type(item) is tuple and all(type(part) in _NUMBERS for part in item)
    )


def scan(exchange: Method, comm: Any, sendobj: Any, op: Any = MPI.SUM) -> Any:
    """Return the fold of the objects of the ranks up to this one."""
    return _fold_first(exchange, comm, sendobj, op, comm.rank + 1)


def exscan(exchange: Method, comm: Any, sendobj: Any, op: Any = MPI.SUM) -> Any:
    """Return the fold of the objects of the ranks before this one, None on the first."""
    return _fold_first(exchange, comm, sendobj, op, comm.rank)


def _fold_first(exchange: Method, comm: Any, sendobj: Any, op: Any, count: int) -> Any:
    data = _pickle.dumps(sendobj)
    items = _load_all(exchange(ALLGATHER, 0, data)[:count], comm.rank, data)
    return reduce(fold_of(op), items) if items else None


def fold_of(op: Any) -> Callable[[Any, Any], Any]:
    """Return an operator of objects; minima and maxima keep NaN, and order zeros by sign.

    MPI libraries compare NaN and zeros of both signs in the order of their own folds.
    """
    return _EXTREMES.get(op.handle, op) if isinstance(op, MPI.Op) else op  # type: ignore[no-any-return]


def _extreme(op: MPI.Op, choose: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def fold(lhs: Any, rhs: Any) -> Any:
        if not (isinstance(lhs, _FLOATS) and isinstance(rhs, _FLOATS)):
            return op(lhs, rhs)
        if lhs != lhs or rhs != rhs:
            return lhs if lhs != lhs else rhs
        if lhs or rhs:
            return choose(lhs, rhs)
        return choose(lhs, rhs, key=lambda item: np.copysign(1, item))

    return fold


_EXTREMES: dict[int, Any] = {
    MPI.MIN.handle: _extreme(MPI.MIN, min), MPI.MAX.handle: _extreme(MPI.MAX, max)
}  # fmt: skip


METHODS: dict[str, Method] = {
    "bcast": bcast, "gather": gather, "allgather": allgather, "scatter": scatter,
    "alltoall": alltoall, "reduce": reduce_objects, "allreduce": allreduce, "scan": scan,
    "exscan": exscan,
}  # fmt: skip
"""mpi4py's methods of objects; each takes `Channel.exchange` first."""
