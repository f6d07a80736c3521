"""Collectives of Python's objects: mpi4py's lower-case methods, without a pickle of arrays.

An object travels as a header of fixed length and, where it does not fit there, a payload. Numbers,
short texts and bytes, and short tuples and lists of them are written there by `marshal`. NumPy
arrays and tuples of them are described there, and their data goes as it lies in memory; any other
object is pickled, as mpi4py does.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Sequence
from functools import reduce
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpicoll.mpi.communicator.buffers import Flat
from mpicoll.mpi.communicator.in_order import prefix
from mpicoll.mpi.communicator.served import LEFT_ALONE

HEADER = 256
_HEAD = struct.Struct("=BHq")
_LENGTH = struct.Struct("=q")
_TAIL = HEADER - _LENGTH.size
"""Where a header ends that says, last, how long all payloads of its sender are."""
_ROOM = _TAIL - _HEAD.size
_WRITTEN: frozenset[type[Any]] = frozenset((int, float, complex, bool, type(None), str, bytes))
"""The types of what `marshal` writes as pickle would, and faster."""
_SCALARS = np.bool_, np.number
_OUTLINED = frozenset((tuple, np.ndarray, *np.sctypeDict.values()))
"""The types of what may have an outline beside its data."""
_ROWS: frozenset[type[Any]] = frozenset((tuple, list))
_PLAIN, _ARRAYS, _PICKLE = range(3)
_MORE = 128
"""Added to the kind of a header that a payload belongs to."""
_SOME = 64
"""Added to those of all headers of a sender that sends a payload to any rank."""
_OLD = 2
"""The version of `marshal`'s format that looks for no object twice: faster for short ones."""
_BYTE = np.dtype("uint8")
_NOTHING: Flat = np.empty(0, _BYTE)

Message = tuple[bytes, Flat]
"""The header of an object, `HEADER` bytes, and a payload where the data does not fit there."""


def encode(item: Any) -> Message:
    """Return an object as a message."""
    header = bytearray(HEADER)
    payload = _write(header, item)
    return bytes(header), payload


def _write(headers: bytearray, item: Any, start: int = 0) -> Flat:
    """Write the header of an object there; return its payload."""
    end = start + 1
    if form := _plain(item):
        headers[start], headers[end : end + len(form)] = _PLAIN, form
        return _NOTHING
    if type(item) in _OUTLINED:
        parts = list[Flat]()
        outline = _outline(item, parts)
        form = b"" if outline is None else marshal.dumps(outline)
        if 0 < len(form) <= _ROOM:
            payload = parts[0] if len(parts) == 1 else np.concatenate([_NOTHING, *parts])
            fits = payload.nbytes <= _ROOM - len(form)
            more, size = (0, 0) if fits else (_MORE, payload.nbytes)
            body = form + payload.tobytes() if fits else form
            _HEAD.pack_into(headers, start, _ARRAYS | more, len(form), size)
            end = start + _HEAD.size
            headers[end : end + len(body)] = body
            return _NOTHING if fits else payload
    data = MPI.pickle.dumps(item)
    size = len(data)
    if size > _ROOM:
        _HEAD.pack_into(headers, start, _PICKLE | _MORE, 0, size)
        return np.frombuffer(data, _BYTE)
    headers[start], headers[end], headers[end + 1 : end + 1 + size] = _PICKLE, size, data
    return _NOTHING


def _plain(item: Any) -> bytes:
    """Return what `marshal` writes of an object that it restores as pickle does; nothing of others.

    Nor of what is too long for a header.
    """
    kind = type(item)
    if kind not in _WRITTEN and (
        kind not in _ROWS or len(item) > _TAIL or not _WRITTEN.issuperset(map(type, item))
    ):
        return b""
    form = marshal.dumps(item, _OLD)
    return form if len(form) < _TAIL else b""


def missing(headers: bytearray, start: int = 0) -> int:
    """Return the bytes of the payload that belongs to a header, 0 where there is none."""
    size: int = _HEAD.unpack_from(headers, start)[2] if headers[start] & _MORE else 0
    return size


