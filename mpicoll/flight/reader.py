"""Read flight files, and take nothing in them on trust.

What is damaged is left out and said, what is no flight file at all is an error. Files may be
written meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar
from zlib import crc32

from mpicoll.errors import ArgumentError
from mpicoll.flight import counters, layout, records
from mpicoll.flight.counters import Clock
from mpicoll.flight.directory import files, is_held
from mpicoll.flight.entries import Link as Link
from mpicoll.flight.entries import Row, check_of
from mpicoll.flight.entries import Sample as Sample
from mpicoll.flight.layout import Outcome, State
from mpicoll.flight.records import Call, Group, Location, Process, Record, Text
from mpicoll.flight.totals import Total, totals
from mpicoll.text.numbers import ordinal
from mpicoll.text.opening import open_by_name

MOST_FILES = 1 << 14
NO_FILES = (
    "a job under `python -m mpicoll.run` makes it as it imports mpi4py.MPI, one under `python -m "
    "torchcoll.run` with its process group, any other one at its first collective call, and its "
    "errors name it"
)
OTHER_JOBS = "jobs that have left files here: "
NAME = re.compile(r"rank-(\d{1,8})\.([\w-]{1,120})\.(\d{1,10})\.flight")
"""The name of a rank's file: its rank, its job, and the number of its process."""
MOST_STACKS = 1 << 20
_MOST_SIGNALS = 65
_LEAST_RATE = 1e-3
R = TypeVar("R", bound=Record)


class DamagedFile(ArgumentError):
    """A file that no repaired reading of a flight file can be made of."""


class Entry(NamedTuple):
    """One call of one rank.

    Attributes:
        start, end: nanoseconds since the epoch; `end` is 0 while it is under way, and `start` where
            only that is recorded.
        outcome: under way, done, raised, or issued.
        error: its text, where it raised.
    """

    number: int
    sequence: int
    start: int
    end: int
    group: Group | None
    call: Call
    location: Location | None
    thread: int
    outcome: Outcome
    error: str


class CallTotal(NamedTuple):
    """All calls of one group, kind and line; "other calls" are those without room of their own."""

    group: Group | None
    call: Call
    location: Location | None
    total: Total


class Ending(NamedTuple):
    """The record of a signal that has ended a rank.

    Attributes:
        is_marked: whether such signals leave anything.
        signal: its number, and `sender` the process that sent it; 0 where that is not known.
        when: nanoseconds since the epoch; 0 without a signal.
    """

    is_marked: bool = False
    signal: int = 0
    sender: int = 0
    when: int = 0


class Dump(NamedTuple):
    """The file of one rank.

    Attributes:
        state: how the rank said that it has ended, and `ended` when, since the epoch.
        is_alive: its process runs on this host.
        ending: what is known of the signal that has ended it.
        groups: of which it is a member.
        entries: its calls in the order in which they began.
        totals: all its calls by group, kind and line; empty in dumps of torch.
        samples: the counters of its threads, in order; empty where the system does not tell them.
        links: readings of its TCP connections, in order.
        errors: the texts of all errors in the table.
        stacks: what was last written of its threads' stacks; empty for nothing.
        faults: what was damaged, and left out.
        beat: when the process lived last, once a second, since the epoch; 0 where nothing tells.
        message: when the message began that it is in, since the epoch; 0 if it is in none.
        longest: nanoseconds of its longest message.
        locations: lines of the program, by their places in the table.
    """

    path: Path
    process: Process
    state: State
    ended: int
    is_alive: bool
    ending: Ending
    groups: list[Group]
    entries: list[Entry]
    samples: list[Sample]
    links: list[Link]
    errors: list[str]
    stacks: str
    faults: list[str]
    totals: Sequence[CallTotal] = ()
    beat: int = 0
    message: int = 0
    longest: int = 0
    locations: Mapping[int, Location] = MappingProxyType({})

    @property
    def rank(self) -> int:
        """Of the launch."""
        return self.process.rank


def read_all(directory: Path) -> tuple[list[Dump], list[str]]:
    """Return the content of the files of a directory's newest job, and why some cannot be read.

    Times of ranks with one monotonic clock differ by that clock only.

    Raises:
        ArgumentError: there is no flight file.
    """
    paths, faults = newest_files(directory)
    dumps: list[Dump] = []
    shifts: dict[str, int] = {}
    names: dict[str, dict[str, int]] = {}
    for path in paths[:MOST_FILES]:
        try:
            dumps.append(read(path, shifts, names))
        except DamagedFile as error:
            faults.append(str(error))
    if not dumps:
        raise ArgumentError("; ".join(faults))
    return _one_for_each_rank(dumps, faults), faults


