"""The records of a flight file: JSON, of a fixed type each."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, NamedTuple, TypeVar

MOST_RANKS = 1 << 16
"""Of a group."""
MESSAGES = " messages"
"""Ends the identity of a group's log of messages and waits."""
WAIT = "wait"
"""The name of a row for the wait of a nonblocking collective."""
_MOST_LISTED = 1 << 20
"""Ranks of all groups together."""
_LIMITS = {"pid": range(1, 1 << 31), "rank": range(1 << 24), "size": range(1 << 24)}
_NUMBERS = range((1 << 62) + 1)
_MOST_TEXT = 8192
_ESCAPES = {number: f"\\u{number:04x}" for number in (*range(32), *b'"\\')}
_checking = Lock()


class Process(NamedTuple):
    """The process that writes the file.

    Attributes:
        rank, size: of the launch, or of the first group of this process.
        thread: whether the rank is a thread of this process.
        boot: identifies the monotonic clock: the boot of the host, and its time namespace.
        monotonic, realtime: nanoseconds of both clocks, read at the same moment.
        node: the host, or the node that the user states.
    """

    pid: int
    rank: int
    size: int
    host: str
    boot: str
    monotonic: int
    realtime: int
    thread: bool = False
    program: str = ""
    node: str = ""


class Group(NamedTuple):
    """A group of ranks.

    Attributes:
        id: the same on all ranks of the group, and on no other's.
        rank: this process's own, in the group.
        ranks: those of the launch, in the group's order, as ``0-3,8``.
        messages: its calls are messages between two ranks, which each rank counts by itself.
    """

    id: str
    name: str
    rank: int
    ranks: str
    messages: bool = False


class Call(NamedTuple):
    """The kind of a call.

    Attributes:
        signature: what all ranks must give alike; empty where this rank does not know it.
        algorithm: that runs, or that was asked for where nothing has run yet.
        nbytes: of the data, as the benchmark counts them, or the next power of two; 0 where the
            signature has a shape, and where they are not known.
    """

    collective: str
    signature: str = ""
    algorithm: str = ""
    transport: str = ""
    nbytes: int = 0


class Location(NamedTuple):
    """A line of the user's source."""

    file: str
    line: int
    function: str


class Text(NamedTuple):
    """An error's text."""

    text: str


Record = Process | Group | Call | Location | Text
R = TypeVar("R", bound=Record)
TYPES: dict[int, type[Record]] = {1: Process, 2: Group, 3: Call, 4: Location, 5: Text}
_KINDS = {record_type: kind for kind, record_type in TYPES.items()}


def encode(record: Record) -> tuple[int, bytes]:
    """Return a record's kind and its bytes."""
    fields = zip(record._fields, record, strict=True)
    text = ",".join(f'"{name}":{_json(value)}' for name, value in fields)
    return _KINDS[type(record)], f"{{{text}}}".encode(errors="replace")


def _json(value: object) -> str:
    # A program starts quickly without `json` and msgspec.
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    return str(value).lower()


def decode(kind: int, data: bytes) -> Record | None:
    """Return a record, None where the bytes are not one of this kind."""
    import msgspec

    record_type = TYPES.get(kind)
    if record_type is None:
        return None
    try:
        return checked(record_type, msgspec.json.decode(data, type=dict[str, Any]))
    except (ValueError, RecursionError):
        return None


def checked(record_type: type[R], values: Mapping[str, Any]) -> R:
    """Return a record of values by their names.

    Raises:
        ValueError: a value is missing, or of another type, or beyond its limits.
    """
    import msgspec

    names: tuple[str, ...] = record_type._fields
    fields = [values.get(name, record_type._field_defaults.get(name)) for name in names]
    with _checking:  # msgspec crashes where two threads are the first to check a type
        record = msgspec.convert(fields, record_type)
    if not all(map(_is_valid, names, record)):
        raise ValueError(f"{record} is beyond the limits of a record")
    return record


def _is_valid(name: str, value: Any) -> bool:
    """Whether a field of a record is within its limits."""
    if isinstance(value, str):
        return len(value) <= _MOST_TEXT
    return value in _LIMITS.get(name, _NUMBERS)


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
