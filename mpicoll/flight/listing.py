"""List the jobs that have left flight files, so that nobody has to know their directories."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from mpicoll.cli.tables import plain_table
from mpicoll.errors import ArgumentError
from mpicoll.flight.directory import configured, home, is_held
from mpicoll.flight.reader import NO_FILES, DamagedFile, newest_files, read
from mpicoll.text.numbers import ranges

_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


class Job(NamedTuple):
    """A job that has left files.

    Attributes:
        program: the command line of its first rank that can be read.
        processes: of the ranks that have left a file here.
        started: nanoseconds since the epoch.
        is_alive: one of these processes runs.
    """

    directory: Path
    program: str
    processes: list[int]
    started: int
    is_alive: bool


def jobs(*, running: bool = False) -> list[Job]:
    """Return the jobs of this user on this host, the newest first.

    Args:
        running: leave out the jobs that are over.

    Raises:
        ArgumentError: there is none.
    """
    place = Path(configured()) if configured() else home()
    listed = sorted(_jobs(place), key=lambda job: job.started, reverse=True)
    if running and listed and not any(job.is_alive for job in listed):
        raise ArgumentError(
            f"no job with flight files in {place} runs: `python -m mpicoll.postmortem` tells of "
            "those that are over"
        )
    listed = [job for job in listed if job.is_alive or not running]
    if not listed:
        raise ArgumentError(
            f"no job has left flight files in {place}: name the directory of one; {NO_FILES}"
        )
    return listed


def _jobs(place: Path) -> Iterator[Job]:
    """Yield the jobs of a directory: the newest one of its own files, and those below it."""
    below = (path for path in place.iterdir() if path.is_dir()) if place.is_dir() else ()
    for directory in (place, *below):
        try:
            paths, _ = newest_files(directory)
        except ArgumentError:
            continue
        if (job := _read_job(directory, paths)) is not None:
            yield job


def _read_job(directory: Path, paths: list[Path]) -> Job | None:
    """Return a job by the first of its files that can be read, None where none can be."""
    for path in sorted(paths):
        try:
            process = read(path).process
        except DamagedFile:
            continue
        processes = [int(path.name.split(".")[2]) for path in paths]
        alive = any(map(is_held, paths))
        return Job(directory, process.program, sorted(processes), process.realtime, alive)
    return None


def show_jobs(out: Console, listed: list[Job], command: str) -> None:
    """Print a line for each job, and the command that tells more of the newest one."""
    table = plain_table(("program", "ranks", "processes", "age", "", "directory"))
    for job in listed:
        state = "runs" if job.is_alive else "is over"
        table.add_row(
            job.program or "-", str(len(job.processes)), ranges(job.processes),
            _age(time.time_ns() - job.started), state, str(job.directory),
        )  # fmt: skip
    out.print(table)
    out.print(Text(f"\n{command} {listed[0].directory}"))


def _age(nanoseconds: int) -> str:
    """Return a time in its largest unit, rounded down."""
    seconds = max(0, nanoseconds) // 1_000_000_000
    unit, length = next((unit for unit in _UNITS if seconds >= unit[1]), _UNITS[-1])
    return f"{seconds // length} {unit}"
