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
from zlib import crc32

MAGIC, VERSION = b"mpicollF", 6
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
MESSAGE = struct.Struct("<2q")
"""When the present message began, 0 without one, and the length of the longest one, in ticks."""
MESSAGE_AT = CLOCK_AT + CLOCK.size
ENDING = struct.Struct("<4Iq")
"""Whether signals leave themselves here, the number of the last one, the process that sent it (0
where that is not known), nothing, and when, in nanoseconds of the monotonic clock."""
ENDING_AT = 192
BEAT = struct.Struct("<q")
"""When the process lived last, once a second, in nanoseconds of the monotonic clock; 0 if nothing
tells."""
BEAT_AT = 256
ROWS_AT = 4096
ROW = struct.Struct("<QQqq6IQ")
SAMPLES_AT = ROWS_AT + ROWS * ROW.size
SAMPLE = struct.Struct("<QqQQ5Q6IQ")
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
RING_PARTS = (
    slice(ROWS_AT, SAMPLES_AT), slice(CLOCK_AT, MESSAGE_AT + MESSAGE.size),
    slice(SAMPLES_AT, LINKS_AT), slice(LINKS_AT, TOTALS_AT), slice(TOTALS_AT, TABLE_AT),
)  # fmt: skip
"""The parts that `Ring` writes, in the order of its arguments."""
TABLE_BYTES = 1024 * 1024
FILE_BYTES = TABLE_AT + TABLE_BYTES

RECORD = struct.Struct("<4sIII")
"""Mark, kind, bytes of what follows, and its check."""
MARK = b"MPFR"
UNIT = 8
MOST_BYTES = 16 * 1024
"""Of one record."""


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


def head() -> bytes:
    """Return the head of a file of this version."""
    fields = (VERSION, ROW.size, ROWS, ROWS_AT, TABLE_AT, TABLE_BYTES, FILE_BYTES)
    plain = HEAD.pack(MAGIC, *fields, 0)
    return HEAD.pack(MAGIC, *fields, crc32(plain[:-4]))


def record(kind: int, data: bytes) -> bytes:
    """Return a record of the table, filled up to whole units."""
    whole = RECORD.pack(MARK, kind, len(data), crc32(data, kind)) + data
    return whole.ljust(-(-len(whole) // UNIT) * UNIT, b"\0")


def record_at(file: bytes, at: int) -> tuple[int, bytes | None]:
    """Return the kind and the data of a record at a place of the file; None if it is damaged."""
    if (at - TABLE_AT) % UNIT or at + RECORD.size > len(file):
        return 0, None
    _, kind, length, check = RECORD.unpack_from(file, at)
    data = file[at + RECORD.size : at + RECORD.size + min(length, MOST_BYTES)]
    return kind, data if len(data) == length and crc32(data, kind) == check else None
