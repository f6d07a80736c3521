"""Flight files of a job that never ran, in memory: each rank's calls at chosen times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mpicoll.flight.layout import Outcome, State
from mpicoll.flight.reader import Dump, Ending, Entry
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
    groups = list({entry.group.id: entry.group for entry in entries if entry.group}.values())
    fields = {
        "path": Path(f"rank-{rank:05}.job.{rank + 1}.flight"),
        "process": Process(rank + 1, rank, size, host, boot, 0, EPOCH), "state": State.ENDED,
        "ended": 0, "is_alive": False, "ending": Ending(), "groups": groups,
        "entries": list(entries), "errors": [], "stacks": "", "faults": [], "samples": [],
        "links": [],
    }  # fmt: skip
    return Dump(**{name: value for name, value in fields.items() if name in Dump._fields})


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
