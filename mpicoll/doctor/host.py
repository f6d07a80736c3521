"""Facts of this host that explain a late rank: other busy processes, frequency, memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import NamedTuple

import psutil

_SECONDS = 1.0
"""How long processes are watched."""
_BUSY = 0.02
"""The share of a core from which on a process counts as busy: many may share a core."""
_PRESSURE = 5.0
"""Percent of time in which a process waits for memory, from which on memory is short."""


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
    shares = _shares(
        lambda process: process.cpu_num() in cores and process.pid not in (rank, os.getpid())
    )
    busy = [process for process in shares if process.share >= _BUSY]
    return sorted(busy, key=lambda process: -process.share)


def children_share(parent: int) -> float:
    """Return the share of a core that the children of a process use together."""
    return sum(process.share for process in _shares(lambda process: process.ppid() == parent))


def _shares(is_meant: Callable[[psutil.Process], bool]) -> list[Process]:
    """Return the processes that are meant, with what they use of a core while they are watched."""
    processes = [*psutil.process_iter()]
    for process in processes:
        with suppress(psutil.Error):
            process.cpu_percent()  # the next answer counts from here
    sleep(_SECONDS)
    shares = []
    for process in processes:
        with suppress(psutil.Error):
            if is_meant(process):
                share = process.cpu_percent() / 100
                shares.append(Process(process.pid, process.name(), share))
    return shares


def frequency(rank: int) -> float | None:
    """Return the frequency of a process's cores, relative to the largest; None if unreadable."""
    with suppress(OSError, NotImplementedError, IndexError):
        cores = psutil.cpu_freq(percpu=True)
        frequencies = [cores[core] for core in os.sched_getaffinity(rank)]
        return min((core.current / core.max for core in frequencies if core.max), default=None)
    return None


def memory_pressure() -> str:
    """Return how short memory is on this host; empty if it is not, or if that is unreadable."""
    with suppress(OSError, ValueError, IndexError):
        some = Path("/proc/pressure/memory").read_text().split()[1]
        percent = float(some.partition("=")[2])
        if percent >= _PRESSURE:
            return f"processes wait for it {percent:.0f} % of the time"
    return ""
