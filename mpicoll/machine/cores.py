"""What one process knows of its machine, and what the processes of a node may use together."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from mpicoll.errors import ArgumentError
from mpicoll.interfaces import Nodes

RANKS_PER_NODE = "MPICOLL_RANKS_PER_NODE"
CORES = "MPICOLL_CORES"
"""How many cores the ranks of a node really have, where hosts share those of one machine."""


def stated_node(rank: int) -> int | None:
    """Return the node of a rank of the world where the user states how many share one.

    Hosts that share one kernel, as containers and network namespaces do, look like one.
    """
    text = os.environ.get(RANKS_PER_NODE)
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise ArgumentError(f"{RANKS_PER_NODE} is a number of ranks, at least 1, not {text!r}")
    return rank // int(text)


def placed(hosts: Sequence[Hashable], stated: Sequence[int | None]) -> tuple[Nodes, str]:
    """Return the ranks of each node, and why those of some node cannot share memory.

    Args:
        hosts: what the library takes for each rank's host.
        stated: the node that the user states for it.

    >>> placed(["a", "a", "b", "b"], [None] * 4)
    (((0, 1), (2, 3)), '')
    >>> placed(["a", "a", "a", "a"], [0, 0, 1, 1])
    (((0, 1), (2, 3)), '')
    >>> placed(["a", "b"], [0, 0])
    (((0, 1),), 'the library takes ranks of one stated node for those of several hosts')
    """
    members: dict[Hashable, list[int]] = {}
    for rank, (host, node) in enumerate(zip(hosts, stated, strict=True)):
        members.setdefault(host if node is None else ("stated", node), []).append(rank)
    found = tuple(map(tuple, members.values()))
    apart = any(len({hosts[rank] for rank in node}) > 1 for node in found)
    return found, "the library takes ranks of one stated node for those of several hosts" * apart


def quota(path: Path = Path("/sys/fs/cgroup/cpu.max")) -> float | None:
    """Return the cores that the container allows, None without a limit."""
    try:
        most, period = path.read_text().split()[:2]
        return None if most == "max" else int(most) / int(period)
    except (OSError, ValueError):
        return None


def processor() -> str:
    """Return the processor's name."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line for line in text.splitlines() if line.startswith(("model name", "CPU part"))]
    return names[0].partition(":")[2].strip() if names else platform.machine()


def stated_cores() -> float | None:
    """Return the cores that the user says the ranks of this node have together."""
    text = os.environ.get(CORES)
    try:
        if text is None or float(text) > 0:
            return None if text is None else float(text)
    except ValueError:
        pass
    raise ArgumentError(f"{CORES} is a number of cores, such as 0.5, not {text!r}")


def here() -> dict[str, Any]:
    """Return the host of this process and the cores that it may use."""
    return {
        "host": socket.gethostname(),
        "cores": sorted(os.sched_getaffinity(0)),
        "quota": min(filter(None, (quota(), stated_cores())), default=None),
    }


def usable(processes: Sequence[dict[str, Any]]) -> float:
    """Return the cores that the processes of one node may use together, each told by `here`."""
    cores = float(len({core for each in processes for core in each["cores"]}))
    quotas = [each["quota"] for each in processes if each["quota"]]
    return min(cores, max(quotas)) if quotas else cores


def oversubscribed(processes: Sequence[dict[str, Any]]) -> bool:
    """Whether the processes of one node, each told by `here`, outnumber the cores they may use."""
    return len(processes) > usable(processes)
