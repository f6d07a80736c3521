"""The layout of a flight file: a head, rings of rows, samples and links, totals, and the table.

All numbers are little-endian. A ring keeps its last entries; entry number `n`, counted from 1, lies
at place `(n - 1) % entries`. The writer stores the number of an entry last, and a check covers the
entry. So a reader recognises an entry that was overwritten meanwhile, cut by a kill, or damaged.
A row is written when its call begins, and gets its end and its outcome later. The check of a row
therefore leaves out end, outcome and text. Calls whose rows are overwritten are added to totals, of
one group, kind and line each. A record of the table never changes; its place in the
table, in units of 8 bytes, is the number by which rows name it.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC, VERSION = b"mpicollF", 4
SUFFIX, STACKS = ".flight", ".stacks"
ROWS = 1024
"""Calls that are kept."""
SAMPLES = 2 * ROWS
"""Samples that are kept: a call has two at most, so they cover the calls that are kept."""
LINKS = 1024
"""Readings of TCP connections that are kept."""

HEAD = struct.Struct("<8s8I")
"""Magic, version, bytes of a row, rows, where they begin, where the table begins, the lengths of it
and of the file, and a check of all these."""
STATE = struct.Struct("<Qq")
"""How the rank stands, and when that was said, in nanoseconds of its monotonic clock."""
STATE_AT = 64
CLOCK = struct.Struct("<4q")
"""Ticks of the rows' clock and nanoseconds of the monotonic one, at the beginning and lately."""
CLOCK_AT = 128
ENDING = struct.Struct("<4Iq")
"""Whether signals leave themselves here, the number of the last one, the process that sent it (0
where that is not known), nothing, and when, in nanoseconds of the monotonic clock."""
ENDING_AT = 192
ROWS_AT = 4096
ROW = struct.Struct("<QQqq6IQ")
SAMPLES_AT = ROWS_AT + ROWS * ROW.size
SAMPLE = struct.Struct("<QqQQ6IQ")
LINKS_AT = SAMPLES_AT + SAMPLES * SAMPLE.size
LINK = struct.Struct("<Qq16s16s3Q3I2HQ")
TOTALS = 512
"""Totals of calls; the first one has those for which there was no other."""
TOTALS_AT = LINKS_AT + LINKS * LINK.size
BUCKETS, FIRST_EXPONENT = 96, 6
"""Buckets of times: number ``4 (e - FIRST_EXPONENT) + q`` begins at ``2**e (1 + q / 4)`` ticks."""
TOTAL = struct.Struct(f"<4I4Q16x{BUCKETS}I")
"""A `TotalRow`, and its buckets."""
FOLDED = struct.Struct("<Q")
FOLDED_AT = TOTALS_AT + 48
"""The number of the last row that totals have; rows with larger numbers are in none."""
TABLE_AT = TOTALS_AT + TOTALS * TOTAL.size
TABLE_BYTES = 1024 * 1024
FILE_BYTES = TABLE_AT + TABLE_BYTES

RECORD = struct.Struct("<4sIII")
"""Mark, kind, bytes of what follows, and its check."""
MARK = b"MPFR"
UNIT = 8
MOST_BYTES = 16 * 1024
"""Of one record."""
_WORD = (1 << 64) - 1
_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5,
            0x85EBCA77C2B2AE63)  # fmt: skip


class State(IntEnum):
    """How a rank stands."""

    RUNNING = 0
    ENDED = 1
    FAILED = 2


class Outcome(IntEnum):
    """How a call stands."""

    UNDER_WAY = 0
    COMPLETED = 1
    RAISED = 2
    ISSUED = 3
    """It has begun, and its end is not recorded."""


class Kind(IntEnum):
    """The kind of a record of the table."""

    PROCESS = 1
    GROUP = 2
    CALL = 3
    LOCATION = 4
    TEXT = 5


class Row(NamedTuple):
    """One call.

    Attributes:
        number: counts the rows of this file, from 1.
        sequence: counts the calls on the group, from 1, the same on all its ranks.
        start, end: ticks of a clock that `CLOCK` relates to the host's monotonic one.
        group, call, location, text: places in the table; 0 for none. `text` is that of an error.
        thread: the system's number of it.
    """

    number: int
    sequence: int
    start: int
    end: int
    group: int
    call: int
    location: int
    thread: int
    outcome: int
    text: int


