"""The report of each process of a run: its host, its cores, and how busy the host was."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Sequence
from typing import NamedTuple

from mpicoll.backend import Nodes
from mpicoll.machine.nodes import (
    Cores,
    is_oversubscribed,
    own_cores,
    processor_name,
    usable_cores,
)

# Read at import, before the ranks of this run count.
_LOAD = round(os.getloadavg()[0], 2)


class Machine(NamedTuple):
    """The part that all processes of a host report alike; `cores` are those of the machine."""

    processor: str
    kernel: str
    cores: int


class Process(NamedTuple):
    """The report of one process; `load` is that of its host before the run."""

    host: str
    cores: Cores
    load: float
    machine: Machine


def own_process() -> Process:
    """Return the description of this process."""
    kernel = f"{platform.system()} {platform.release()}"
    machine = Machine(processor_name(), kernel, os.cpu_count() or 1)
    return Process(socket.gethostname(), own_cores(), _LOAD, machine)


def oversubscription(nodes: Nodes, processes: Sequence[Process]) -> list[str]:
    """Return one remark for each node with more ranks than cores."""
    remarks = []
    for node in nodes:
        cores = [processes[rank].cores for rank in node]
        if is_oversubscribed(cores):
            remarks.append(
                f"oversubscribed: {len(node)} ranks share {usable_cores(cores):g} cores on "
                f"{processes[node[0]].host}; ranks wait for a core, and the timings include that"
            )
    return remarks


def other_load(nodes: Nodes, processes: Sequence[Process]) -> list[str]:
    """Return one remark for each node on which something else runs."""
    remarks = []
    for node in nodes:
        first = processes[node[0]]
        # The load counts the processes of the machine, whatever part of it these ranks may use.
        if first.load > (cores := first.machine.cores):
            remarks.append(
                f"{first.host} was busy: its load before this run was {first.load:g} on "
                f"{cores} cores; other processes there slow these calls down"
            )
    return remarks
