"""Objects of Python as messages, and the rooms in which a method exchanges them.

A message is a head, and behind it the object, in a room that has one length on all ranks; what
does not fit there is the payload, which travels by itself. Numbers, texts, and tuples, lists and
dictionaries of these are written by ``execution/objects.c``. NumPy arrays and tuples of them are
described, and their data goes as it lies in memory; any other object is pickled, as mpi4py does.
"""

from __future__ import annotations

import marshal
import pickle
import struct
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpicoll.execution.extension import OBJECTS
from mpicoll.mpi.communicator.buffers import Flat

ROOMS = 256, 1024, 4096
"""The bytes of a room: as many as the messages before have needed."""
_WRITTEN = 1 << 16
"""The most bytes of a message that is written without pickle."""
_CALM = 32
"""After so many calls that would have done with a shorter room, the next ones have it."""
_HEAD = struct.Struct("=BBxxIqqq")
_LAST = struct.Struct("=qq")
_BYTE = np.dtype("uint8")
_dtype = cache(np.dtype)
_NOTHING: Flat = np.empty(0, _BYTE)
_SCALARS = np.bool_, np.number
_NUMBERS: frozenset[type[Any]] = frozenset((int, float, complex, bool, type(None), str, bytes))
_OUTLINED = frozenset((tuple, np.ndarray, *np.sctypeDict.values()))
"""The types of what may have an outline beside its data."""
STOCK = MPI.pickle, pickle.dumps, pickle.loads, _OUTLINED
"""mpi4py's serializer, what it calls unless a program says otherwise, and the types described."""
_PLAIN, _ARRAYS, _PICKLE = range(3)


class Head(NamedTuple):
    """What stands before an object.

    Attributes:
        more: the data is a payload.
        outline: the bytes of what describes the data, which stands behind the head.
        size: the bytes of the data.
        alike: those of each payload of its sender, -1 where they differ, 0 where there is none.
        need: the least room in which all messages of its sender have place, but for data that
            fits in no room.
    """

    kind: int
    more: int
    outline: int
    size: int
    alike: int
    need: int


def head_at(messages: bytearray, start: int = 0) -> Head:
    """Return the head that begins there."""
    return Head(*_HEAD.unpack_from(messages, start))