def distinct(group: Group, names: dict[str, dict[str, int]]) -> Group:
    """Return a group with a name of its own: the second one of a name is ``name (2nd)``.

    Args:
        names: the groups of each name by their identities, which are counted; a new one is added.
    """
    groups = names.setdefault(group.name, {})
    number = groups.setdefault(group.id, len(groups) + 1)
    return group if number == 1 else group._replace(name=f"{group.name} ({ordinal(number)})")


def _one_for_each_rank(dumps: list[Dump], faults: list[str]) -> list[Dump]:
    """Return one file for each rank: of a process that runs, or else of the one that began last."""
    by_rank: dict[int, Dump] = {}
    for dump in sorted(dumps, key=lambda dump: (dump.is_alive, dump.process.realtime)):
        if earlier := by_rank.get(dump.rank):
            faults.append(f"{earlier.path.name}: another file of rank {dump.rank}, and left out")
        by_rank[dump.rank] = dump
    return [by_rank[rank] for rank in sorted(by_rank)]


def newest_files(directory: Path) -> tuple[list[Path], list[str]]:
    """Return the paths of the newest job in a directory, and what else lies there.

    Raises:
        ArgumentError: there is no flight file.
    """
    if not directory.is_dir():
        raise ArgumentError(f"{directory} is no directory: {NO_FILES}")
    jobs: dict[str, list[Path]] = {}
    faults = []
    for path in files(directory):
        if match := NAME.fullmatch(path.name):
            jobs.setdefault(match[2], []).append(path)
        else:
            faults.append(f"{path.name}: no name of a flight file")
    if not jobs:
        reasons = f": {'; '.join(faults)}" if faults else ""
        raise ArgumentError(f"{directory} has no flight files{reasons}")
    newest = max(jobs, key=lambda job: (max(map(_changed, jobs[job])), job))
    if len(jobs) > 1:
        faults.append(f"{OTHER_JOBS}{len(jobs)}: this is the last one, {newest}")
    return jobs[newest], faults


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def read(
    path: Path, shifts: dict[str, int] | None = None,
    names: dict[str, dict[str, int]] | None = None,
) -> Dump:  # fmt: skip
    """Return the content of one rank's file.

    Args:
        shifts: for each monotonic clock, by `Process.boot`, the nanoseconds from its start to the
            epoch; a clock that is not there yet is added.
        names: of the groups of the files before, as `distinct` counts them.

    Raises:
        DamagedFile: it is no flight file, or of another version, or nothing of it is whole.
    """
    data = _bytes(path, layout.FILE_BYTES + 1)
    faults: list[str] = []
    _check_head(path, data, faults)
    data = data.ljust(layout.FILE_BYTES, b"\0")  # what was cut off counts as never written
    table = dict(_table(data, faults))
    if names is not None:
        table |= {
            place: distinct(record, names)
            for place, record in table.items() if isinstance(record, Group)
        }  # fmt: skip
    process = next((record for record in table.values() if isinstance(record, Process)), None)
    if process is None:
        name = NAME.fullmatch(path.name)
        if name is None or not table:
            raise DamagedFile(f"{path}: nothing in it says which rank wrote it")
        faults.append("the record of the process is lost: its rank is that of the file's name")
        process = Process(
            max(1, int(name[3]) % (1 << 31)), int(name[1]) % (1 << 24), 0, "", "", 0, 0
        )
    shift = process.realtime - process.monotonic
    if process.boot and shifts is not None:
        shift = shifts.setdefault(process.boot, shift)
    time = _clock(data, shift, faults)
    rows = _rows(data, faults)
    entries = [_entry(row, table, time) for row in rows]
    state, when = _state(data)
    return Dump(
        path, process, state, when and when + shift, is_held(path), _ending(data, shift),
        [record for record in table.values() if isinstance(record, Group)], entries,
        counters.samples(data, time, faults), counters.links(data, time, faults),
        [record.text for record in table.values() if isinstance(record, Text)],
        _stacks(path), faults, [
            CallTotal(*_named(*key, table, "other calls"), total)
            for key, total in totals(data, rows, time, faults).items()
        ], _beat(data, shift), *_message(data, time),
        {place: record for place, record in table.items() if isinstance(record, Location)},
    )  # fmt: skip


def _bytes(path: Path, limit: int) -> bytes:
    """Return the first bytes of a file."""
    try:
        with FileIO(open_by_name(path)) as file:
            return file.read(limit) or b""
    except OSError as error:
        raise DamagedFile(f"{path}: {error.strerror}") from None


def _check_head(path: Path, data: bytes, faults: list[str]) -> None:
    """Raise where it is another kind of file, or of another version."""
    if len(data) < layout.HEAD.size or not data.startswith(layout.MAGIC):
        raise DamagedFile(f"{path}: no flight file: it does not begin as one does")
    if data[: layout.HEAD.size] != layout.head():
        _, version, *_, check = layout.HEAD.unpack_from(data)
        whole = crc32(data[: layout.HEAD.size - 4]) == check
        if whole and version != layout.VERSION:
            raise DamagedFile(f"{path}: of version {version}; this mpicoll reads {layout.VERSION}")
        faults.append(f"the head is damaged: read as version {layout.VERSION}")
    if len(data) != layout.FILE_BYTES:
        faults.append(
            f"it has {min(len(data), layout.FILE_BYTES + 1)} bytes, not {layout.FILE_BYTES}"
        )


