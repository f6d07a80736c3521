"""The calls of a job by its flight files, as one line per kind of call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path, PurePath
from time import time_ns
from typing import NamedTuple

from mpicoll.backend import Nodes
from mpicoll.errors import UnknownName
from mpicoll.flight.layout import State
from mpicoll.flight.reader import CallTotal, Dump, Entry, read_all
from mpicoll.flight.records import Call, Group, ranks_of
from mpicoll.flight.totals import Total, combined
from mpicoll.machine.nodes import MOST_RANKS, group_by_node
from mpicoll.notation.contract import Collective, collective
from mpicoll.notation.elements import DTYPES, OPS, itemsize
from mpicoll.text.numbers import ranges
from mpicoll.trace.messages import Messages, messages_of
from mpicoll.verdict.clocks import align
from mpicoll.verdict.matching import counts_of, match
from mpicoll.verdict.waits import waits

_OBJECTS = "objects"
_MOST_BYTES = 1 << 60
_SHAPE = re.compile(r"(\w+) \(([\d, ]*)\)")
Title = tuple[str, int, Nodes, str, str, int, str, str, str]
"""The first fields of a `Kind`, which are the same on all ranks."""


class Kind(NamedTuple):
    """Calls of one kind on all ranks.

    Attributes:
        communicator, ranks: the name of the group, and its size.
        nodes: the ranks of each node, numbered as in the group; () where the files do not tell.
        line: of the program, as ``train.py:40``; empty where it is not known.
        call: the name of the collective; with ``of objects`` for those.
        nbytes: the bytes by which the benchmark and prices count, or the next power of two; 0
            where they are not known.
        dtype, op: empty where they are not known.
        algorithm: that ran, with its transport.
        calls: on the rank that has made most.
        seconds: a rank's time in them, the mean of all ranks.
        least_us: microseconds of the shortest call, on the rank where it took longest.
        histogram: of all ranks' timed calls: microseconds from which a bucket counts, and its
            calls, ascending.
        waiting: the share of the time of the last calls for which ranks wait for later ones; None
            where no call is known on all ranks.
    """

    communicator: str
    ranks: int
    nodes: Nodes
    line: str
    call: str
    nbytes: int
    dtype: str
    op: str
    algorithm: str
    calls: int
    seconds: float
    least_us: float
    histogram: tuple[tuple[float, int], ...] = ()
    waiting: float | None = None

    @property
    def contract(self) -> Collective | None:
        """Our collective of arrays, None for calls of objects and others."""
        return contract_of(self.call)

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
                return max(low if calls == 1 else 1.125 * low, self.least_us)
        return self.least_us


class Trace(NamedTuple):
    """The calls of a job.

    Attributes:
        seconds: from the first group to the end, the mean of all ranks.
        kinds: of calls, those that took longest first.
        messages: calls that no kind has, such as ``Recv`` and ``Wait``.
        remarks: sentences on damaged files, on missing ranks, and on ranks that have not ended.
    """

    seconds: float
    kinds: list[Kind]
    messages: list[Messages]
    remarks: list[str]


def load(directory: Path) -> Trace:
    """Return the calls of a job that has ended, that was killed, or that still runs.

    Raises:
        ArgumentError: there is no flight file.
    """
    dumps, remarks = read_all(directory)
    remarks += [f"rank {dump.rank}: {fault}" for dump in dumps for fault in dump.faults]
    return Trace(
        sum(map(_seconds, dumps)) / len(dumps), _kinds(dumps),
        messages_of(directory, (dump.process for dump in dumps)), [*remarks, *_states(dumps)],
    )  # fmt: skip


def _seconds(dump: Dump) -> float:
    """Return the time of a rank from its first group to its end, as far as that is known."""
    moments = [dump.ended, *(max(entry.start, entry.end) for entry in dump.entries)]
    end = time_ns() if dump.is_alive and not dump.ended else max(moments)
    return max(end - dump.process.realtime, 1) / 1e9


def _states(dumps: Sequence[Dump]) -> Iterator[str]:
    """Yield sentences on the ranks without files, and on those that have not ended."""
    size = max(dump.process.size for dump in dumps)
    missing = sorted({*range(min(size, MOST_RANKS))} - {dump.rank for dump in dumps})
    running = [dump.rank for dump in dumps if dump.is_alive]
    killed = [
        dump.rank for dump in dumps if dump.state is State.RUNNING and not dump.is_alive
    ]  # fmt: skip
    if missing:
        yield (
            f"Nothing is here of {_named(missing)} of {size}. If these ran on other hosts, copy "
            "the files from there."
        )
    if running:
        yield f"Still running: {_named(running)}. The calls up to now are shown."
    if killed:
        yield f"Killed: {_named(killed)}. The calls up to then are shown."


def _named(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges(ranks)}"


def _kinds(dumps: Sequence[Dump]) -> list[Kind]:
    titles = Titles({dump.rank: dump.process.node or dump.process.host for dump in dumps})
    totals: dict[Title, list[Total]] = {}
    for dump in dumps:
        of_rank: dict[Title, list[Total]] = {}
        for part in dump.totals:
            if part.group is not None and not part.group.messages:
                of_rank.setdefault(titles.of(part), []).append(part.total)
        for title, parts in of_rank.items():
            totals.setdefault(title, []).append(combined(parts))
    shares = _waiting(dumps, titles)
    kinds = (
        _kind(title, parts, len(dumps), shares.get(title)) for title, parts in totals.items()
    )  # fmt: skip
    return sorted(kinds, key=lambda kind: -kind.seconds)


def _kind(title: Title, totals: Sequence[Total], processes: int, waiting: float | None) -> Kind:
    """Return the calls that ranks have made, given those of each rank."""
    seconds = sum(total.calls * total.ns / max(total.timed, 1) for total in totals) / 1e9
    return Kind(
        *title, max(total.calls for total in totals), seconds / processes,
        max(total.shortest for total in totals) / 1e3,
        tuple((ns / 1e3, calls) for ns, calls in combined(totals).histogram), waiting,
    )  # fmt: skip


class Titles:
    """The titles of calls.

    Args:
        nodes: the node of each rank of the launch.
    """

    def __init__(self, nodes: Mapping[int, str]) -> None:
        self.nodes = nodes
        self.layouts: dict[str, tuple[int, Nodes]] = {}

    def of(self, call: CallTotal | Entry) -> Title:
        """Return the title of a call."""
        group, location = call.group, call.location
        assert group is not None
        if group.id not in self.layouts:
            self.layouts[group.id] = self._layout(group)
        line = f"{PurePath(location.file).name}:{location.line}" if location else ""
        layout = self.layouts[group.id]
        return group.name, *layout, line, *_described(call.call, layout[0])

    def _layout(self, group: Group) -> tuple[int, Nodes]:
        """Return the size of a group, and the ranks of each node."""
        ranks = ranks_of(group.ranks)
        if not all(rank in self.nodes for rank in ranks):
            return len(ranks), ()
        nodes, _ = group_by_node([self.nodes[rank] for rank in ranks], [None] * len(ranks))
        return len(ranks), nodes


def contract_of(name: str) -> Collective | None:
    """Return our collective of a name, None where it is none."""
    try:
        return collective(name)
    except UnknownName:
        return None


def _described(call: Call, ranks: int) -> tuple[str, int, str, str, str]:
    """Return the fields of a `Kind` that describe a call."""
    algorithm = f"{call.algorithm}@{call.transport}".strip("@")
    if call.signature.startswith(_OBJECTS):  # their bytes and roots are those of one rank
        return f"{call.collective} of {_OBJECTS}", 0, "", "", algorithm
    words = re.findall(r"\w+", call.signature)
    dtype, op = (next(filter(names.__contains__, words), "") for names in (DTYPES, OPS))
    shape, contract, nbytes = (
        _SHAPE.match(call.signature),
        contract_of(call.collective),
        call.nbytes,
    )
    if shape and contract and dtype:
        row = prod(int(length[:18]) for length in re.findall(r"\d+", shape[2]))
        has_rows = contract.unit in ("rows", "pairs")
        rows = sum(counts_of(call.signature, ranks)) or (ranks if has_rows else 1)
        nbytes = min(itemsize(dtype) * row * rows, _MOST_BYTES)
    return call.collective, nbytes, dtype, op, algorithm


def _waiting(dumps: Sequence[Dump], titles: Titles) -> dict[Title, float]:
    """Return the share of their time in which ranks wait, of the calls that rows have."""
    times: dict[Title, list[int]] = {}
    for call in match(align(dumps).dumps):
        for rank, wait in waits(call).items() if call.is_complete else ():
            entry = call.rows[rank]
            sums = times.setdefault(titles.of(entry), [0, 0])
            sums[0] += wait
            sums[1] += entry.end - entry.start
    return {title: waited / whole for title, (waited, whole) in times.items() if whole}
