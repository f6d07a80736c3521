"""Collectives of Python's objects: mpi4py's lower-case methods.

Each function makes such a method for one communicator, with the rooms of its messages: one of our
collectives exchanges these, and a second one the payloads where some object has one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.c_extension import _compiled
from mpicoll.mpi.communicator.buffers import Flat
from mpicoll.mpi.communicator.dispatcher import MPI_CALL
from mpicoll.mpi.communicator.in_order import folded_by_first, folded_of
from mpicoll.mpi.communicator.messages import (
    NOTHING,
    PICKLE,
    STOCK,
    Rooms,
    decode,
    decode_all,
    head_at,
)
from mpicoll.mpi.communicator.reading import AS_OBJECT, is_extreme
from mpicoll.tuning import GATHERED_RANKS, MESSAGE_ROOMS

Method = Callable[..., Any]


def _taken(rooms: Rooms) -> Flat:
    """Return the payload of this rank's messages, which is kept no longer."""
    payload, rooms.payload = rooms.payload, NOTHING
    return payload


def _one_call(
    made_for: Any, rooms: Rooms, write: Method, exchange: Method, *, is_rooted: bool = False
) -> Method:
    """Return a method of objects, whose collectives are parts of one call of the communicator.

    It takes the communicator, an object, the root, and how many objects are wanted here.

    Args:
        write: takes the object and the root, and writes this rank's messages. Code of objects that
            runs there may call the method, too.
        exchange: takes the communicator, what `write` has returned, the root, and how many are
            wanted; returns the result.
        is_rooted: its caller gives a root, which may be wrong.
    """
    hold, release = made_for.calls.hold, made_for.calls.release

    def run(comm: Any, item: Any, root: Any = None, wanted: int = 0) -> Any:
        if is_rooted:
            root = _valid_root(comm, root)
        if rooms.in_use:
            with rooms.allow_reentry():
                return run(comm, item, root, wanted)
        rooms.in_use, held = True, None
        try:
            written = write(item, root)
            held = hold()
            return exchange(comm, written, root, wanted)
        finally:
            rooms.in_use = False
            if held is not None:
                release(held)

    return run


def bcast(made_for: Any) -> Method:
    """Make the method that returns the root's object on every rank, a copy of it on the root."""
    rooms, call = Rooms(made_for), made_for._call
    rank, write, read = rooms.rank, _compiled.write_objects, _compiled.read_objects
    message, capacity = rooms.message, len(rooms.message)

    def put(obj: Any, root: int) -> None:
        if rank == root:
            written = write(message, capacity, (obj,), STOCK, rooms.overflow)
            if rooms.overflow or written > rooms.room:
                rooms.put(written)

    def exchange(comm: Any, _written: None, root: int, _wanted: int) -> Any:
        view = rooms.view
        if call("bcast", view, view, None, root, None, None):
            comm.mpi.Bcast(comm, view, root)
        objects = read(message, rooms.room, 1, rooms.lower_room, 1, STOCK)
        return objects[0] if objects else receive_payload(root)

    def receive_payload(root: int) -> Any:
        head = head_at(message)
        rooms.adapt(head.need)
        payload = _taken(rooms) if rank == root else np.empty(head.alike, "u1")
        if head.alike:
            made_for.Bcast(payload, root)
        if rank == root and head.kind != PICKLE:
            # The result must not share the caller's array.
            payload = payload.copy()
        return decode(message, payload)

    return _one_call(made_for, rooms, put, exchange, is_rooted=True)


def gather(made_for: Any) -> Method:
    """Make the method that returns every rank's object on the root, None elsewhere."""
    size, rank, gathered = made_for.size, made_for.rank, _gathering(made_for)

    def run(comm: Any, sendobj: Any, root: int = 0) -> list[Any] | None:
        root = _valid_root(comm, root)
        if rank == root:
            return gathered(comm, sendobj, root, size)  # type: ignore[no-any-return]
        gathered(comm, sendobj, root, 0)
        return None

    return run


def allgather(made_for: Any) -> Method:
    """Make the method that returns every rank's object on all ranks."""
    size, gathered = made_for.size, _gathering(made_for)

    def run(comm: Any, sendobj: Any) -> list[Any]:
        return gathered(comm, sendobj, None, size)  # type: ignore[no-any-return]

    return run


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


