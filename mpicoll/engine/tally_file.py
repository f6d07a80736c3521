"""The file in which a rank keeps its tallies while its program runs.

The process maps the file, so the kernel keeps all numbers even if the process is killed. The file
is a sequence of records. A record has a header, numbers of 64 bits, and a description as JSON. The
first record describes the rank. Its numbers relate ticks to seconds. Each other record is the tally
of one kind of call.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple
from zlib import crc32

from mpicoll.engine import tallies
from mpicoll.errors import ArgumentError
from mpicoll.text.opening import open_by_name

MARK = b"MPTR"
_HEADER = struct.Struct("<4sIII")
"""Mark, count of numbers, bytes of the description, and a check of the description."""
_UNIT = 8
_FIRST_BYTES = 256 * 1024
"""Bytes of the first part of the file. A part is as long as all parts before it."""
_BEGAN, _TICKS, _NANOSECONDS = range(3)


class Record(NamedTuple):
    """A description and its numbers."""

    description: dict[str, Any]
    numbers: memoryview


class TallyFile:
    """The file of this process.

    Args:
        description: of the rank.

    Raises:
        ArgumentError: the path names a file of another kind.
        OSError: the file cannot be created, or the disk is full.
    """

    def __init__(self, path: Path, description: dict[str, Any]) -> None:
        self.path, self.end = path, 0
        self.free = memoryview(b"")
        remove(path)
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with suppress(OSError):  # the lock tells readers that the process lives
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.began_ns = perf_counter_ns()
        try:
            self.head = self.add(description, 3)
        except OSError:
            path.unlink()
            raise
        self.head.numbers[_BEGAN] = tallies.ticks()
        self.synchronise()

    def add(self, description: dict[str, Any], count: int = tallies.LENGTH) -> Record:
        """Append a record whose numbers are 0.

        Raises:
            OSError: the disk is full.
        """
        text = json.dumps(description).encode()
        begin = _HEADER.size + count * _UNIT
        nbytes = -(-(begin + len(text)) // _UNIT) * _UNIT
        if nbytes > len(self.free):
            self._extend(nbytes)
        place, self.free = self.free[:nbytes], self.free[nbytes:]
        place[begin : begin + len(text)] = text
        _HEADER.pack_into(place, 0, MARK, count, len(text), crc32(text))
        return Record(description, place[_HEADER.size : begin].cast("q"))

    def _extend(self, nbytes: int) -> None:
        """Map a new part of the file, of so many bytes at least."""
        length = max(self.end, _FIRST_BYTES)
        while length < nbytes:
            length *= 2
        # If the disk is full, this raises an error now. A write would be a fatal signal later.
        os.posix_fallocate(self.file, self.end, length)
        self.free = memoryview(mmap.mmap(self.file, length, offset=self.end))
        self.end += length

    def synchronise(self) -> None:
        """Relate ticks to seconds as of now."""
        self.head.numbers[_TICKS] = tallies.ticks()
        self.head.numbers[_NANOSECONDS] = perf_counter_ns() - self.began_ns


def remove(path: Path) -> None:
    """Remove the file of an earlier program, if there is one.

    Raises:
        ArgumentError: it is a file of another kind.
    """
    try:
        file = open_by_name(path)
    except FileNotFoundError:
        return
    with os.fdopen(file, "rb") as stream:
        if stream.read(len(MARK)) not in (MARK, b"", bytes(len(MARK))):
            raise ArgumentError(f"{path} is no file of tallies, and would be overwritten")
    with suppress(FileNotFoundError):
        path.unlink()


def records_in(data: bytes) -> Iterator[Record]:
    """Yield the records of a file's content, without those that are damaged."""
    at = data.find(MARK)
    while 0 <= at <= len(data) - _HEADER.size:
        _, count, length, check = _HEADER.unpack_from(data, at)
        begin = at + _HEADER.size + count * _UNIT
        text = data[begin : begin + length]
        following = at + 1
        if at % _UNIT == 0 and text and len(text) == length and crc32(text) == check:
            with suppress(ValueError, RecursionError):
                description = json.loads(text)
                if isinstance(description, dict):
                    numbers = memoryview(data)[at + _HEADER.size : begin].cast("q")
                    yield Record(description, numbers)
                    following = begin + length
        at = data.find(MARK, following)


def lines_of(head: Record, records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return the lines of a trace for one rank: its own one, and one for each kind of calls.

    Times are in microseconds, but for `seconds`.

    Raises:
        ValueError: the head has another number of numbers.
    """
    began, now, nanoseconds = head.numbers
    tick = nanoseconds / 1e9 / max(1, now - began)
    lines, ended = [], now
    for description, numbers in records:
        if len(numbers) != tallies.LENGTH or not numbers[0]:
            continue
        times = tallies.read(numbers, 1e6 * tick)
        ended = max(ended, times.ended)
        lines.append({
            "rank": head.description.get("rank"), **description, "calls": times.calls,
            "timed": times.timed, "seconds": times.calls * times.mean / 1e6,
            "least_us": times.least, "most_us": times.most,
            "histogram": [(round(low, 3), calls) for low, calls in times.histogram],
        })  # fmt: skip
    return [{**head.description, "seconds": (ended - began) * tick}, *lines]
