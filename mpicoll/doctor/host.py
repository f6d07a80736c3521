"""Facts of this host that explain a late rank: other busy processes, frequency, memory."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

_SECONDS = 1.0
"""How long processes are watched."""
_BUSY = 0.02
"""The share of a core from which on a process counts as busy: many may share a core."""
_PRESSURE = 5.0
"""Percent of time in which a process waits for memory, from which on memory is short."""
_CPU = Path("/sys/devices/system/cpu")


class Process(NamedTuple):
    """A process that uses the cores of a rank.

    Attributes:
        share: of one core's time.
    """

    pid: int
    name: str
    share: float


def busy_processes(rank: int) -> list[Process]:
    """Return the other processes that run on the cores of a process, the busiest first."""
    cores = os.sched_getaffinity(rank)
    first, begin = _times(cores), monotonic()
    sleep(_SECONDS)
    elapsed = monotonic() - begin
    processes = [
        Process(pid, name, (ticks - first[pid][1]) / os.sysconf("SC_CLK_TCK") / elapsed)
        for pid, (name, ticks) in _times(cores).items()
        if pid in first and pid not in (rank, os.getpid())
    ]
    busy = [process for process in processes if process.share >= _BUSY]
    return sorted(busy, key=lambda process: -process.share)


def _times(cores: set[int]) -> dict[int, tuple[str, int]]:
    """Return by process its name and the ticks that it has run, of those last seen on the cores."""
    times = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            name, _, text = path.read_text(errors="replace").partition("(")[2].rpartition(")")
            fields = text.split()
            if int(fields[36]) in cores:
                times[int(path.parent.name)] = name, int(fields[11]) + int(fields[12])
    return times


def frequency(rank: int) -> float | None:
    """Return the frequency of a process's cores, relative to the largest; None if unreadable."""
    ratios = []
    for core in os.sched_getaffinity(rank):
        with suppress(OSError, ValueError, ZeroDivisionError):
            folder = _CPU / f"cpu{core}" / "cpufreq"
            current, largest = (
                int((folder / name).read_text())
                for name in ("scaling_cur_freq", "cpuinfo_max_freq")
            )
            ratios.append(current / largest)
    return min(ratios, default=None)


def memory_pressure() -> str:
    """Return how short memory is on this host; empty if it is not, or if that is unreadable."""
    with suppress(OSError, ValueError, IndexError):
        some = Path("/proc/pressure/memory").read_text().split()[1]
        percent = float(some.partition("=")[2])
        if percent >= _PRESSURE:
            return f"processes wait for it {percent:.0f} % of the time"
    return ""