def check_of(row: Row) -> int:
    """Return the checksum of a row as its call begins; as in ``flight.c``."""
    words = (row.number, row.sequence, row.start, row.group | row.call << 32,
             row.location | row.thread << 32)  # fmt: skip
    total = sum(word * factor for word, factor in zip(words, _FACTORS, strict=True)) & _WORD
    return total ^ total >> 29


class SampleRow(NamedTuple):
    """The counters of one thread at one moment; all but `number`, `at` and `probe` are cumulative.

    Attributes:
        number: counts the samples of this file, from 1.
        at: ticks, as `Row.start`.
        running, queued: nanoseconds that the thread has run, and that it had no core.
        thread: the system's number of it.
        preempted, faults: involuntary context switches and major page faults of the thread.
        continued: SIGCONT that the process has received.
        probe: nanoseconds that a fixed loop took; 0 in samples without it.
    """

    number: int
    at: int
    running: int
    queued: int
    thread: int
    preempted: int
    faults: int
    continued: int
    probe: int
    unused: int = 0


class LinkRow(NamedTuple):
    """One reading of one TCP connection; `sent`, `busy` and `retransmitted` are cumulative.

    Attributes:
        number: counts the readings of this file, from 1.
        at: ticks, as `Row.start`.
        local, peer: the addresses of both ends, as 16 bytes of IPv6.
        sent: bytes that the peer has acknowledged.
        busy: microseconds with data to send for which the receiver had room.
        rate: bytes a second at which the peer has lately acknowledged data.
        retransmitted: segments.
        rtt, rtt_min: the round trip in microseconds, smoothed and the least.
    """

    number: int
    at: int
    local: bytes
    peer: bytes
    sent: int
    busy: int
    rate: int
    retransmitted: int
    rtt: int
    rtt_min: int
    local_port: int
    peer_port: int


class TotalRow(NamedTuple):
    """The calls of one group, kind and line whose rows may be overwritten.

    Attributes:
        group, call, location: as of `Row`.
        mark: as `mark_of` says; 0 in the first total.
        timed: of the calls; the ends of the others are not recorded.
        ticks: of the timed calls.
        shortest: ticks of the shortest one.
    """

    group: int
    call: int
    location: int
    mark: int
    calls: int
    timed: int
    ticks: int
    shortest: int


def mark_of(row: TotalRow) -> int:
    """Return the mark of a total; as in ``flight.c``."""
    key = row.group * 0x9E3779B1 + row.call * 0x85EBCA77 + row.location * 0xC2B2AE3D
    return key % (1 << 32) | 1


def checks_of(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the checksums of samples or links; as in ``counters.c``.

    Args:
        words: those of an entry in each row, without its checksum.
    """
    powers = [pow(_FACTORS[0], power, 1 << 64) for power in reversed(range(words.shape[1]))]
    total: NDArray[np.uint64] = (words * np.array(powers, np.uint64)).sum(axis=1, dtype=np.uint64)
    checks: NDArray[np.uint64] = total ^ total >> np.uint64(29)
    return checks


def packed(row: Row) -> bytes:
    """Return a row's bytes."""
    return ROW.pack(*row, check_of(row))


def packed_words(kind: struct.Struct, entry: SampleRow | LinkRow) -> bytes:
    """Return the bytes of a sample or a link, with their check."""
    words = np.frombuffer(kind.pack(*entry, 0), "<u8")[:-1]
    return words.tobytes() + checks_of(words[None]).tobytes()


def head() -> bytes:
    """Return the head of a file of this version."""
    fields = (VERSION, ROW.size, ROWS, ROWS_AT, TABLE_AT, TABLE_BYTES, FILE_BYTES)
    plain = HEAD.pack(MAGIC, *fields, 0)
    return HEAD.pack(MAGIC, *fields, crc32(plain[:-4]))


def record(kind: int, data: bytes) -> bytes:
    """Return a record of the table, filled up to whole units."""
    whole = RECORD.pack(MARK, kind, len(data), crc32(data, kind)) + data
    return whole.ljust(-(-len(whole) // UNIT) * UNIT, b"\0")
