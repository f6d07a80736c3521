"""Look at the rank that comes late, while it runs: the line it spends its time at, and its host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import hypot, sqrt
from time import monotonic, sleep
from typing import NamedTuple

from mpicoll.doctor.host import Process, busy_processes, children_share, frequency, memory_pressure
from mpicoll.flight.diagnosis import calling_thread
from mpicoll.flight.job import is_here, new_stacks, owner_of
from mpicoll.flight.reader import Dump
from mpicoll.flight.stack_text import Frame, calling, last_stacks
from mpicoll.verdict.findings import Finding, Kind
from mpicoll.verdict.judging import Verdict
from mpicoll.verdict.profiles import Profile
from mpicoll.verdict.thresholds import OF_PROCESS

_ENOUGH, _REQUESTS, _SECONDS, _PAUSE = 12, 48, 6.0, 0.037
"""The stacks between calls that are enough, the most that are requested of a rank, the seconds for
them, and those between two: a prime number of thousandths, so that they do not follow the rhythm of
a program."""
_CLEAR, _ERRORS = 0.3, 1.5
"""The excess from which on so few stacks are enough; how many standard errors it must exceed."""
_DEEPER = 0.8
"""A line deeper in the program is named if it has this share of the stacks of its caller."""
_IN_PROGRAM = frozenset((
    Kind.MORE_WORK, Kind.UNEVEN_DATA, Kind.ASLEEP, Kind.UNCLEAR, Kind.SLOW_NODE, Kind.OWN_THREAD,
    Kind.CHILD_PROCESS,
))  # fmt: skip
_ON_CORES = frozenset((Kind.SHARED_CORE, Kind.SLOW_NODE, Kind.UNCLEAR))
Path = tuple[Frame, ...]
"""The lines of the program that a thread is in, the innermost first."""


class Lines(NamedTuple):
    """Where one rank was in its stacks.

    Attributes:
        paths: outside of its calls.
        in_calls: in its calls.
    """

    paths: list[Path]
    in_calls: list[Path]

    def share(self, path: Path) -> float:
        """Return the share of the stacks that are at a line with these callers."""
        count = sum(_is_below(whole, path) for whole in (*self.paths, *self.in_calls))
        return count / max(1, len(self.paths) + len(self.in_calls))

    def error(self, path: Path) -> float:
        """Return the standard error of this share."""
        count, share = len(self.paths) + len(self.in_calls), self.share(path)
        return sqrt(share * (1 - share) / max(1, count))


class Line(NamedTuple):
    """A line, the caller that only the late rank is at, and the excess of the line's share."""

    path: Path
    caller: Frame | None
    excess: float


def with_children(verdict: Verdict) -> Verdict:
    """Return a verdict in which ranks that wait for running child processes are said to do so."""
    findings = [
        finding._replace(kind=Kind.CHILD_PROCESS)
        if finding.kind is Kind.ASLEEP and finding.profile
        and _has_busy_child(finding.profile, verdict) else finding
        for finding in verdict.findings
    ]  # fmt: skip
    return verdict._replace(findings=findings)


def _has_busy_child(profile: Profile, verdict: Verdict) -> bool:
    dump = _dump_of(profile, verdict)
    if not is_here(dump):
        return False
    span = max(1.0, verdict.observation.observed[dump.rank] / profile.calls)
    share = profile.excesses["asleep"].mean / span
    return children_share(dump.process.pid) >= OF_PROCESS * share


def _dump_of(profile: Profile, verdict: Verdict) -> Dump:
    return next(dump for dump in verdict.alignment.dumps if dump.rank == profile.rank)


def remarks(verdict: Verdict) -> Iterator[str]:
    """Yield sentences that support the first finding on a rank; none if it is not of this host."""
    finding = next((finding for finding in verdict.findings if finding.profile), None)
    if finding is None or finding.profile is None:
        return
    dump = _dump_of(finding.profile, verdict)
    if not is_here(dump):
        yield (
            f"Rank {dump.rank} is not a process of this host: run this command on "
            f"{dump.process.host or 'its host'} to see its stacks and its cores."
        )
        return
    if finding.kind in _IN_PROGRAM:
        yield from _line(dump, finding, verdict)
    yield from _host(dump, finding, {dump.process.pid for dump in verdict.alignment.dumps})


