"""Rendezvous of ranks that srun started, from the variables that Slurm sets."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from mpicoll.errors import LaunchError
from mpicoll.machine.network import LOOPBACK
from torchcoll.place import Place
from torchcoll.rendezvous.secret import derive, own_secret
from torchcoll.rendezvous.store import Rendezvous, distributed, tcp_store

_STEP = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID")


def open_over_slurm(place: Place, timeout: float) -> Rendezvous:
    """Open a store on the first host of the job, at a port that its secret and step give."""
    nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST")
    if not nodes:
        raise LaunchError("srun set no SLURM_JOB_NODELIST: give init_method tcp://host:port")
    is_one_host = os.environ.get("SLURM_STEP_NUM_NODES", os.environ.get("SLURM_NNODES")) == "1"
    step = "/".join(os.environ.get(variable, "") for variable in _STEP)
    secret = own_secret()
    port = 20000 + int.from_bytes(derive(secret, step)[:8]) % 12000
    store = tcp_store(place, LOOPBACK if is_one_host else first_host(nodes), port, timeout)
    return Rendezvous(distributed().PrefixStore(step, store), secret)


def first_host(nodes: str) -> str:
    """Return the first host of a Slurm node list.

    >>> first_host("node[003-007,012],gpu1"), first_host("a1,b[2-3]"), first_host("n[1,4]-ib")
    ('node003', 'a1', 'n1-ib')
    """
    if shutil.which("scontrol"):
        process = subprocess.run(
            ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=False
        )
        if process.returncode == 0 and process.stdout.strip():
            return process.stdout.split()[0]
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", nodes)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first.group() if first else nodes)
