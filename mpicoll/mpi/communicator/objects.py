"""Collectives of Python's objects: mpi4py's lower-case methods, without a pickle of arrays.

An object travels as a header of fixed length and, where it does not fit there, a payload. Numbers,
short texts and bytes, NumPy arrays and tuples of them are described in the header, and their data
goes as it lies in memory; any other object is pickled, as mpi4py does.
"""

from __future__ import annotations

import marshal
import struct
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.mpi.communicator.buffers import Flat

HEADER = 256
_HEAD = struct.Struct("=BHq")
_LENGTH = struct.Struct("=q")
_TAIL = HEADER - _LENGTH.size
"""Where a header ends that says, last, how long all payloads of its sender are."""
_ROOM = _TAIL - _HEAD.size
_WRITTEN = frozenset((int, float, complex, bool, type(None), str, bytes))
"""The types of what `marshal` writes as pickle would, and faster."""
_SCALARS = np.bool, np.number
_PLAIN, _ARRAYS, _PICKLE = range(3)
_MORE = 128
"""Added to the kind of a header that a payload belongs to."""
_BEGINNING = bytes([_PLAIN])
_BYTE = np.dtype("uint8")
_NOTHING: Flat = np.empty(0, _BYTE)

Message = tuple[bytes, Flat]
"""The header of an object, `HEADER` bytes, and a payload where the data does not fit there."""


def encode(item: Any) -> Message:
    """Return an object as a message."""
    parts: list[Flat] = []
    form = b""
    if type(item) in _WRITTEN:
        form = marshal.dumps(item)
        if len(form) < _TAIL:
            return (_BEGINNING + form).ljust(HEADER, b"\0"), _NOTHING
    elif (outline := _outline(item, parts)) is not None:
        form = marshal.dumps(outline)
    kind = _ARRAYS
    if not form or len(form) > _ROOM:
        data = MPI.pickle.dumps(item)
        if len(data) <= _ROOM:
            return _header(_PICKLE, 0, data, 0), _NOTHING
        kind, form, parts = _PICKLE, b"", [np.frombuffer(data, _BYTE)]
    payload = parts[0] if len(parts) == 1 else np.concatenate([_NOTHING, *parts])
    if payload.nbytes <= _ROOM - len(form):
        return _header(kind, 0, form + payload.tobytes(), len(form)), _NOTHING
    return _header(kind | _MORE, payload.nbytes, form, len(form)), payload


def _header(kind: int, size: int, body: bytes, length: int) -> bytes:
    return (_HEAD.pack(kind, length, size) + body).ljust(HEADER, b"\0")


def _given(headers: bytes) -> Flat:
    """Return headers as an array that is written nowhere, but could be, as MPI's calls want it."""
    return np.frombuffer(bytearray(headers), _BYTE)


def missing(headers: bytearray, start: int = 0) -> int:
    """Return the bytes of the payload that belongs to a header, 0 where there is none."""
    size: int = _HEAD.unpack_from(headers, start)[2] if headers[start] & _MORE else 0
    return size


def decode(headers: bytearray, payload: Flat | None, start: int = 0) -> Any:
    """Return the object of the header that begins there, and of its payload.

    An array that is the whole payload keeps its memory.
    """
    end = start + HEADER
    if headers[start] == _PLAIN:
        return marshal.loads(headers[start + 1 : end])
    kind, length, _ = _HEAD.unpack_from(headers, start)
    form = start + _HEAD.size
    data = headers[form + length : end] if payload is None else payload
    if kind & ~_MORE == _PICKLE:
        return MPI.pickle.loads(data)
    return _filled(marshal.loads(headers[form : form + length]), data, [0])


class Messages:
    """What one rank sends to all.

    Attributes:
        headers: one behind the other; each says of all payloads how long they are, -1 where their
            lengths differ.
        payload: those of all messages, one behind the other.
        sizes: their bytes.
    """

    def __init__(self, given: Any, comm: Any) -> None:
        many = comm.size
        items = [None] * many if given is None else list(given)
        if len(items) != many:
            raise ValueError(f"expecting {many} items, got {len(items)}")
        written = _written(items, comm)
        if written is not None:
            self.headers = written
            return
        messages = [encode(each) for each in items]
        headers = bytearray(b"".join([header for header, _ in messages]))
        self.sizes = [payload.nbytes for _, payload in messages]
        if any(self.sizes):
            self.payload = np.concatenate([payload for _, payload in messages])
            alike = self.sizes[0] if min(self.sizes) == max(self.sizes) else -1
            for start in range(0, many * HEADER, HEADER):
                _LENGTH.pack_into(headers, start + _TAIL, alike)
        self.headers = np.frombuffer(headers, _BYTE)


