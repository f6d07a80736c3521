"""The file that ``MPICOLL_TRACE`` has written, as one line per kind of call."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from mpicoll.errors import ArgumentError

SCHEMA = "mpicoll.trace/1"


class Line(msgspec.Struct):
    """A line of the file: one rank's calls of one kind, or, with a `schema`, its beginning.

    Attributes:
        seconds: of these calls, or of the whole program.
        least_us: microseconds of the shortest call.
    """

    rank: int
    seconds: float
    schema: str = ""
    communicator: str = ""
    ranks: int = 0
    call: str = ""
    bytes_per_rank: int = 0
    calls: int = 0
    least_us: float = 0
    algorithm: str = ""
    transport: str = ""


class Kind(NamedTuple):
    """Calls of one kind on all ranks.

    Attributes:
        calls: on the rank that has made most.
        seconds: a rank's time in them, the mean of all ranks.
        least_us: microseconds of the shortest call, on the rank where it took longest.
    """

    communicator: str
    ranks: int
    call: str
    bytes_per_rank: int
    algorithm: str
    transport: str
    calls: int
    seconds: float
    least_us: float

    @property
    def mean_us(self) -> float:
        """Microseconds of a call."""
        return 1e6 * self.seconds / self.calls


def load(path: Path) -> tuple[float, list[Kind]]:
    """Return the seconds of the program, and its kinds of calls, those that took longest first.

    Raises:
        ArgumentError: it is no such file.
    """
    try:
        lines = [msgspec.json.decode(each, type=Line) for each in path.read_bytes().splitlines()]
    except (OSError, msgspec.DecodeError) as error:
        raise ArgumentError(f"{path} is no trace: {error}") from None
    heads = [each for each in lines if each.schema]
    if not heads or any(each.schema != SCHEMA for each in heads):
        raise ArgumentError(f"{path} is no trace: it has no line with the schema {SCHEMA}")
    kinds = _kinds([each for each in lines if not each.schema], len(heads))
    return sum(each.seconds for each in heads) / len(heads), kinds


def _kinds(lines: Iterable[Line], processes: int) -> list[Kind]:
    found: dict[tuple[str, int, str, int, str, str], list[Line]] = {}
    for each in lines:
        key = (each.communicator, each.ranks, each.call, each.bytes_per_rank, each.algorithm,
               each.transport)  # fmt: skip
        found.setdefault(key, []).append(each)
    kinds = [
        Kind(
            *key, max(each.calls for each in group),
            sum(each.seconds for each in group) / processes, max(each.least_us for each in group),
        )
        for key, group in found.items()
    ]  # fmt: skip
    return sorted(kinds, key=lambda each: -each.seconds)
