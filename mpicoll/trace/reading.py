"""The calls of a program that ran with ``MPICOLL_TRACE``, as one line per kind of call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from msgspec import Meta, Struct, convert
from msgspec.json import decode

from mpicoll.backend import Nodes
from mpicoll.engine.tally_file import lines_of, records_in
from mpicoll.errors import ArgumentError
from mpicoll.flight.directory import is_held
from mpicoll.machine.nodes import MOST_RANKS, group_by_node
from mpicoll.records.fields import Amount, Count, Name
from mpicoll.text.files import content_of
from mpicoll.text.numbers import count_text, numbers_of, ranges
from mpicoll.text.traces import SCHEMA, paths_of_ranks

_LONGEST = 8 * MOST_RANKS
"""Characters of a list of all ranks."""
T = TypeVar("T")


class Line(Struct):
    """A line of the file: one rank's calls of one kind, or, with a `schema`, its beginning.

    Attributes:
        seconds: of these calls, or of the whole program.
        size: number of ranks of the program, in its beginning; 0 if the file does not tell.
        node: of the rank, in its beginning.
        members: the ranks of the communicator, as ranges; empty where they are not known.
        timed: of the calls; the others are taken to be like these.
        least_us, most_us: of the shortest and the longest of them.
        histogram: of them: microseconds from which a bucket counts, and its calls.
    """

    rank: Count
    seconds: Amount
    schema: str = ""
    size: Annotated[int, Meta(ge=0, le=MOST_RANKS)] = 0
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


class Trace(NamedTuple):
    """The calls of a program.

    Attributes:
        seconds: of the program, the mean of all ranks.
        kinds: of calls, those that took longest first.
        remarks: sentences on damaged lines, on missing ranks, and on ranks that have not ended.
    """

    seconds: float
    kinds: list[Kind]
    remarks: list[str]


def load(path: Path) -> Trace:
    """Return the calls of a program that has ended, that was killed, or that still runs.

    Raises:
        ArgumentError: there is no trace.
    """
    remarks: list[str] = []
    files = paths_of_ranks(path)
    lines = _lines(path, remarks) if path.exists() or not files else []
    unfinished = {
        rank: lines_of_rank
        for rank, file in files.items()
        if (lines_of_rank := _lines_of_rank(file, rank, remarks))
    }
    # A rank that was killed while it appended its lines has left both. Its file has all of them.
    lines = [line for line in lines if line.rank not in unfinished]
    lines += chain.from_iterable(unfinished.values())
    heads = [line for line in lines if line.schema]
    seconds = _seconds(path, heads, remarks)
    remarks += [*_missing(heads), *_states({rank: files[rank] for rank in unfinished})]
    nodes = {head.rank: head.node for head in heads}
    kinds = _kinds([line for line in lines if line.calls > 0], nodes, len(heads))
    return Trace(seconds, kinds, remarks)


def _seconds(path: Path, heads: Sequence[Line], remarks: Sequence[str]) -> float:
    """Return the time of the program, the mean of its ranks."""
    other = next((head.schema for head in heads if head.schema != SCHEMA), "")
    if other or not heads:
        reason = f"its schema is {other}, not {SCHEMA}" if other else f"no line has {SCHEMA}"
        raise ArgumentError("; ".join([f"{path} is no trace: {reason}", *remarks]))
    seconds = sum(head.seconds for head in heads) / len(heads)
    if not seconds:
        raise ArgumentError(f"{path} is no trace: its program has taken no time")
    return seconds


def _lines(path: Path, remarks: list[str]) -> list[Line]:
    """Return the lines of a trace that are whole."""
    return _decoded(path, content_of(path).splitlines(), partial(decode, type=Line), remarks)


def _lines_of_rank(path: Path, rank: int, remarks: list[str]) -> list[Line]:
    """Return the lines that a rank has not appended; none if its file is damaged."""
    try:
        head, *records = records_in(content_of(path, is_of_user=False))
        texts = lines_of(head, records)
    except (ValueError, ArgumentError) as error:
        remarks.append(f"{path} is damaged, and left out: {error}")
        return []
    lines = _decoded(path, texts, partial(convert, type=Line), remarks)
    return lines if lines and lines[0].schema and lines[0].rank == rank else []


def _decoded(
    path: Path, texts: Iterable[T], decode: Callable[[T], Line], remarks: list[str]
) -> list[Line]:
    lines, errors = [], []
    for text in texts:
        try:
            lines.append(decode(text))
        except (ValueError, RecursionError) as error:
            errors.append(error)
    if errors:
        count = count_text(len(errors), "line")
        remarks.append(f"{path}: {count} left out, damaged or cut: {errors[0]}")
    return lines


def _missing(heads: Sequence[Line]) -> Iterator[str]:
    """Yield a sentence on the ranks that have left nothing."""
    size = max(head.size for head in heads)
    if missing := sorted({*range(size)} - {head.rank for head in heads}):
        yield (
            f"Nothing is here of {_named(missing)} of {size}. If these ran on other hosts, copy "
            "the files from there."
        )


def _states(files: Mapping[int, Path]) -> Iterator[str]:
    """Yield a sentence on the ranks that run, and one on those that were killed."""
    running = [rank for rank, file in files.items() if is_held(file)]
    killed = sorted({*files} - {*running})
    if running:
        yield f"Still running: {_named(running)}. The calls up to now are shown."
    if killed:
        yield f"Killed: {_named(killed)}. The calls up to then are shown."


def _named(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges(ranks)}"


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