def decode(headers: bytearray, payload: Flat | None, start: int = 0) -> Any:
    """Return the object of the header that begins there, and of its payload.

    An array that is the whole payload keeps its memory.
    """
    kind, form, end = headers[start] & ~_SOME, start + 1, start + HEADER
    if kind == _PLAIN:
        return marshal.loads(headers[form:end])
    if kind == _PICKLE:
        # Not all that a program may have in place of pickle ignores what follows its data.
        return MPI.pickle.loads(headers[form + 1 : form + 1 + headers[form]])
    if kind & ~_MORE == _PICKLE:
        return MPI.pickle.loads(payload)
    length, form = _HEAD.unpack_from(headers, start)[1], start + _HEAD.size
    data = headers[form + length : end] if payload is None else payload
    return _filled(marshal.loads(headers[form : form + length]), data, [0])


class Messages(NamedTuple):
    """What one rank sends to all.

    Attributes:
        headers: one behind the other; each says of all payloads how long they are, -1 where their
            lengths differ.
        payload: those of all messages, one behind the other.
        sizes: their bytes.
    """

    headers: Flat
    payload: Flat = _NOTHING
    sizes: Sequence[int] = ()


def _messages(given: Any, rooms: Rooms) -> Messages:
    """Return what goes to all ranks; the headers last until the next such call."""
    many = rooms.size
    items = [None] * many if given is None else list(given)
    if len(items) != many:
        raise ValueError(f"expecting {many} items, got {len(items)}")
    headers, plain = rooms.sent
    forms = [_plain(each) for each in items]
    if all(forms):
        rooms.pack_into(headers, 0, *forms)
        return plain
    payloads = [_write(headers, each, start * HEADER) for start, each in enumerate(items)]
    sizes = [each.nbytes for each in payloads]
    if not any(sizes):
        return plain
    alike = sizes[0] if min(sizes) == max(sizes) else -1
    for start in range(0, many * HEADER, HEADER):
        headers[start] |= _SOME
        _LENGTH.pack_into(headers, start + _TAIL, alike)
    return Messages(plain.headers, np.concatenate(payloads), sizes)


def _alike(headers: bytearray, start: int = 0) -> int:
    """Return the bytes of every payload of a header's sender, -1 where they differ, 0 for none."""
    if not headers[start] & _SOME:
        return 0
    length: int = _LENGTH.unpack_from(headers, start + _TAIL)[0]
    return length


def _outline(item: Any, parts: list[Flat]) -> Any:
    """Return what an object is but for the data of its arrays, which go to `parts`.

    None where it is something else than numbers, arrays and tuples of them.
    """
    if type(item) in _WRITTEN:
        return (item,)
    if type(item) is tuple:
        inner = [_outline(each, parts) for each in item]
        return None if None in inner else inner
    if not (type(item) is np.ndarray or isinstance(item, _SCALARS)):
        return None
    if item.dtype.kind not in "biufc" or not item.dtype.isnative:
        return None
    array = np.asarray(item)
    turned = array.flags.f_contiguous and not array.flags.c_contiguous
    flat = np.ascontiguousarray((array.T if turned else array).reshape(-1))
    parts.append(flat.view(_BYTE))
    # Pickle, too, keeps one that is contiguous from being written.
    fixed = not array.flags.writeable and array.flags.forc
    return item.dtype.str, array.shape, turned, fixed, type(item) is not np.ndarray


def _filled(outline: Any, data: Any, position: list[int]) -> Any:
    if type(outline) is list:
        return tuple([_filled(each, data, position) for each in outline])
    if len(outline) == 1:
        return outline[0]
    name, shape, turned, fixed, scalar = outline
    dtype, count, start = np.dtype(name), prod(shape), position[0]
    position[0] = start + dtype.itemsize * count
    flat = np.frombuffer(data, dtype, count, start)
    if scalar:
        return flat[0]
    if flat.nbytes < len(data) or not flat.flags.aligned:
        flat = flat.copy()  # it would keep the whole message
    array = flat.reshape(shape[::-1]).T if turned else flat.reshape(shape)
    array.flags.writeable = not fixed
    return array


# -- collectives ---------------------------------------------------------------------------------


Room = tuple[bytearray, Flat, list[memoryview]]
"""Room for headers, the same as an array, and where `marshal` writes in each."""


def _room(many: int) -> Room:
    headers = bytearray(many * HEADER)
    view = memoryview(headers)
    forms = [view[start + 1 : start + HEADER] for start in range(0, many * HEADER, HEADER)]
    return headers, np.frombuffer(headers, _BYTE), forms


