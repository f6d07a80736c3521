"""The file that ``MPICOLL_TRACE`` has written, as one line per kind of call."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct
from msgspec.json import decode

from mpicoll.errors import ArgumentError
from mpicoll.machine.nodes import MOST_RANKS
from mpicoll.records.fields import Amount, Count, Name
from mpicoll.text.files import content_of
from mpicoll.text.traces import SCHEMA


class Line(Struct):
    """A line of the file: one rank's calls of one kind, or, with a `schema`, its beginning.

    Attributes:
        seconds: of these calls, or of the whole program.
        timed: of the calls; the others are taken to be like these.
        least_us, most_us: of the shortest and the longest of them.
        histogram: of them: microseconds from which a bucket counts, and its calls.
    """

    rank: Count
    seconds: Amount
    schema: str = ""
    communicator: Name = ""
    ranks: Annotated[int, Meta(ge=0, le=MOST_RANKS)] = 0
    call: Name = ""
    bytes_per_rank: Count = 0
    dtype: Name = ""
    op: Name = ""
    algorithm: Name = ""
    transport: Name = ""
    calls: Count = 0
    timed: Count = 0
    least_us: Amount = 0
    most_us: Amount = 0
    histogram: list[tuple[Amount, Count]] = []


class Kind(NamedTuple):
    """Calls of one kind on all ranks.

    Attributes:
        dtype, op: empty where they are not known.
        calls: on the rank that has made most.
        seconds: a rank's time in them, the mean of all ranks.
        least_us: microseconds of the shortest call, on the rank where it took longest.
        histogram: of all ranks' timed calls: microseconds from which a bucket counts, and its
            calls, ascending.
    """

    communicator: str
    ranks: int
    call: str
    bytes_per_rank: int
    dtype: str
    op: str
    algorithm: str
    transport: str
    calls: int
    seconds: float
    least_us: float
    histogram: tuple[tuple[float, int], ...] = ()

    @property
    def mean_us(self) -> float:
        """Microseconds of a call."""
        return 1e6 * self.seconds / self.calls

    def quantile_us(self, share: float) -> float:
        """Return the microseconds that a share of the calls stays below, to an eighth."""
        wanted = share * sum(calls for _, calls in self.histogram)
        for low, calls in self.histogram:
            wanted -= calls
            if wanted <= 0:
                return max(1.125 * low, self.least_us)
        return self.least_us


def load(path: Path) -> tuple[float, list[Kind]]:
    """Return the seconds of the program, and its kinds of calls, those that took longest first.

    Raises:
        ArgumentError: it is no such file.
    """
    try:
        lines = [decode(line, type=Line) for line in content_of(path).splitlines()]
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} is no trace: {error}") from None
    heads = [line for line in lines if line.schema]
    if not heads or any(head.schema != SCHEMA for head in heads):
        raise ArgumentError(f"{path} is no trace: it has no line with the schema {SCHEMA}")
    seconds = sum(head.seconds for head in heads) / len(heads)
    if not seconds:
        raise ArgumentError(f"{path} is no trace: its program has taken no time")
    return seconds, _kinds([line for line in lines if line.calls > 0], len(heads))


def _kinds(lines: Iterable[Line], processes: int) -> list[Kind]:
    groups: dict[tuple[str, int, str, int, str, str, str, str], list[Line]] = {}
    for line in lines:
        key = (line.communicator, line.ranks, line.call, line.bytes_per_rank, line.dtype, line.op,
               line.algorithm, line.transport)  # fmt: skip
        groups.setdefault(key, []).append(line)
    kinds = [
        Kind(
            *key, max(line.calls for line in group),
            sum(line.seconds for line in group) / processes, max(line.least_us for line in group),
            # The ranks' buckets begin at times that differ a little.
            tuple(sorted(chain.from_iterable(line.histogram for line in group))),
        )
        for key, group in groups.items()
    ]  # fmt: skip
    return sorted(kinds, key=lambda kind: -kind.seconds)
