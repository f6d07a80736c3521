"""Objects of Python as messages, and the rooms in which a method exchanges them.

A message is a head and the object behind it, in a buffer that has the same length on all ranks.
What does not fit there is the payload, which travels as a second message. ``objects.c`` writes
numbers, texts, NumPy arrays, and tuples, lists and dictionaries of these; the data of long arrays
are sent from where they lie. Any other object is pickled, as mpi4py does.
"""

from __future__ import annotations

import gc
import pickle
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpicoll.c_extension import _compiled
from mpicoll.mpi.communicator.buffers import Flat
from mpicoll.tuning import MESSAGE_ROOMS, SHORT_MESSAGES

_WRITTEN = 1 << 16
"""The most bytes of a message that is written without pickle."""
_HEAD = struct.Struct(_compiled.MESSAGE_HEAD)
_LAST = struct.Struct("=qq")
_BYTE = np.dtype("uint8")
NOTHING: Flat = np.empty(0, _BYTE)
STOCK = MPI.pickle, pickle.dumps, pickle.loads
"""mpi4py's serializer, and what it calls unless a program says otherwise."""
PICKLE = _compiled.PICKLE

_CODES = np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?"
_compiled.know_arrays(
    np.zeros((2, 3)), np.empty, tuple((np.dtype(c), np.dtype(np.dtype(c).str)) for c in _CODES)
)


class Head(NamedTuple):
    """What stands before an object.

    Attributes:
        more: what the message says is no longer behind the head, but begins the payload.
        size: the bytes of that, without those of its arrays that are in the payload.
        payload: the bytes of its payload.
        alike: those of each payload of its sender, -1 where they differ, 0 where there is none.
        need: the least room in which all messages of its sender have place, but for data that
            fits in no room.
    """

    kind: int
    more: int
    size: int
    payload: int
    alike: int
    need: int


def head_at(messages: bytearray, start: int = 0) -> Head:
    """Return the head that begins there."""
    return Head(*_HEAD.unpack_from(messages, start))