_MISSED: list[Any] = []
"""In place of all ranks' objects where the ranks are not all in such a call."""


def _gathering(made_for: Any, *, may_miss: bool = False, is_short: bool = False) -> Method:
    """Make a method that returns the objects of as many ranks, the first ones, as each rank wants.

    It takes the root, to whom alone payloads are sent, or None, and how many are wanted here.

    Args:
        may_miss: ranks may be in another call, which they find in this one.
        is_short: they are, too, where an object needs a longer room, or pickle.
    """
    rooms, call = Rooms(made_for), made_for._call
    rank, size = rooms.rank, rooms.size
    write, read = _compiled.write_objects, _compiled.read_objects
    message, capacity = rooms.message, len(rooms.message)
    overflow = None if is_short else rooms.overflow  # what MPI's tree pickles once more

    def put(item: Any, _root: int | None) -> int:
        written: int = write(message, capacity, (item,), STOCK, overflow)
        return written

    def exchange(comm: Any, written: int, root: int | None, wanted: int) -> list[Any]:
        if overflow or not 0 < written <= rooms.room:
            if is_short:
                made_for.calls.agree(MPI_CALL, None)
                return _MISSED
            rooms.put(written)
        if call("allgather", rooms.view, rooms.whole, None, 0, None, None):
            if may_miss:
                return _MISSED
            comm.mpi.Allgather(comm, rooms.view, rooms.whole)
        objects: list[Any] | None = read(
            rooms.all, rooms.room, size, rooms.lower_room, wanted, STOCK
        )
        return receive_payloads(root, wanted) if objects is None else objects

    def receive_payloads(root: int | None, wanted: int) -> list[Any]:
        messages, room = rooms.all, rooms.room
        heads = [head_at(messages, start) for start in range(0, size * room, room)]
        rooms.adapt(max(head.need for head in heads))
        sizes = [head.payload for head in heads]
        payload = _taken(rooms)[: sizes[rank]]  # that of a call that was missed may be there
        gets = root is None or root == rank
        some = any(sizes)
        payloads = _gathered(made_for, payload, sizes, root, gets=gets) if some else payload
        return decode_all(messages, room, payloads, sizes[:wanted])

    return _one_call(made_for, rooms, put, exchange)


def _gathered(comm: Any, payload: Flat, sizes: list[int], root: int | None, *, gets: bool) -> Flat:
    """Return all ranks' payloads, one behind the other; none on a rank that gets none."""
    whole = np.empty(sum(sizes) if gets else 0, "u1")
    alike = min(sizes) == max(sizes)
    if root is not None:
        target = whole if alike else [whole, sizes]
        (comm.Gather if alike else comm.Gatherv)(payload, target if gets else None, root)
    elif alike:
        comm.Allgather(payload, whole)
    else:
        comm.Allgatherv(payload, [whole, sizes])
    return whole


def scatter(made_for: Any) -> Method:
    """Make the method that returns this rank's item of the root's."""
    rooms, call, read = Rooms(made_for), made_for._call, _compiled.read_objects
    rank, message = rooms.rank, rooms.message

    def put(sendobj: Any, root: int) -> Flat | None:
        return rooms.put_all(sendobj) if rank == root else None

    def exchange(comm: Any, sent: Flat | None, root: int, _wanted: int) -> Any:
        view = rooms.view
        if call("scatter", sent, view, None, root, None, None):
            comm.mpi.Scatter(comm, sent, view, root)
        objects = read(message, rooms.room, 1, rooms.lower_room, 1, STOCK)
        return objects[0] if objects else receive_payload(root)

    def receive_payload(root: int) -> Any:
        head = head_at(message)
        rooms.adapt(head.need)
        payload, sent = np.empty(head.payload, "u1"), _taken(rooms)
        if head.alike > 0:
            made_for.Scatter(sent if rank == root else None, payload, root)
        elif head.alike:
            made_for.Scatterv([sent, rooms.sizes] if rank == root else None, payload, root)
        return decode(message, payload)

    return _one_call(made_for, rooms, put, exchange, is_rooted=True)