def _written(items: list[Any], comm: Any) -> Flat | None:
    """Return the headers of what `marshal` writes, None for other items, or too long ones.

    They last until the next such call: of the kind that is 0, and without a payload.
    """
    headers, whole = _memory(comm, "_sent", len(items))
    at = 1
    for each in items:
        form = marshal.dumps(each) if type(each) in _WRITTEN else None
        if form is None or len(form) >= _TAIL:
            return None
        headers[at : at + len(form)] = form
        at += HEADER
    return whole


def _alike(headers: bytearray, start: int = 0) -> int:
    """Return the bytes of every payload of a header's sender, -1 where they differ."""
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
    return item.dtype.str, array.shape, turned, type(item) is not np.ndarray


def _filled(outline: Any, data: Any, position: list[int]) -> Any:
    if type(outline) is list:
        return tuple([_filled(each, data, position) for each in outline])
    if len(outline) == 1:
        return outline[0]
    name, shape, turned, scalar = outline
    dtype, count, start = np.dtype(name), prod(shape), position[0]
    position[0] = start + dtype.itemsize * count
    flat = np.frombuffer(data, dtype, count, start)
    if scalar:
        return flat[0]
    if flat.nbytes < len(data) or not flat.flags.aligned:
        flat = flat.copy()  # it would keep the whole message
    return flat.reshape(shape[::-1]).T if turned else flat.reshape(shape)


# -- collectives ---------------------------------------------------------------------------------


def _memory(comm: Any, name: str, many: int = 1) -> tuple[bytearray, Flat]:
    """Return memory for headers, also as an array: it lasts until the next call for that name."""
    found: tuple[bytearray, Flat] | None = comm.__dict__.get(name)
    if found is None:
        headers = bytearray(many * HEADER)
        found = headers, np.frombuffer(headers, _BYTE)
        setattr(comm, name, found)
    return found


def bcast(comm: Any, item: Any, root: int) -> Any:
    """Return the root's object on every rank, a copy of it on the root."""
    if comm.rank == root:
        sent, own = encode(item)
        comm.Bcast(_given(sent), root)
        if own.size:
            comm.Bcast(own, root)
        return decode(bytearray(sent), own.copy() if own.size else None)
    (header, room), payload = _memory(comm, "_header"), None
    comm.Bcast(room, root)
    if size := missing(header):
        payload = np.empty(size, _BYTE)
        comm.Bcast(payload, root)
    return decode(header, payload)


def gather(comm: Any, item: Any, root: int | None) -> list[Any] | None:
    """Return every rank's object on the root, None elsewhere; on all ranks where `root` is None."""
    size, own = comm.size, _NOTHING
    header, room = _memory(comm, "_header")
    form = marshal.dumps(item) if type(item) in _WRITTEN else b""
    if 0 < len(form) < _TAIL:
        header[0], header[1 : 1 + len(form)] = _PLAIN, form
    else:
        header[:], own = encode(item)
    headers, whole = _memory(comm, "_received", size)
    comm.Allgather(room, whole)
    gets = root is None or comm.rank == root
    starts = range(0, size * HEADER, HEADER)
    kinds = headers[::HEADER]
    if not any(kinds):  # nothing but numbers and texts
        return [marshal.loads(headers[at + 1 : at + HEADER]) for at in starts] if gets else None
    if max(kinds) < _MORE:
        return [decode(headers, None, start) for start in starts] if gets else None
    sizes = [missing(headers, start) for start in starts]
    found = _payloads(comm, own, sizes, root, gets=gets)
    return _decoded(headers, found, sizes) if gets else None


def scatter(comm: Any, items: Any, root: int) -> Any:
    """Return this rank's item of the root's."""
    sent = Messages(items, comm) if comm.rank == root else None
    header, room = _memory(comm, "_header")
    comm.Scatter(sent and sent.headers, room, root)
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
    sent, size = Messages(items, comm), comm.size
    headers, whole = _memory(comm, "_received", size)
    comm.Alltoall(sent.headers, whole)
    starts = range(0, size * HEADER, HEADER)
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
_FOLDED_ARRAYS = {MPI.SUM.handle, MPI.PROD.handle, MPI.BAND.handle, MPI.BOR.handle, MPI.BXOR.handle}
_DTYPES = {int: np.dtype("int64"), float: np.dtype("float64"), complex: np.dtype("complex128")}


def foldable(item: Any, op: Any, size: int) -> Flat | None:
    """Return an object as an array that folds to what MPI's pickled objects would, None if none.

    A number becomes an array without axes, as no user's array is given.
    """
    kind = type(item)
    if not isinstance(op, MPI.Op):
        return None
    if kind in _DTYPES:
        if op.handle not in _FOLDED[kind] or item != item:
            return None
        if kind is int and abs(item) > (1 << 62) // size:
            return None  # Python's sum would not overflow
        return np.array(item, _DTYPES[kind])
    if kind is not np.ndarray or not item.ndim or op.handle not in _FOLDED_ARRAYS:
        return None
    fits: bool = item.dtype.kind in "iufc" and item.flags.c_contiguous
    return item if fits else None
