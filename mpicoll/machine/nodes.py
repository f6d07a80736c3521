"""Which ranks share a node, as the library sees it or the user states it, and their cores."""

from __future__ import annotations

import os
import platform
from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mpicoll.errors import ArgumentError, brief
from mpicoll.text.numbers import whole

if TYPE_CHECKING:
    from mpicoll.backend import Nodes

MOST_RANKS = 1 << 20
RANKS_PER_NODE = "MPICOLL_RANKS_PER_NODE"
CORES = "MPICOLL_CORES"
"""How many cores the ranks of a node really have, where hosts share those of one machine."""


@cache
def host_identity() -> str:
    """Return a text that is equal in processes that share this machine's memory."""
    boot = ""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    return f"{os.uname().nodename} {boot}"


def stated_node(rank: int) -> int | None:
    """Return the node of a rank of the world where the user states how many ranks share one.

    Hosts that share one kernel, as containers and network namespaces do, look like one.
    """
    text = os.environ.get(RANKS_PER_NODE)
    if text is None:
        return None
    count = whole(text, MOST_RANKS)
    if not count:
        raise ArgumentError(
            f"{RANKS_PER_NODE} must be a number of ranks, at least 1, not {brief(text)}"
        )
    return rank // count


def place_on_node(rank: int, nodes: Nodes) -> int:
    """Return the place of a rank among those of its node.

    >>> place_on_node(2, ((0, 1), (2, 3)))
    0
    """
    return next(node for node in nodes if rank in node).index(rank)


def group_by_node(
    hosts: Sequence[Hashable], node_numbers: Sequence[int | None]
) -> tuple[Nodes, str]:
    """Return the ranks of each node, and why those of some node cannot share memory.

    Args:
        hosts: the host of each rank, as the library identifies it.
        node_numbers: the node of each rank that the user states.

    >>> group_by_node(["a", "a", "b", "b"], [None] * 4)
    (((0, 1), (2, 3)), '')
    >>> group_by_node(["a", "a", "a", "a"], [0, 0, 1, 1])
    (((0, 1), (2, 3)), '')
    >>> group_by_node(["a", "b"], [0, 0])
    (((0, 1),), 'the library reports several hosts for the ranks of one stated node')
    """
    members: dict[Hashable, list[int]] = {}
    for rank, (host, node) in enumerate(zip(hosts, node_numbers, strict=True)):
        members.setdefault(host if node is None else ("stated", node), []).append(rank)
    nodes = tuple(map(tuple, members.values()))
    is_split = any(len({hosts[rank] for rank in node}) > 1 for node in nodes)
    reason = "the library reports several hosts for the ranks of one stated node"
    return nodes, reason if is_split else ""


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