class Rooms:
    """What a method of a communicator keeps for its messages, which last until its next call.

    Attributes:
        room, least: the bytes of a room, and of the next shorter one, 0 where there is none.
        own, view: this rank's message, as memory and as an array of the room's length.
        all, whole: messages of all ranks, one behind the other.
        sent, sending: those for all ranks.
        payload, sizes: what follows this rank's messages, and the bytes of each part.
        left: the pickle of an object that did not fit, until it is put.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.rank, self.size = comm.rank, comm.size
        self.own = bytearray(_WRITTEN)
        self.flat = np.frombuffer(self.own, _BYTE)
        self.payload, self.sizes, self.left = _NOTHING, [0] * self.size, list[bytes]()
        self._take(0)

    def _take(self, need: int) -> None:
        place = sum(each < need for each in ROOMS[:-1])
        self.room, self.least = ROOMS[place], ROOMS[place - 1] if place else 0
        self.view = self.flat[: self.room]
        self.all, self.sent = (bytearray(self.size * self.room) for _ in range(2))
        self.whole, self.sending = (np.frombuffer(each, _BYTE) for each in (self.all, self.sent))
        self.shorter, self.longest = 0, 0

    def adapt(self, need: int) -> None:
        """Choose the room of the next call; all ranks have read the same needs."""
        if need > self.room:
            self._take(need)
        elif need <= self.least:
            self.shorter, self.longest = self.shorter + 1, max(self.longest, need)
            if self.shorter == _CALM:
                self._take(self.longest)

    def put(self, item: Any, written: int) -> int:
        """Complete this rank's message of an object that is not written, or is longer than a room.

        Returns what it needs.

        Args:
            written: the bytes of the message that stands there already, 0 where none does.
        """
        if written:
            kind, outline = head_at(self.own).kind, b""
            data = self.flat[_HEAD.size : written]
        else:
            kind, outline, data = _encoded(item, self.left)
        size, start = len(data), _HEAD.size + len(outline)
        end = start + size
        self.payload = _NOTHING if end <= self.room else data
        rest = len(self.payload)
        need = end if end <= ROOMS[-1] else start
        _HEAD.pack_into(self.own, 0, kind, rest > 0, len(outline), size, rest, need)
        self.own[_HEAD.size : start] = outline
        if not rest:
            self.flat[start:end] = data
        return need

    def put_all(self, given: Any) -> Flat:
        """Write the messages for all ranks, and return them.

        Raises:
            ValueError: there are not as many items as ranks.
        """
        items = [None] * self.size if given is None else list(given)
        if len(items) != self.size:
            raise ValueError(f"expecting {self.size} items, got {len(items)}")
        # Those that had payloads will have some again, and would be pickled twice.
        is_long, self.sizes = any(self.sizes), [0] * self.size
        if is_long or not OBJECTS.write_objects(self.sent, self.room, items, STOCK, []):
            self._put_each(items)
        return self.sending

    def _put_each(self, items: Sequence[Any]) -> None:
        payloads, need, starts = list[Flat](), 0, range(0, self.size * self.room, self.room)
        for start, item in zip(starts, items, strict=True):
            written = OBJECTS.write_objects(self.own, _WRITTEN, (item,), STOCK, self.left)
            need = max(need, self.put(item, written))
            self.sending[start : start + self.room] = self.view
            payloads.append(self.payload.copy() if written else self.payload)
        self.sizes = [each.nbytes for each in payloads]
        self.payload = np.concatenate(payloads) if any(self.sizes) else _NOTHING
        alike = self.sizes[0] if min(self.sizes) == max(self.sizes) else -1
        for start in starts:
            _LAST.pack_into(self.sent, start + _HEAD.size - _LAST.size, alike, need)


def _encoded(item: Any, left: list[bytes]) -> tuple[int, bytes, Flat]:
    """Return kind, outline and data of an object that is not written otherwise.

    Args:
        left: has its pickle, if anything; it has nothing then.
    """
    if left:
        return _PICKLE, b"", np.frombuffer(left.pop(), _BYTE)
    if type(item) in _OUTLINED and OBJECTS.is_stock(STOCK):
        parts = list[Flat]()
        outline = _outline(item, parts)
        form = b"" if outline is None else marshal.dumps(outline)
        if 0 < len(form) <= ROOMS[0] - _HEAD.size:
            data = parts[0] if len(parts) == 1 else np.concatenate([_NOTHING, *parts])
            return _ARRAYS, form, data
    pickled = MPI.pickle.dumps(item)
    return _PICKLE, b"", np.frombuffer(pickled, _BYTE) if pickled else _NOTHING


def decode(messages: bytearray, payload: Flat, start: int = 0) -> Any:
    """Return the object of the message that begins there, and of its payload.

    An array that is the whole payload keeps its memory.
    """
    head = head_at(messages, start)
    form = start + _HEAD.size
    begin = form + head.outline
    data: Any = payload if head.more else memoryview(messages)[begin : begin + head.size]
    if head.kind == _PLAIN:
        return OBJECTS.read_object(data)
    if head.kind == _PICKLE:
        return MPI.pickle.loads(bytes(data)) if head.size else None
    return _filled(marshal.loads(messages[form:begin]), data, [0], whole=bool(head.more))


def decode_all(messages: bytearray, room: int, payloads: Flat, sizes: Sequence[int]) -> list[Any]:
    """Return the objects of messages and payloads, both one behind the other."""
    return [
        decode(messages, payloads[end - size : end], index * room)
        for index, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True))
    ]


def _outline(item: Any, parts: list[Flat]) -> Any:
    """Return what an object is but for the data of its arrays, which go to `parts`.

    None where it is something else than numbers, arrays and tuples of them.
    """
    if type(item) in _NUMBERS:
        return (item,)
    if type(item) is tuple:
        inner = [_outline(each, parts) for each in item]
        return None if None in inner else inner
    if not (type(item) is np.ndarray or isinstance(item, _SCALARS)):
        return None
    if item.dtype.kind not in "biufc" or not item.dtype.isnative:
        return None
    array = np.asarray(item)
    flags = array.flags
    axes = None if flags.c_contiguous else _axes(array)
    lying = array if axes is None else array.transpose(axes)
    # Pickle, too, keeps the strides of one without gaps, and keeps it from being written.
    fixed = not flags.writeable and lying.flags.c_contiguous
    parts.append(np.ascontiguousarray(lying).reshape(-1).view(_BYTE))
    turned = None if axes is None else [axes.index(axis) for axis in range(len(axes))]
    return item.dtype.str, lying.shape, turned, fixed, type(item) is not np.ndarray


def _axes(array: Flat) -> list[int] | None:
    """Return the order of axes in which an array lies in memory, None where it has gaps."""
    axes = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    return axes if array.transpose(axes).flags.c_contiguous else None


def _filled(outline: Any, data: Any, position: list[int], *, whole: bool) -> Any:
    if type(outline) is list:
        return tuple([_filled(each, data, position, whole=whole) for each in outline])
    if len(outline) == 1:
        return outline[0]
    name, shape, turned, fixed, scalar = outline
    dtype, count, start = _dtype(name), prod(shape), position[0]
    position[0] = start + dtype.itemsize * count
    flat = np.frombuffer(data, dtype, count, start)
    if scalar:
        return flat[0]
    if not whole or flat.nbytes < len(data) or not flat.flags.aligned:
        flat = flat.copy()  # it would keep the whole message
    array = flat.reshape(shape)
    if turned is not None:
        array = array.transpose(turned)
    if fixed == array.flags.writeable:
        array.flags.writeable = not fixed
    return array