def alltoall(made_for: Any) -> Method:
    """Make the method that returns every rank's item for this one."""
    rooms, call, read = Rooms(made_for), made_for._call, _compiled.read_objects
    size = rooms.size

    def put(sendobj: Any, _root: None) -> Flat:
        return rooms.put_all(sendobj)

    def exchange(comm: Any, sent: Flat, _root: None, _wanted: int) -> list[Any]:
        if call("alltoall", sent, rooms.whole, None, 0, None, None):
            comm.mpi.Alltoall(comm, sent, rooms.whole)
        return (
            read(rooms.all, rooms.room, size, rooms.lower_room, size, STOCK) or receive_payloads()
        )

    def receive_payloads() -> list[Any]:
        messages, room = rooms.all, rooms.room
        heads = [head_at(messages, start) for start in range(0, size * room, room)]
        rooms.adapt(max(head.need for head in heads))
        sizes = [head.payload for head in heads]
        payloads, sent = np.empty(sum(sizes), "u1"), _taken(rooms)
        # Every rank sees what each says of all its payloads.
        alike = {head.alike for head in heads}
        if len(alike) > 1 or alike == {-1}:
            made_for.Alltoallv([sent, rooms.sizes], [payloads, sizes])
        elif alike != {0}:
            made_for.Alltoall(sent, payloads)
        return decode_all(messages, room, payloads, sizes)

    return _one_call(made_for, rooms, put, exchange)


# -- reductions ------------------------------------------------------------------------------------

_FOLDED = {
    int: {MPI.SUM.handle, MPI.MIN.handle, MPI.MAX.handle, MPI.BAND.handle, MPI.BOR.handle,
          MPI.BXOR.handle},
    float: {MPI.SUM.handle, MPI.PROD.handle, MPI.MIN.handle, MPI.MAX.handle},
    complex: {MPI.SUM.handle, MPI.PROD.handle},
}  # fmt: skip
_PREDEFINED = frozenset(
    op.handle
    for op in (MPI.SUM, MPI.PROD, MPI.MIN, MPI.MAX, MPI.MINLOC, MPI.MAXLOC, MPI.LAND, MPI.LOR,
                 MPI.LXOR, MPI.BAND, MPI.BOR, MPI.BXOR)
)  # fmt: skip
_FOLDED_ARRAYS = {MPI.SUM.handle, MPI.PROD.handle, MPI.BAND.handle, MPI.BOR.handle, MPI.BXOR.handle}
_DTYPES = {int: np.dtype("int64"), float: np.dtype("float64"), complex: np.dtype("complex128")}
_AS_ARRAYS: frozenset[type[Any]] = frozenset((*_DTYPES, np.ndarray))
"""The types of objects that may be folded as arrays."""
_SHORT: frozenset[type[Any]] = frozenset(
    (*_AS_ARRAYS, bool, type(None), str, bytes, tuple, list, dict)
)
"""The types of objects that may be short, but for rows of as many elements as a room has bytes."""


def folding(name: str) -> Callable[[Any], Method]:
    """Return what makes a reduction of objects for one communicator.

    On a few ranks, those who want the fold get all ranks' objects, and fold them rank by rank. On
    more so do short ones with MPI's operators; the others are left to MPI's tree: users' operators
    without a word, as all ranks give the same one.
    """

    def make(made_for: Any) -> Method:
        mpi_method = getattr(made_for.mpi, name)
        is_few = made_for.size <= GATHERED_RANKS
        fold = _folding(made_for, name, mpi_method, is_few=is_few)

        def leave_to_mpi(comm: Any, sendobj: Any, op: Any, root: int) -> Any:
            _compiled.postpone_handlers()
            if _is_predefined(op):
                leave(made_for.calls)
            return mpi_method(comm, sendobj, op, *([root] if name == "reduce" else ()))

        def reduction(comm: Any, sendobj: Any, op: Any = MPI.SUM, root: int = 0) -> Any:
            is_ours = is_few or (_is_predefined(op) and not _is_long(sendobj))
            run = fold if is_ours else leave_to_mpi
            return _compiled.uninterrupted(run, comm, sendobj, op, root)

        if name == "reduce":
            return reduction
        return lambda comm, sendobj, op=MPI.SUM: reduction(comm, sendobj, op)

    return make


