"""The file that ``MPICOLL_TRACE`` has written, as one line per kind of call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct
from msgspec.json import decode

from mpicoll.backend import Nodes
from mpicoll.errors import ArgumentError
from mpicoll.machine.nodes import MOST_RANKS, group_by_node
from mpicoll.records.fields import Amount, Count, Name
from mpicoll.text.files import content_of
from mpicoll.text.numbers import numbers_of
from mpicoll.text.traces import SCHEMA

_LONGEST = 8 * MOST_RANKS
"""Characters of a list of all ranks."""


class Line(Struct):
    """A line of the file: one rank's calls of one kind, or, with a `schema`, its beginning.

    Attributes:
        seconds: of these calls, or of the whole program.
        node: of the rank, in its beginning.
        members: the ranks of the communicator, as ranges; empty where they are not known.
        timed: of the calls; the others are taken to be like these.
        least_us, most_us: of the shortest and the longest of them.
        histogram: of them: microseconds from which a bucket counts, and its calls.
    """

    rank: Count
    seconds: Amount
    schema: str = ""
    node: Name = ""
    members: Annotated[str, Meta(max_length=_LONGEST)] = ""
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
        nodes: the ranks of each node, numbered as in the communicator; () where the file does not
            tell, as for one node.
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
    nodes: Nodes
    calls: int
    seconds: float
    least_us: float
    histogram: tuple[tuple[float, int], ...] = ()

    @property
    def is_local(self) -> bool:
        """Whether all ranks are on one node."""
        return len(self.nodes) < 2

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
    nodes = {head.rank: head.node for head in heads}
    return seconds, _kinds([line for line in lines if line.calls > 0], nodes, len(heads))


def _kinds(lines: Iterable[Line], nodes: Mapping[int, str], processes: int) -> list[Kind]:
    layouts: dict[tuple[str, int], Nodes] = {}
    distinct: dict[Nodes, Nodes] = {}
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        members = line.members, line.ranks
        if members not in layouts:
            layout = _layout(*members, nodes)
            layouts[members] = distinct.setdefault(layout, layout)
        # A layout of many ranks is compared once, not for each of their lines.
        key = (line.communicator, line.ranks, line.call, line.bytes_per_rank, line.dtype, line.op,
               line.algorithm, line.transport, id(layouts[members]))  # fmt: skip
        groups.setdefault(key, []).append(line)
    kinds = [
        _kind(group, layouts[group[0].members, group[0].ranks], processes)
        for group in groups.values()
    ]
    return sorted(kinds, key=lambda kind: -kind.seconds)


def _kind(lines: Sequence[Line], nodes: Nodes, processes: int) -> Kind:
    """Return the calls of these lines, which differ in their ranks only."""
    line = lines[0]
    return Kind(
        line.communicator, line.ranks, line.call, line.bytes_per_rank, line.dtype, line.op,
        line.algorithm, line.transport, nodes, max(line.calls for line in lines),
        sum(line.seconds for line in lines) / processes, max(line.least_us for line in lines),
        # The ranks' buckets begin at times that differ a little.
        tuple(sorted(chain.from_iterable(line.histogram for line in lines))),
    )  # fmt: skip


def _layout(members: str, size: int, nodes: Mapping[int, str]) -> Nodes:
    """Return the ranks of each node of a communicator, () where the file does not tell.

    Args:
        nodes: the node of each rank of the world.
    """
    ranks = numbers_of(members, MOST_RANKS) or []
    if len(ranks) != size or not all(nodes.get(rank) for rank in ranks):
        return ()
    return group_by_node([nodes[rank] for rank in ranks], [None] * size)[0]
