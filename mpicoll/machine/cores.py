"""The cores that a process may use, and those that the processes of a node have together."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import NamedTuple

from mpicoll.errors import ArgumentError, brief

CORES = "MPICOLL_CORES"
"""How many cores the ranks of a node really have, where hosts share those of one machine."""


class Cores(NamedTuple):
    """The cores of one process.

    Attributes:
        allowed: the cores to which the process is bound, ascending.
        quota: the cores whose time it may use, None without a limit.
    """

    allowed: list[int]
    quota: float | None


def own_cores() -> Cores:
    """Return the cores of this process."""
    limits = filter(None, (container_quota(), stated_cores()))
    try:
        allowed = sorted(os.sched_getaffinity(0))
    except OSError:  # a sandbox denies it
        allowed = list(range(os.cpu_count() or 1))
    return Cores(allowed, min(limits, default=None))


# psutil knows neither the quota of a container nor the name of the processor.
def container_quota(path: Path = Path("/sys/fs/cgroup/cpu.max")) -> float | None:
    """Return the cores whose time the container may use, None without a limit."""
    try:
        limit, period = path.read_text().split()[:2]
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        return None


def processor_name() -> str:
    """Return the name of the processor."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line for line in text.splitlines() if line.startswith(("model name", "CPU part"))]
    return names[0].partition(":")[2].strip() if names else platform.machine()


def stated_cores() -> float | None:
    """Return the cores that the user states for all ranks of this node together."""
    text = os.environ.get(CORES)
    if text is None:
        return None
    with suppress(ValueError):
        if 0 < (count := float(text)) < inf:
            return count
    raise ArgumentError(f"{CORES} must be a number of cores, such as 0.5, not {brief(text)}")


def usable_cores(processes: Sequence[Cores]) -> float:
    """Return how many cores the processes of one node may use together.

    >>> usable_cores([Cores([0, 1], None), Cores([1, 2], None)])
    3.0
    >>> usable_cores([Cores([0, 1], 1.5)])
    1.5
    """
    cores = float(len({core for process in processes for core in process.allowed}))
    quotas = [process.quota for process in processes if process.quota]
    return min(cores, max(quotas)) if quotas else cores


def is_oversubscribed(processes: Sequence[Cores]) -> bool:
    """Whether the processes of one node outnumber the cores that they may use."""
    return len(processes) > usable_cores(processes)
