"""The link between two ranks on the host: one core, one socket, two sockets, or a network.

Nothing is guessed: a rank that may run on several sockets has no place of its own, and its pairs
are those of one node. `gpu_links` does the same for GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from mpicoll.backend import Nodes

SELF, NETWORK = "own memory", "network"
_SYSTEM = Path("/sys/devices/system/cpu")


class Core(NamedTuple):
    """A physical core: its socket, and its number there."""

    socket: int
    number: int


class LinkClass(NamedTuple):
    """The class of the link between two ranks; `detail` is known of one pair only."""

    name: str
    detail: str = ""


LinkClasses = dict[tuple[int, int], LinkClass]
"""Those of pairs of ranks, the lower rank first."""


def physical_cores(cpus: Iterable[int] | None = None, system: Path = _SYSTEM) -> list[Core]:
    """Return the physical cores that this process may use; none where the system hides them."""
    try:
        cpus = os.sched_getaffinity(0) if cpus is None else cpus
        return sorted({_core(system / f"cpu{cpu}" / "topology") for cpu in cpus})
    except (OSError, ValueError):
        return []


def _core(folder: Path) -> Core:
    # psutil counts physical cores, but does not say which they are.
    socket, number = (
        int((folder / name).read_text()) for name in ("physical_package_id", "core_id")
    )
    # Virtual machines and some Arm systems number an unknown socket -1.
    if socket < 0:
        raise ValueError("the socket is not known")
    return Core(socket, number)


def host_links(nodes: Nodes, cores: Sequence[Sequence[Core]]) -> LinkClasses:
    """Return the link between each pair of ranks, from the cores that each may use."""
    node_of = {rank: index for index, node in enumerate(nodes) for rank in node}
    return {
        (low, high): host_link(cores[low], cores[high])
        if node_of[low] == node_of[high]
        else LinkClass(NETWORK)
        for low in range(len(cores))
        for high in range(low + 1, len(cores))
    }


def host_link(cores: Sequence[Core], peer_cores: Sequence[Core]) -> LinkClass:
    """Return the link between two ranks of one node.

    >>> host_link([Core(0, 1)], [Core(0, 2)]).name, host_link([Core(0, 1)], [Core(1, 1)]).name
    ('same socket', 'across sockets')
    >>> host_link([Core(0, 1)], [Core(0, 1)]).name, host_link([], [Core(0, 1)]).name
    ('same core', 'same node')
    """
    sockets = {core.socket for core in cores}, {core.socket for core in peer_cores}
    if len(sockets[0]) != 1 or len(sockets[1]) != 1:
        return LinkClass("same node")
    if sockets[0] != sockets[1]:
        return LinkClass("across sockets")
    are_bound = len(cores) == len(peer_cores) == 1
    return LinkClass("same core" if are_bound and cores[0] == peer_cores[0] else "same socket")