class Rooms:
    """What a communicator keeps for its calls of objects: what is there lasts until the next one.

    Attributes:
        own: for the header of this rank, or the one that it gets.
        received: for one header of each rank.
        sent: for one header for each rank that needs nothing but `marshal`, and the messages that
            these are; `pack_into` writes what `marshal` has made.
    """

    def __init__(self, comm: Any) -> None:
        self.rank, self.size = comm.rank, comm.size
        self.own = _room(1)
        self.received = _room(self.size)
        headers = bytearray(self.size * HEADER)
        self.sent = headers, Messages(np.frombuffer(headers, _BYTE))
        self.pack_into = struct.Struct(f"x{HEADER - 1}s" * self.size).pack_into


def _rooms(comm: Any) -> Rooms:
    found: Rooms | None = comm.__dict__.get("_rooms")
    if found is None:
        found = comm._rooms = Rooms(comm)
    return found


def bcast(comm: Any, item: Any, root: int) -> Any:
    """Return the root's object on every rank, a copy of it on the root."""
    rooms = _rooms(comm)
    header, room, (form,) = rooms.own
    own = _write(header, item) if rooms.rank == root else None
    if comm._call("bcast", room, room, None, root, None, None):
        comm.left.Bcast(comm, room, root)
    if not header[0]:
        return marshal.loads(form)
    if header[0] < _MORE:
        return decode(header, None)
    payload = np.empty(missing(header), _BYTE) if own is None else own.copy()
    comm.Bcast(payload, root)
    return decode(header, payload)


def gather(comm: Any, item: Any, root: int | None) -> list[Any] | None:
    """Return every rank's object on the root, None elsewhere; on all ranks where `root` is None."""
    rooms = _rooms(comm)
    header, room, _ = rooms.own
    own = _write(header, item)
    headers, whole, forms = rooms.received
    if comm._call("allgather", room, whole, None, 0, None, None):
        comm.left.Allgather(comm, room, whole)
    gets = root is None or rooms.rank == root
    kinds = headers[::HEADER]
    if not any(kinds):  # nothing but numbers and texts
        return [marshal.loads(form) for form in forms] if gets else None
    starts = range(0, len(headers), HEADER)
    if max(kinds) < _MORE:
        return [decode(headers, None, start) for start in starts] if gets else None
    sizes = [missing(headers, start) for start in starts]
    found = _payloads(comm, own, sizes, root, gets=gets)
    return _decoded(headers, found, sizes) if gets else None


def scatter(comm: Any, items: Any, root: int) -> Any:
    """Return this rank's item of the root's."""
    rooms = _rooms(comm)
    sent = _messages(items, rooms) if rooms.rank == root else None
    header, room, (form,) = rooms.own
    headers = None if sent is None else sent.headers
    if comm._call("scatter", headers, room, None, root, None, None):
        comm.left.Scatter(comm, headers, room, root)
    if not header[0]:
        return marshal.loads(form)
    alike = _alike(header)
    if not alike:
        return decode(header, None)
    own = np.empty(missing(header), _BYTE)
    if alike > 0:
        comm.Scatter(sent and sent.payload, own, root)
    else:
        comm.Scatterv(sent and [sent.payload, sent.sizes], own, root)
    return decode(header, own if own.size else None)


def alltoall(comm: Any, items: Any) -> list[Any]:
    """Return every rank's item for this one."""
    rooms = _rooms(comm)
    sent = _messages(items, rooms)
    headers, whole, forms = rooms.received
    if comm._call("alltoall", sent.headers, whole, None, 0, None, None):
        comm.left.Alltoall(comm, sent.headers, whole)
    if not any(headers[::HEADER]):
        return [marshal.loads(form) for form in forms]
    starts = range(0, len(headers), HEADER)
    # Every rank sees what each says of all its payloads.
    alike = {_alike(headers, start) for start in starts}
    if alike == {0}:
        return [decode(headers, None, start) for start in starts]
    sizes = [missing(headers, start) for start in starts]
    found = np.empty(sum(sizes), _BYTE)
    if len(alike) == 1 and alike != {-1}:
        comm.Alltoall(sent.payload, found)
    else:
        comm.Alltoallv([sent.payload, sent.sizes], [found, sizes])
    return _decoded(headers, found, sizes)


