"""The records of a flight file: JSON, of a fixed type each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import msgspec

from mpicoll.flight.layout import Kind

MOST_ADDRESSES = 64
MOST_RANKS = 1 << 16
"""Of a group."""
_MOST_LISTED = 1 << 20
"""Ranks of all groups together."""
_Text = Annotated[str, msgspec.Meta(max_length=8192)]
_Address = Annotated[str, msgspec.Meta(max_length=64)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_Rank = Annotated[int, msgspec.Meta(ge=0, lt=1 << 24)]


class Process(msgspec.Struct, frozen=True):
    """The process that writes the file.

    Attributes:
        rank, size: of the launch, or of the first group of this process.
        thread: whether the rank is a thread of this process.
        boot: identifies the monotonic clock: the boot of the host, and its time namespace.
        monotonic, realtime: nanoseconds of both clocks, read at the same moment.
        node: the host, or the node that the user states.
        addresses: the IP addresses of the host, without those of the loopback interface.
    """

    pid: Annotated[int, msgspec.Meta(gt=0, lt=1 << 31)]
    rank: _Rank
    size: _Rank
    host: _Text
    boot: _Text
    monotonic: _Number
    realtime: _Number
    thread: bool = False
    program: _Text = ""
    node: _Text = ""
    addresses: Annotated[tuple[_Address, ...], msgspec.Meta(max_length=MOST_ADDRESSES)] = ()


class Group(msgspec.Struct, frozen=True):
    """A group of ranks.

    Attributes:
        id: the same on all ranks of the group, and on no other's.
        rank: this process's own, in the group.
        ranks: those of the launch, in the group's order, as ``0-3,8``.
        messages: its calls are messages between two ranks, which each rank counts by itself.
    """

    id: _Text
    name: _Text
    rank: _Rank
    ranks: _Text
    messages: bool = False


class Call(msgspec.Struct, frozen=True):
    """The kind of a call.

    Attributes:
        signature: what all ranks must give alike; empty where this rank does not know it.
        algorithm: that runs, or that was asked for where nothing has run yet.
        nbytes: of the data, as the benchmark counts them, or the next power of two; 0 where the
            signature has a shape, and where they are not known.
    """

    collective: _Text
    signature: _Text = ""
    algorithm: _Text = ""
    transport: _Text = ""
    nbytes: _Number = 0


class Location(msgspec.Struct, frozen=True):
    """A line of the user's source."""

    file: _Text
    line: _Number
    function: _Text


class Text(msgspec.Struct, frozen=True):
    """An error's text."""

    text: _Text


Record = Process | Group | Call | Location | Text
TYPES: dict[int, type[Record]] = {
    Kind.PROCESS: Process, Kind.GROUP: Group, Kind.CALL: Call, Kind.LOCATION: Location,
    Kind.TEXT: Text,
}  # fmt: skip
_KINDS = {record_type: kind for kind, record_type in TYPES.items()}
# msgspec crashes where two threads are the first to decode a type: these are made beforehand.
_DECODE = {kind: msgspec.json.Decoder(record_type).decode for kind, record_type in TYPES.items()}


def encode(record: Record) -> tuple[int, bytes]:
    """Return a record's kind and its bytes."""
    return _KINDS[type(record)], msgspec.json.encode(record)


def decode(kind: int, data: bytes) -> Record | None:
    """Return a record, None where the bytes are not one of this kind."""
    decode: Callable[[bytes], Record] | None = _DECODE.get(kind)
    if decode is None:
        return None
    try:
        return decode(data)
    except (ValueError, RecursionError):
        return None


def ranks_of(text: str, limit: int = MOST_RANKS) -> list[int]:
    """Return the ranks that `ranges` wrote; none where they are more, or it is another text.

    >>> ranks_of("0-2,5,4"), ranks_of("1-x"), ranks_of("0,0")
    ([0, 1, 2, 5, 4], [], [])
    """
    ranks: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not (first.isascii() and first.isdecimal() and len(first) < 9):
            return []
        if last and not (last.isascii() and last.isdecimal() and len(last) < 9):
            return []
        ranks += range(int(first), min(int(last or first), int(first) + limit) + 1)
        if len(ranks) > limit:
            return []
    return ranks if len({*ranks}) == len(ranks) else []


def members_of(groups: Mapping[str, Group]) -> dict[str, list[int]]:
    """Return the ranks of each group, by its identity.

    The first groups are left out that list more ranks together than those of any job do.
    """
    remaining, members = _MOST_LISTED, {}
    for name, group in groups.items():
        ranks = ranks_of(group.ranks)
        remaining -= len(ranks)
        if remaining < 0:
            break
        members[name] = ranks
    return members