def _table(data: bytes, faults: list[str]) -> Iterator[tuple[int, Record]]:
    """Yield the records that are whole, each with its place."""
    at, lost = layout.TABLE_AT + layout.UNIT, False
    while (at := data.find(layout.MARK, at)) >= 0:
        kind, body = layout.record_at(data, at)
        item = None if body is None else records.decode(kind, body)
        if body is None or item is None:
            lost = True
            at += 1
            continue
        yield (at - layout.TABLE_AT) // layout.UNIT, item
        at += layout.RECORD.size + len(body)
    if lost:
        faults.append("records of the table are damaged, and left out")


def _rows(data: bytes, faults: list[str]) -> list[Row]:
    """Return the rows that are whole, in the order of their numbers."""
    rows, lost = {}, 0
    for place, (*fields, check) in enumerate(
        layout.ROW.iter_unpack(data[layout.ROWS_AT : layout.SAMPLES_AT])
    ):
        row = Row(*fields)
        if not any(fields):
            continue
        fits = row.start >= 0 and (row.end == 0 or row.end >= row.start)
        if (
            not fits
            or check_of(row) != check
            or row.outcome not in set(Outcome)
            or (row.number - 1) % layout.ROWS != place
        ):
            lost += 1
        else:
            rows[row.number] = row
    if lost:
        faults.append(f"{lost} rows are damaged or half written, and left out")
    return [rows[number] for number in sorted(rows)]


def _clock(data: bytes, shift: int, faults: list[str]) -> Clock:
    """Return a function that converts ticks to nanoseconds since the epoch.

    Args:
        shift: nanoseconds from the start of the monotonic clock to the epoch.
    """
    first, since, ticks, ns = layout.CLOCK.unpack_from(data, layout.CLOCK_AT)
    if ticks == first and ns == since > 0:  # nothing is recorded yet
        return lambda at: since + shift + at - first
    if ticks > first and ns >= since and (ns - since) * _LEAST_RATE < ticks - first:
        return lambda at: since + shift + (at - first) * (ns - since) // (ticks - first)
    faults.append("the clock is damaged: times are those of no clock")
    return lambda at: at + shift


def _entry(row: Row, table: dict[int, Record], time: Clock) -> Entry:
    group, call, location = _named(row.group, row.call, row.location, table, "a call")
    text = _of_kind(table, row.text, Text)
    outcome = Outcome(row.outcome)
    start = time(row.start)
    end = start if outcome is Outcome.ISSUED else time(row.end)
    return Entry(
        row.number, row.sequence, start, 0 if outcome is Outcome.UNDER_WAY else end, group, call,
        location, row.thread, outcome, text.text if text else "",
    )  # fmt: skip


def _named(
    group: int, call: int, location: int, table: dict[int, Record], unknown: str
) -> tuple[Group | None, Call, Location | None]:
    """Return the records at these places; a call that is not there has the name `unknown`."""
    return (
        _of_kind(table, group, Group), _of_kind(table, call, Call) or Call(unknown),
        _of_kind(table, location, Location),
    )  # fmt: skip


def _of_kind(table: dict[int, Record], place: int, kind: type[R]) -> R | None:
    item = table.get(place)
    return item if isinstance(item, kind) else None


def _state(data: bytes) -> tuple[State, int]:
    state, when = layout.STATE.unpack_from(data, layout.STATE_AT)
    if state not in set(State) or when < 0:
        return State.RUNNING, 0
    return State(state), when


def _ending(data: bytes, shift: int) -> Ending:
    marks, number, sender, _, when = layout.ENDING.unpack_from(data, layout.ENDING_AT)
    if marks != 1 or number >= _MOST_SIGNALS or sender >= 1 << 31:
        return Ending()
    return Ending(True, number, sender, when + shift if number and when > 0 else 0)


def _beat(data: bytes, shift: int) -> int:
    when = layout.BEAT.unpack_from(data, layout.BEAT_AT)[0]
    return when + shift if when > 0 else 0


def _message(data: bytes, time: Clock) -> tuple[int, int]:
    begin, longest = layout.MESSAGE.unpack_from(data, layout.MESSAGE_AT)
    return time(begin) if begin > 0 else 0, counters.length_of(max(0, longest), time)


def _stacks(path: Path) -> str:
    """Return the last stacks that a rank has written."""
    try:
        data = _bytes(path.with_suffix(layout.STACKS), MOST_STACKS)
    except DamagedFile:
        return ""
    return data.decode(errors="replace")