def _line(dump: Dump, finding: Finding, verdict: Verdict) -> Iterator[str]:
    """Name the line at which a rank is between its calls, and is more often than another rank."""
    owner = os.stat(dump.path).st_uid
    if os.geteuid() not in (0, owner):
        yield (
            f"The job belongs to {owner_of(dump.path)}: only that user can request the stacks of "
            f"rank {dump.rank}."
        )
        return
    calls = {
        (location.file, location.line)
        for dump in verdict.alignment.dumps for location in dump.locations.values()
    }  # fmt: skip
    peer = next(
        (candidate for candidate in verdict.alignment.dumps
         if candidate.rank not in finding.ranks and is_here(candidate)), None,
    )  # fmt: skip
    is_of_others = finding.kind is Kind.OWN_THREAD
    stacks = _sampled(dump, peer, calls, is_of_others)
    if (line := chosen(*stacks)) is None:
        return
    paths = stacks[0].paths
    count = sum(_is_below(whole, line.path) for whole in paths)
    called = f", called from {line.caller}" if line.caller else ""
    thread = "another thread of rank" if is_of_others else "rank"
    yield (
        f"Between its calls {thread} {dump.rank} is most often at {line.path[0]}{called}: in "
        f"{count} of {len(paths)} stacks."
    )


def chosen(local: Lines, remote: Lines) -> Line | None:
    """Return the line at which a rank is more often than another one; None where none may be.

    Of lines that call each other the innermost one is chosen that has most of the stacks. A caller
    of the calls is none: all ranks are below it.
    """
    in_calls = {
        path[place:] for path in (*local.in_calls, *remote.in_calls)
        for place in range(1, len(path))
    }  # fmt: skip
    paths = {path[place:] for path in local.paths for place in range(len(path))} - in_calls
    excess = {path: local.share(path) - remote.share(path) for path in paths}
    largest = max(excess.values(), default=0.0)
    frequent = [path for path in paths if excess[path] >= _DEEPER * largest]
    innermost = max(frequent, key=lambda path: (len(path), excess[path]), default=())
    if largest <= _ERRORS * hypot(local.error(innermost), remote.error(innermost)):
        return None
    callers = [path for path in frequent if _is_below(innermost, path) and path != innermost]
    outermost = min(callers, key=len, default=innermost[1:])
    return Line(innermost, outermost[0] if outermost else None, largest)


def _is_below(path: Path, callers: Path) -> bool:
    return len(path) >= len(callers) and path[len(path) - len(callers) :] == callers


def _paths(dump: Dump, is_of_others: bool) -> list[Path]:
    """Return where the thread that makes a rank's calls is, or its other threads are."""
    stacks = last_stacks(new_stacks(dump))
    stack = calling(stacks, calling_thread(dump))
    chosen = [thread for thread in stacks if thread != stack] if is_of_others else [stack]
    return [tuple(thread.user_frames) for thread in chosen if thread and thread.user_frames]


def _sampled(
    dump: Dump, peer: Dump | None, calls: set[tuple[str, int]], is_of_others: bool
) -> tuple[Lines, Lines]:
    """Return where a rank, and one that is not late, are between calls.

    Args:
        calls: the file and the line of each call, and of each message.
    """
    until = monotonic() + _SECONDS
    lines = {dump.rank: Lines([], [])} | ({peer.rank: Lines([], [])} if peer else {})
    local, remote = lines[dump.rank], lines[peer.rank] if peer else Lines([], [])
    for _ in range(_REQUESTS):
        line = chosen(local, remote) if len(local.paths) >= _ENOUGH else None
        if (line and line.excess >= _CLEAR) or monotonic() >= until:
            break
        for rank in (dump, *((peer,) if peer else ())):
            sleep(_PAUSE)
            for path in _paths(rank, is_of_others):
                is_call = (path[0].file, path[0].line) in calls
                (lines[rank.rank].in_calls if is_call else lines[rank.rank].paths).append(path)
    return local, remote


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
