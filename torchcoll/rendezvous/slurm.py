"""Rendezvous of ranks that srun started, from the variables that Slurm sets."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from mpicoll.errors import LaunchError
from mpicoll.machine.network import LOOPBACK
from torchcoll.place import Place
from torchcoll.rendezvous.store import Rendezvous, nothing, tcp_store


def open_over_slurm(place: Place, timeout: float) -> Rendezvous:
    """Open a store on the first host of the job, at a port that follows from job and step."""
    nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST")
    if not nodes:
        raise LaunchError("srun set no SLURM_JOB_NODELIST: give init_method tcp://host:port")
    alone = os.environ.get("SLURM_STEP_NUM_NODES", os.environ.get("SLURM_NNODES")) == "1"
    job, step = (int(os.environ.get(f"SLURM_{each}_ID", "0")) for each in ("JOB", "STEP"))
    port = 20000 + (job * 31 + step) % 12000
    host = LOOPBACK if alone else first_host(nodes)
    return tcp_store(place, host, port, timeout), nothing


def first_host(nodes: str) -> str:
    """Return the first host of a Slurm node list.

    >>> first_host("node[003-007,012],gpu1"), first_host("a1,b[2-3]"), first_host("n[1,4]-ib")
    ('node003', 'a1', 'n1-ib')
    """
    if shutil.which("scontrol"):
        found = subprocess.run(
            ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=False
        )
        if found.returncode == 0 and found.stdout.strip():
            return found.stdout.split()[0]
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", nodes)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first.group() if first else nodes)