class Rooms:
    """What a method of a communicator keeps for its messages, which last until its next call.

    Attributes:
        room, lower_room: the bytes of a room, and of the next shorter one, 0 where there is none.
        message, view: this rank's message, as memory and as an array of the room's length.
        all, whole: messages of all ranks, one behind the other.
        sent, sending: those for all ranks.
        payload, sizes: what follows this rank's messages, and the bytes of each part.
        overflow: the long arrays of an object, or its pickle that did not fit, until they are put.
        in_use: a call of the method is under way.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.rank, self.size = comm.rank, comm.size
        self.message = bytearray(_WRITTEN)
        self.flat = np.frombuffer(self.message, _BYTE)
        self.payload, self.sizes, self.overflow = NOTHING, [0] * self.size, list[Any]()
        self.in_use = False
        self._take(0)

    def _take(self, need: int) -> None:
        place = sum(size < need for size in MESSAGE_ROOMS[:-1])
        self.room, self.lower_room = MESSAGE_ROOMS[place], MESSAGE_ROOMS[place - 1] if place else 0
        self.view = self.flat[: self.room]
        self.all, self.sent = (bytearray(self.size * self.room) for _ in range(2))
        self.whole, self.sending = (
            np.frombuffer(buffer, _BYTE) for buffer in (self.all, self.sent)
        )
        self.shorter, self.longest = 0, 0

    @contextmanager
    def allow_reentry(self) -> Iterator[None]:
        """Let code that runs within a call, as an object's ``__reduce__``, call the method, too."""
        message, sent, overflow = bytes(self.message[: self.room]), self.sent, [*self.overflow]
        messages, payload, sizes = bytes(sent), self.payload, self.sizes
        self.in_use = False
        try:
            yield
        finally:
            self.message[: len(message)], sent[:], self.overflow[:] = message, messages, overflow
            self.payload, self.sizes, self.in_use = payload, sizes, True

    def adapt(self, need: int) -> None:
        """Choose the room of the next call; all ranks have read the same needs."""
        if need > self.room:
            self._take(need)
        elif need <= self.lower_room:
            self.shorter, self.longest = self.shorter + 1, max(self.longest, need)
            if self.shorter == SHORT_MESSAGES:
                self._take(self.longest)

    def put(self, written: int) -> int:
        """Complete this rank's message, where something is left or it is longer than a room.

        Returns what it needs.

        Args:
            written: the bytes of the message that stands there, 0 where it is left as a pickle.
        """
        if written:
            kind, text = head_at(self.message).kind, self.flat[_HEAD.size : written].copy()
        else:
            kind, text = PICKLE, np.frombuffer(self.overflow.pop(), _BYTE)
        parts = [np.ascontiguousarray(item).reshape(-1).view(_BYTE) for item in self.overflow]
        self.overflow.clear()
        end = _HEAD.size + len(text)
        more = end > self.room
        if more:
            parts.insert(0, text)
        self.payload = parts[0] if len(parts) == 1 else np.concatenate(parts)
        need, nbytes = end if end <= MESSAGE_ROOMS[-1] else _HEAD.size, len(self.payload)
        _HEAD.pack_into(self.message, 0, kind, more, written and len(text), nbytes, nbytes, need)
        return need

    def put_all(self, values: Any) -> Flat:
        """Write the messages for all ranks, and return them.

        Raises:
            ValueError: there are not as many items as ranks.
        """
        items = (None,) * self.size if values is None else tuple(values)
        if len(items) != self.size:
            raise ValueError(f"expecting {self.size} items, got {len(items)}")
        overflow: list[Any] = []
        # Those that had payloads will have some again, and would be pickled twice.
        is_long = any(self.sizes)
        if (
            is_long
            or not _compiled.write_objects(self.sent, self.room, items, STOCK, overflow)
            or overflow
        ):
            self._put_each(items)
        return self.sending

    def _put_each(self, items: Sequence[Any]) -> None:
        payloads, need, starts = list[Flat](), 0, range(0, self.size * self.room, self.room)
        for start, item in zip(starts, items, strict=True):
            written = _compiled.write_objects(self.message, _WRITTEN, (item,), STOCK, self.overflow)
            payload = NOTHING
            if self.overflow or written > self.room:
                written, payload = self.put(written), self.payload
            need = max(need, written)
            self.sending[start : start + self.room] = self.view
            payloads.append(payload)
        self.sizes = [part.nbytes for part in payloads]
        self.payload = np.concatenate(payloads) if any(self.sizes) else NOTHING
        alike = self.sizes[0] if min(self.sizes) == max(self.sizes) else -1
        for start in starts:
            _LAST.pack_into(self.sent, start + _HEAD.size - _LAST.size, alike, need)


def _is_stock() -> bool:
    """Whether mpi4py's serializer is unchanged, whose functions read any memory without a copy."""
    referents = gc.get_referents(STOCK[0])
    return all(any(referent is function for referent in referents) for function in STOCK[1:])


def decode(messages: bytearray, payload: Flat, start: int = 0) -> Any:
    """Return the object of the message that begins there, and of its payload.

    An array that is the whole payload keeps its memory.
    """
    head, begin = head_at(messages, start), start + _HEAD.size
    inside: Any = memoryview(messages)[begin : begin + head.size]
    if head.kind == PICKLE:
        text: Any = payload if head.more else inside
        data = memoryview(text) if head.more and _is_stock() else bytes(text)
        return MPI.pickle.loads(data) if len(data) else None
    if head.more:
        inside, payload = payload[: head.size], payload[head.size :]
    return _compiled.read_object(inside, payload)


def decode_all(messages: bytearray, room: int, payloads: Flat, sizes: Sequence[int]) -> list[Any]:
    """Return the objects of messages and payloads, both one behind the other."""
    return [
        decode(messages, payloads[end - size : end], index * room)
        for index, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True))
    ]
