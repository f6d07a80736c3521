"""Look at the rank that comes late, while it runs: the line it spends its time at, and its host."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from time import sleep

from mpicoll.doctor.host import Process, busy_processes, frequency, memory_pressure
from mpicoll.flight.job import is_here, new_stacks, owner_of
from mpicoll.flight.reader import Dump
from mpicoll.flight.stack_text import Frame, last_stacks, place
from mpicoll.verdict.findings import Finding, Kind
from mpicoll.verdict.judging import Verdict

_STACKS, _PAUSE = 12, 0.07
"""Stacks that are requested, and the seconds between two: a prime number of hundredths, so that
they do not follow the rhythm of a program."""
_IN_PROGRAM = frozenset(
    (Kind.MORE_WORK, Kind.UNEVEN_DATA, Kind.ASLEEP, Kind.UNCLEAR, Kind.SLOW_NODE)
)
_ON_CORES = frozenset((Kind.SHARED_CORE, Kind.SLOW_NODE, Kind.UNCLEAR))


def remarks(verdict: Verdict) -> Iterator[str]:
    """Yield sentences that support the first finding on a rank; none if it is not of this host."""
    finding = next((finding for finding in verdict.findings if finding.profile), None)
    if finding is None or finding.profile is None:
        return
    rank = finding.profile.rank
    dump = next(dump for dump in verdict.alignment.dumps if dump.rank == rank)
    if not is_here(dump):
        yield (
            f"Rank {rank} is not a process of this host: run this command on "
            f"{dump.process.host or 'its host'} to see its stacks and its cores."
        )
        return
    if finding.kind in _IN_PROGRAM:
        yield from _line(dump, verdict)
    yield from _host(dump, finding, {dump.process.pid for dump in verdict.alignment.dumps})


def _line(dump: Dump, verdict: Verdict) -> Iterator[str]:
    """Name the line at which a rank is most often between its calls."""
    owner = os.stat(dump.path).st_uid
    if os.geteuid() not in (0, owner):
        yield (
            f"The job belongs to {owner_of(dump.path)}: only that user can request the stacks of "
            f"rank {dump.rank}."
        )
        return
    calls = {
        (key.location.file, key.location.line)
        for key in verdict.observation.meetings
        if key.location
    }
    frames = [*filter(None, (_between_calls(dump, calls) for _ in range(_STACKS)))]
    if not frames:
        return
    frame, count = Counter(frames).most_common(1)[0]
    yield (
        f"Between its calls rank {dump.rank} is most often at {frame}: in {count} of "
        f"{len(frames)} stacks."
    )


def _between_calls(dump: Dump, calls: set[tuple[str, int]]) -> Frame | None:
    """Return where a rank is now; None if it is in a call, or writes no stack.

    Args:
        calls: the file and the line of each call.
    """
    sleep(_PAUSE)
    frame = place(last_stacks(new_stacks(dump)))
    return None if frame is None or (frame.file, frame.line) in calls else frame


def _host(dump: Dump, finding: Finding, job: set[int]) -> Iterator[str]:
    """Yield facts on the cores and the memory of a rank's host that support the finding."""
    if finding.kind in _ON_CORES:
        busy = [process for process in busy_processes(dump.process.pid) if process.pid not in job]
        if busy:
            yield f"Busy on the cores of rank {dump.rank} are also {_listed(busy)}."
        if (ratio := frequency(dump.process.pid)) is not None and ratio < 0.8:
            yield f"The cores of rank {dump.rank} run at {100 * ratio:.0f} % of their frequency."
    if finding.kind in (Kind.ASLEEP, Kind.SLOW_NODE) and (pressure := memory_pressure()):
        yield f"Memory is short on this host: {pressure}."


def _listed(processes: list[Process]) -> str:
    parts = [
        f"{process.name} (process {process.pid}, {100 * process.share:.0f} % of a core)"
        for process in processes[:3]
    ]
    more = f" and {len(processes) - 3} more" if len(processes) > 3 else ""
    return f"{', '.join(parts)}{more}"
