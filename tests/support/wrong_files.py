"""Flight files whose checksums are right, and whose contents are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple

from flight_entries import packed, packed_words
from hypothesis import strategies as st

from mpicoll.flight.entries import (
    Link,
    Row,
    Sample,
    TotalRow,
    mark_of,
)
from mpicoll.flight.layout import (
    BUCKETS,
    CLOCK,
    CLOCK_AT,
    ENDING,
    ENDING_AT,
    FILE_BYTES,
    LINK,
    LINKS,
    LINKS_AT,
    ROW,
    ROWS,
    ROWS_AT,
    SAMPLE,
    SAMPLES,
    SAMPLES_AT,
    STATE,
    STATE_AT,
    TABLE_AT,
    TOTAL,
    TOTALS_AT,
    UNIT,
    Outcome,
    head,
    record,
)
from mpicoll.flight.records import Call, Group, Location, Process, Record, Text, encode

_LAST = (1 << 63) - 1
TICKS = st.one_of(
    st.integers(0, 50), st.integers(0, 10**9),
    st.sampled_from([0, 1, 1 << 31, 1 << 53, (1 << 62) - 1, (1 << 63) - 1]),
)  # fmt: skip
SIGNED_TICKS = st.one_of(TICKS, TICKS.map(lambda ticks: -ticks))
WORDS = st.one_of(st.integers(0, 20), st.sampled_from([(1 << 31) - 1, 1 << 31, (1 << 32) - 1]))
LONG_WORDS = st.one_of(WORDS, st.sampled_from([1 << 40, 1 << 62, (1 << 63) - 1, (1 << 64) - 1]))
TIMES = st.one_of(st.integers(0, 10**10), st.sampled_from([0, 1, 1 << 60, 1 << 62]))
TEXTS = st.one_of(
    st.sampled_from(["", "a", "[red]", "\x1b[2J", "<script>", "\x00", "{0}%s", "b" * 5000]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
RANKS = st.sampled_from([
    *["0-2"] * 20, "0,1", "0,1", "2,1,0", "0", "0,0,0",
    "0-65535", "1-65535,0", "5-2", "0-70000", "", "x",
    "3", "1,2,1", "0-2,16777215", "0" * 20, "-1", "9" * 8000,
])  # fmt: skip
COLLECTIVES = st.sampled_from([
    "allreduce", "barrier", "barrier", "broadcast", "reduce", "gather", "scan", "alltoall", "isend",
    "recv", "no such call", "",
])  # fmt: skip
SIGNATURES = st.one_of(TEXTS, st.sampled_from([
    "float32 (8), sum", "float32 (8), sum, root 2", "int8 (8), root 99999999", "x, root 1",
    "float32 (), counts (1, 2, 3)", "int64 (), counts ((1, 2, 3), (4, 5, 6), (7, 8, 9))",
    "int8 (), counts (0, 0, 0)", f"int8 (), counts ({'9' * 18}, 0, 0)", "int8 (), counts ()",
    f"float32 ({'9' * 5000})",
]))  # fmt: skip
HOSTS = st.sampled_from(["", "a", "b", "c", "\x1b[2J"])


class FlightFile(NamedTuple):
    """A file: its name, and what the parts of its content are."""

    name: str
    content: bytes


def flight_file(
    rank: int, ranks: str, rows: Sequence[tuple[int, int]], *, process: int = 0, began: int = 0,
    size: int = 3, node: str = "", calls: Sequence[Call] = (Call("allreduce", "int8 (8), sum"),),
) -> FlightFile:  # fmt: skip
    """Return the file of a rank that has made calls of one group.

    Args:
        ranks: of the group.
        rows: the begin and the end of each call; an end of 0 is a call under way.
        process: the number of the process, by default that of the rank and 1.
        began: when the process began, in nanoseconds.
        size: of the launch.
        node: of the rank.
        calls: that the rows are, in turn.
    """
    process = process or rank + 1
    table, places = b"".ljust(UNIT, b"\0"), []
    for item in (Process(process, rank, size, "a", "x", 0, began, node=node),
                 Group("1", "world", rank, ranks), *calls):  # fmt: skip
        places.append(len(table) // UNIT)
        table += record(*encode(item))
    content = bytearray(FILE_BYTES)
    content[: len(head())] = head()
    content[TABLE_AT : TABLE_AT + len(table)] = table
    CLOCK.pack_into(content, CLOCK_AT, 0, 0, 10**9, 10**9)
    for number, ((start, end), call) in enumerate(zip(rows, cycle(places[2:])), 1):
        row = Row(number, number, start, end, places[1], call, 0, 7, int(end > 0), 0)
        content[ROWS_AT + (number - 1) * ROW.size : ROWS_AT + number * ROW.size] = packed(row)
    return FlightFile(f"rank-{rank:05}.job.{process}.flight", bytes(content))


PROCESSES = st.builds(
    Process, pid=st.integers(1, (1 << 31) - 1), rank=st.sampled_from([0, 1, 2, 2, (1 << 24) - 1]),
    size=st.integers(0, 4), host=HOSTS, boot=st.sampled_from(["", "x", "y"]), monotonic=TIMES,
    realtime=TIMES, program=TEXTS,
)  # fmt: skip
GROUPS = st.builds(
    Group, id=st.sampled_from(["1", "2"]), name=TEXTS, rank=st.integers(0, 3), ranks=RANKS,
    messages=st.sampled_from([False, False, False, True]),
)  # fmt: skip
CALLS = st.builds(
    Call, collective=COLLECTIVES, signature=SIGNATURES, algorithm=TEXTS, transport=TEXTS
)
LOCATIONS = st.builds(Location, file=TEXTS, line=TIMES, function=TEXTS)
ERRORS = st.builds(Text, text=st.one_of(TEXTS, st.just("RankLost: rank 2 is gone")))


class Job(NamedTuple):
    """What the files of a job have in common.

    Attributes:
        records: two groups, two kinds of calls, a line, and an error.
        is_alike: all ranks have completed all calls of the first group.
        first: the number before that of the first call, and `calls` how many there are.
    """

    records: list[Record]
    is_alike: bool
    first: int
    calls: int


FILES = st.sampled_from([3, 3, 3, 3, 1, 2, 4])
JOBS = st.builds(
    Job, st.tuples(GROUPS, GROUPS, CALLS, CALLS, LOCATIONS, ERRORS).map(list),
    st.sampled_from([True, True, False]), st.sampled_from([0, 0, 0, ROWS - 2, 1 << 62]),
    st.sampled_from([0, 3, 20, 40]),
)  # fmt: skip


@st.composite
def flight_files(draw: st.DrawFn) -> list[FlightFile]:
    """Draw the files of a job."""
    job = draw(JOBS)
    return [draw(_flight_file(number, job)) for number in range(draw(FILES))]


@st.composite
def _flight_file(draw: st.DrawFn, number: int, job: Job) -> FlightFile:
    process = Process(number + 1, number, 3, draw(HOSTS), draw(HOSTS), 0, 0)
    if draw(st.integers(0, 9)) == 9:
        process = draw(PROCESSES)
    added = draw(st.lists(st.one_of(PROCESSES, GROUPS, CALLS, LOCATIONS, ERRORS), max_size=3))
    table, places = b"".ljust(UNIT, b"\0"), []
    for item in [*job.records, *([process] if draw(st.integers(0, 9)) else []), *added]:
        places.append(len(table) // UNIT)
        table += record(*encode(item))
    content = bytearray(FILE_BYTES)
    content[: len(head())] = head()
    content[TABLE_AT : TABLE_AT + len(table)] = table
    _fill_rings(draw, content, job, places)
    STATE.pack_into(content, STATE_AT, draw(st.integers(0, 3)), draw(TICKS))
    clock = [draw(SIGNED_TICKS) for _ in range(4)]
    CLOCK.pack_into(content, CLOCK_AT, *draw(st.sampled_from([(0, 0, 10**9, 10**9), clock])))
    ENDING.pack_into(content, ENDING_AT, draw(st.integers(0, 2)), draw(WORDS), draw(WORDS), 0, 0)
    rank = draw(st.sampled_from([number, number, number, 0]))
    return FlightFile(f"rank-{rank:05}.job.{number + 1}.flight", bytes(content))


def _fill_rings(draw: st.DrawFn, content: bytearray, job: Job, places: list[int]) -> None:
    """Write rows, samples and links, most of them with numbers that count from 1."""
    place = st.one_of(st.sampled_from(places), WORDS)
    start = 0
    for number in range(job.first + 1, job.first + 1 + job.calls):
        start = draw(st.one_of(st.just(start), st.just(min(start + 10**6, _LAST)), TICKS))
        end = draw(st.sampled_from([0, start, min(start + 10**5, _LAST), _LAST]))
        if job.is_alike:
            row = Row(number, number, start, max(start, end), places[0], places[2 + number % 2],
                      places[4], 7, Outcome.COMPLETED, 0)  # fmt: skip
        else:
            outcome = draw(st.integers(0, 4)) if end else Outcome.UNDER_WAY
            row = Row(number, draw(st.one_of(st.just(number), LONG_WORDS)), start, end,
                      draw(place), draw(place), draw(place), draw(st.sampled_from([7, 8])),
                      outcome, draw(place))  # fmt: skip
        at = ROWS_AT + (number - 1) % ROWS * ROW.size
        content[at : at + ROW.size] = packed(row)
    for number in range(1, 1 + draw(st.sampled_from([0, 3, 20]))):
        sums = (draw(LONG_WORDS) for _ in range(7))
        sample = Sample(number, draw(TICKS), *sums, 7, *(draw(WORDS) for _ in range(5)))
        at = SAMPLES_AT + (number - 1) % SAMPLES * SAMPLE.size
        content[at : at + SAMPLE.size] = packed_words(SAMPLE, sample)
    ends = [bytes(10) + b"\xff\xff\x0a\0\0" + bytes([number]) for number in range(3)]
    for number in range(1, 1 + draw(st.sampled_from([0, 3, 10]))):
        link = Link(
            number, draw(TICKS), draw(st.sampled_from(ends)), draw(st.sampled_from(ends)),
            draw(LONG_WORDS), draw(LONG_WORDS), draw(LONG_WORDS), draw(WORDS), draw(WORDS),
            draw(WORDS), draw(st.integers(0, 65535)), 7,
        )  # fmt: skip
        at = LINKS_AT + (number - 1) % LINKS * LINK.size
        content[at : at + LINK.size] = packed_words(LINK, link)
    for number in range(draw(st.sampled_from([0, 3, 10]))):
        group, call, location = places[number % 2], places[2 + number % 2], draw(place)
        total = TotalRow(group, call, location, 0, *(draw(LONG_WORDS) for _ in range(4)))
        total = total._replace(mark=mark_of(total) if number else 0)
        buckets = [draw(WORDS), *[0] * (BUCKETS - 1)]
        at = TOTALS_AT + number * TOTAL.size
        content[at : at + TOTAL.size] = TOTAL.pack(*total, *buckets)
