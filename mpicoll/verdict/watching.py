"""Read the files of a running job several times: a file keeps the last 1,024 calls only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

from mpicoll.flight.reader import Dump, Entry, Link, Sample
from mpicoll.flight.torch_dumps import read_all

R = TypeVar("R", Sample, Link)
_PAUSE, _IDLE = 0.5, 4.0
"""Seconds between two readings, and the least pause in units of the time that a reading takes: rows
of frequent calls are lost, and the machine stays free for the job."""


def watch(directory: Path, seconds: float) -> tuple[list[Dump], list[str]]:
    """Return the content of a job's files over some seconds, and why some cannot be read.

    Raises:
        ArgumentError: there is no flight file.
    """
    until = monotonic() + seconds
    histories: defaultdict[Path, History] = defaultdict(History)
    while True:
        begin = monotonic()
        dumps, faults = read_all(directory)
        pause = max(_PAUSE, _IDLE * (monotonic() - begin))
        for dump in dumps:
            histories[dump.path].add(dump)
        remaining = until - monotonic()
        if remaining <= 0 or not any(dump.is_alive for dump in dumps):
            break
        sleep(min(pause, remaining))
    return [histories[dump.path].merged(dump) for dump in dumps], faults


class History:
    """The rows, samples and links of one rank's file over several readings."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.samples: dict[tuple[int, int], Sample] = {}
        self.links: dict[tuple[object, ...], Link] = {}

    def add(self, dump: Dump) -> None:
        """Add a reading of the file; a row that has ended meanwhile replaces the earlier one."""
        self.entries |= {entry.number: entry for entry in dump.entries}
        # The clock is measured anew, so a time may differ by a little from the time read before.
        self.samples |= {(sample.thread, sample.running): sample for sample in dump.samples}
        self.links |= {(*link.connection, link.sent, link.busy): link for link in dump.links}

    def merged(self, dump: Dump) -> Dump:
        """Return the last reading with the rows of all."""
        return dump._replace(
            entries=[self.entries[number] for number in sorted(self.entries)],
            samples=_by_time(self.samples.values()), links=_by_time(self.links.values()),
        )  # fmt: skip


def _by_time(readings: Iterable[R]) -> list[R]:
    return sorted(readings, key=lambda reading: reading.at)