def leave(calls: Any) -> None:
    """Tell the other ranks that this one leaves a call to MPI."""
    held = calls.hold()
    try:
        calls.agree(MPI_CALL, None)
    finally:
        calls.release(held)


def _is_long(item: Any) -> bool:
    """Whether an object is none of those that may be short."""
    if type(item) not in _SHORT:
        return True
    return type(item) in (str, bytes, tuple, list) and len(item) >= MESSAGE_ROOMS[0]


def _folding(made_for: Any, name: str, mpi_method: Method, *, is_few: bool) -> Method:
    is_rooted = name == "reduce"
    call, rank, size = made_for.calls, made_for.rank, made_for.size
    gathered = _gathering(made_for, may_miss=True, is_short=not is_few)
    surely, tell = _gathering(made_for), bcast(made_for)

    def run(comm: Any, sendobj: Any, op: Any = MPI.SUM, root: int = 0) -> Any:
        root = _valid_root(comm, root)
        x = foldable(sendobj, op, size) if type(sendobj) in _AS_ARRAYS else None
        if x is None:
            return folded(gathered, comm, sendobj, op, root)
        out = np.empty_like(x)
        if call(name, x, out, op, root, None, AS_OBJECT):
            return _compiled.end_uninterrupted(otherwise, comm, sendobj, op, root)
        gets = rank == root if is_rooted else rank or name != "exscan"
        return (out if x.ndim else out.item()) if gets else None

    def folded(gather: Method, comm: Any, sendobj: Any, op: Any, root: int) -> Any:
        by_one = is_rooted or (name == "allreduce" and not _is_predefined(op))
        to = None if not by_one else root if is_rooted else 0
        fold = _with_floats_as_arrays(op)
        wanted = folded_of(name, rank, size) if to is None else size * (rank == to)
        items = gather(comm, sendobj, to, wanted)
        if items is _MISSED:
            return otherwise(comm, sendobj, op, root)
        if name == "allreduce" and (by_one or any(type(item) not in _SHORT for item in items)):
            return folded_by_first(rank, fold, items, lambda outcome: tell(comm, outcome, 0))
        return reduce(fold, items) if items else None

    def otherwise(comm: Any, sendobj: Any, op: Any, root: int) -> Any:
        if not is_few:
            return mpi_method(comm, sendobj, op, *([root] if is_rooted else ()))
        return folded(surely, comm, sendobj, op, root)

    return run


def _with_floats_as_arrays(op: Any) -> Any:
    """Return an operator whose minimum or maximum of floats is that of arrays."""
    if not is_extreme(op):
        return op
    choose: Any = max if op == MPI.MAX else min

    def fold(lhs: Any, rhs: Any) -> Any:
        if not all(isinstance(item, float | np.floating) for item in (lhs, rhs)):
            return op(lhs, rhs)
        if lhs != lhs or rhs != rhs:
            return lhs if lhs != lhs else rhs
        return choose(lhs, rhs, key=lambda item: (item, np.copysign(1, item)))

    return fold


def _is_predefined(op: Any) -> bool:
    return isinstance(op, MPI.Op) and op.handle in _PREDEFINED


def foldable(item: Any, op: Any, size: int) -> Flat | None:
    """Return an object as an array that folds to what MPI's pickled objects would, None if none.

    Args:
        item: of one of the types `_AS_ARRAYS`.

    A number becomes an array without axes, as no user's array is given.
    """
    handle = op.handle if isinstance(op, MPI.Op) else None
    kind = type(item)
    if kind in _DTYPES:
        if handle not in _FOLDED[kind] or (item != item and not is_extreme(op)):
            return None
        if kind is int and abs(item) > (1 << 62) // size:
            return None  # Python's sum would not overflow
        return np.array(item, _DTYPES[kind])
    if not item.ndim or handle not in _FOLDED_ARRAYS:
        return None
    fits: bool = item.dtype.kind in "iufc" and item.flags.c_contiguous
    return item if fits else None


METHODS: dict[str, Callable[[Any], Method]] = {
    "bcast": bcast, "gather": gather, "allgather": allgather, "scatter": scatter,
    "alltoall": alltoall,
    **{name: folding(name) for name in ("reduce", "allreduce", "scan", "exscan")},
}  # fmt: skip
"""What makes the methods of objects for a communicator, by name."""
