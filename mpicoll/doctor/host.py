"""Facts of this host that explain a late rank: other busy processes, frequency, memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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
    shares = _shares(lambda stat: stat.core in cores and stat.pid not in (rank, os.getpid()))
    busy = [process for process in shares if process.share >= _BUSY]
    return sorted(busy, key=lambda process: -process.share)


def children_share(parent: int) -> float:
    """Return the share of a core that the children of a process use together."""
    return sum(process.share for process in _shares(lambda stat: stat.parent == parent))


class _Stat(NamedTuple):
    """A process in ``/proc``: its name, its parent, the core it was last on, and its ticks."""

    pid: int
    name: str
    parent: int
    core: int
    ticks: int


def _shares(is_meant: Callable[[_Stat], bool]) -> list[Process]:
    """Return the processes that are meant, with what they use of a core while they are watched."""
    first, begin = {stat.pid: stat for stat in _stats()}, monotonic()
    sleep(_SECONDS)
    ticks_of_core = os.sysconf("SC_CLK_TCK") * (monotonic() - begin)
    return [
        Process(stat.pid, stat.name, (stat.ticks - first[stat.pid].ticks) / ticks_of_core)
        for stat in _stats() if stat.pid in first and is_meant(stat)
    ]  # fmt: skip


def _stats() -> Iterator[_Stat]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            name, _, text = path.read_text(errors="replace").partition("(")[2].rpartition(")")
            fields = text.split()
            ticks = int(fields[11]) + int(fields[12])
            yield _Stat(int(path.parent.name), name, int(fields[1]), int(fields[36]), ticks)


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