def _decoded(headers: bytearray, payloads: Flat, sizes: list[int]) -> list[Any]:
    """Return the objects of headers and payloads, both one behind the other."""
    return [
        decode(headers, payloads[end - length : end] if length else None, index * HEADER)
        for index, (length, end) in enumerate(zip(sizes, accumulate(sizes), strict=True))
    ]


def _payloads(comm: Any, own: Flat, sizes: list[int], root: int | None, *, gets: bool) -> Flat:
    """Return all ranks' payloads, one behind the other; none on a rank that gets none."""
    whole = np.empty(sum(sizes) if gets else 0, _BYTE)
    alike = min(sizes) == max(sizes)
    if root is not None:
        target = whole if alike else [whole, sizes]
        (comm.Gather if alike else comm.Gatherv)(own, target if gets else None, root)
    elif alike:
        comm.Allgather(own, whole)
    else:
        comm.Allgatherv(own, [whole, sizes])
    return whole


# -- reductions ------------------------------------------------------------------------------------

_FOLDED = {
    int: {MPI.SUM.handle, MPI.MIN.handle, MPI.MAX.handle, MPI.BAND.handle, MPI.BOR.handle,
          MPI.BXOR.handle},
    float: {MPI.SUM.handle, MPI.PROD.handle, MPI.MIN.handle, MPI.MAX.handle},
    complex: {MPI.SUM.handle, MPI.PROD.handle},
}  # fmt: skip
PREDEFINED = frozenset(
    each.handle
    for each in (MPI.SUM, MPI.PROD, MPI.MIN, MPI.MAX, MPI.MINLOC, MPI.MAXLOC, MPI.LAND, MPI.LOR,
                 MPI.LXOR, MPI.BAND, MPI.BOR, MPI.BXOR)
)  # fmt: skip
_FOLDED_ARRAYS = {MPI.SUM.handle, MPI.PROD.handle, MPI.BAND.handle, MPI.BOR.handle, MPI.BXOR.handle}
_DTYPES = {int: np.dtype("int64"), float: np.dtype("float64"), complex: np.dtype("complex128")}
AS_ARRAYS: frozenset[type[Any]] = frozenset((*_DTYPES, np.ndarray))
"""The types of objects that may be folded as arrays."""
SHORT: frozenset[type[Any]] = frozenset((*AS_ARRAYS, *_WRITTEN, *_ROWS))
LONG = _TAIL
"""The types of objects that may be folded here, but for sequences of at least so many elements."""


def foldable(item: Any, op: Any, size: int) -> Flat | None:
    """Return an object as an array that folds to what MPI's pickled objects would, None if none.

    Args:
        item: of one of the types `AS_ARRAYS`.

    A number becomes an array without axes, as no user's array is given.
    """
    kind = type(item)
    if kind in _DTYPES:
        if op.handle not in _FOLDED[kind] or item != item:
            return None
        if kind is int and abs(item) > (1 << 62) // size:
            return None  # Python's sum would not overflow
        return np.array(item, _DTYPES[kind])
    if not item.ndim or op.handle not in _FOLDED_ARRAYS:
        return None
    fits: bool = item.dtype.kind in "iufc" and item.flags.c_contiguous
    return item if fits else None


def fold(comm: Any, name: str, item: Any, op: Any, root: int) -> tuple[Any] | None:
    """Return the fold of all ranks' short objects, rank by rank; None where MPI must make it.

    Who folds gets all that it needs, and folds as MPI's predefined operators do objects of Python.
    """
    form = _plain(item)
    if not form:
        comm._call(*LEFT_ALONE)
        return None
    rooms = comm.__dict__.get("_rooms") or _rooms(comm)
    header, room, _ = rooms.own
    header[0], header[1 : 1 + len(form)] = _PLAIN, form
    _, whole, forms = rooms.received
    if name == "reduce":
        gets = rooms.rank == root
        if comm._call("gather", room, whole if gets else None, None, root, None, None):
            return None
        return (reduce(op, map(marshal.loads, forms)) if gets else None,)
    if comm._call("allgather", room, whole, None, 0, None, None):
        return None
    forms = prefix(name, forms, rooms.rank)
    return (reduce(op, map(marshal.loads, forms)) if forms else None,)
