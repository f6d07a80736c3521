"""Flight files of a job that never ran, in memory: each rank's calls at chosen times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from mpicoll.flight.layout import Outcome, State
from mpicoll.flight.reader import Dump, Ending, Entry, Sample
from mpicoll.flight.records import Call, Group, Location, Process

MILLISECOND = 1_000_000
EPOCH = 1_700_000_000_000_000_000
LINE = Location("train.py", 40, "step")


def world(size: int) -> Group:
    """Return the group of all ranks."""
    return Group("world-id", "world", 0, f"0-{size - 1}")


def row(
    sequence: int, start: float, end: float, *, group: Group, collective: str = "allreduce",
    signature: str = "float32 (8), sum", location: Location | None = LINE, number: int = 0,
) -> Entry:  # fmt: skip
    """Return a completed call; `start` and `end` in milliseconds."""
    return Entry(
        number or sequence, sequence, EPOCH + round(start * MILLISECOND),
        EPOCH + round(end * MILLISECOND), group, Call(collective, signature), location, 1,
        Outcome.COMPLETED, "",
    )  # fmt: skip


def dump(
    rank: int, entries: Sequence[Entry], *, size: int = 4, host: str = "host0", boot: str = "boot0",
) -> Dump:  # fmt: skip
    """Return the file of one rank."""
    groups = [*{entry.group.id: entry.group for entry in entries if entry.group}.values()]
    return Dump(
        Path(f"rank-{rank:05}.job.{rank + 1}.flight"),
        Process(rank + 1, rank, size, host, boot, 0, EPOCH), State.ENDED, 0, False, Ending(),
        groups, list(entries), [], [], [], "", [],
    )  # fmt: skip


def lockstep(
    lateness: Sequence[Sequence[float]], *, step: float = 10.0, latency: float = 0.02,
    ahead: Callable[[int, int], float] = lambda call, rank: 0.0,
) -> list[list[Entry]]:  # fmt: skip
    """Return the rows of ranks that compute, and then call allreduce.

    Args:
        lateness: by call and rank, in milliseconds after the time of the call.
        step: milliseconds between calls.
        latency: milliseconds from the arrival of the last rank to the end of the call.
        ahead: milliseconds by which the clock of a rank is ahead during a call.
    """
    size = len(lateness[0])
    group = world(size)
    rows: list[list[Entry]] = [[] for _ in range(size)]
    for number, delays in enumerate(lateness):
        end = number * step + max(delays) + latency
        for rank, delay in enumerate(delays):
            shift = ahead(number, rank)
            start = number * step + delay + shift
            rows[rank].append(row(number + 1, start, end + shift, group=group))
    return rows


class Work(NamedTuple):
    """The activity of a rank before a call, in milliseconds.

    Attributes:
        coreless: at the end of the call, after the data has come: the rank has no core, and leaves
            the call later than the other ranks.
    """

    running: float = 2.0
    queued: float = 0.0
    asleep: float = 0.0
    stops: int = 0
    coreless: float = 0.0

    @property
    def length(self) -> float:
        return self.running + self.queued + self.asleep


def worked(
    works: Sequence[Sequence[Work]], *, hosts: Sequence[str] = (), probes: Sequence[int] = (),
    signature: str = "float32 (8), sum", collective: str = "allreduce", moving: float = 0.05,
    places: int = 1,
) -> list[Dump]:  # fmt: skip
    """Return the files of ranks that work, and then make one synchronising call, and so on.

    Args:
        works: by call and rank.
        hosts: of the ranks; one host by default.
        probes: by rank the nanoseconds that the arithmetic probe takes.
        moving: milliseconds from the arrival of the last rank to the end of the call.
        places: the lines from which the calls are made in turn.
    """
    size = len(works[0])
    begins = [0.0] * size
    group = world(size)
    rows: list[list[Entry]] = [[] for _ in range(size)]
    samples: list[list[Sample]] = [[] for _ in range(size)]
    sums = [[0.0, 0.0, 0] for _ in range(size)]
    for number, work in enumerate(works, 1):
        starts = [begin + rank.length for begin, rank in zip(begins, work, strict=True)]
        for rank, activity in enumerate(work):
            begin, start = begins[rank], starts[rank]
            end = max(starts) + moving + activity.coreless
            totals = sums[rank]
            probe = probes[rank] if probes and number % 10 == 1 else 0
            samples[rank].append(_sample(begin, totals, probe))
            totals[0] += activity.running
            totals[1] += activity.queued
            totals[2] += activity.stops
            samples[rank].append(_sample(start, totals, 0))
            totals[0] += end - activity.coreless - start  # the rank spins
            totals[1] += activity.coreless
            line = LINE._replace(line=LINE.line + number % places)
            rows[rank].append(
                row(number, start, end, group=group, signature=signature, collective=collective,
                    location=line)
            )  # fmt: skip
            begins[rank] = end
    names = hosts or ["host0"] * size
    return [
        dump(rank, rows[rank], size=size, host=names[rank])._replace(samples=samples[rank])
        for rank in range(size)
    ]


def _sample(at: float, totals: Sequence[float], probe: int) -> Sample:
    running, queued = (round(value * MILLISECOND) for value in totals[:2])
    return Sample(
        at=EPOCH + round(at * MILLISECOND), thread=1, running=running, queued=queued,
        continued=int(totals[2]), probe=probe,
    )  # fmt: skip
