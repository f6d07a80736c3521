"""What a run says about itself, so that its records can be believed and reproduced.

`describe` is what every record carries; `details` is the longer rest, which stands once in
the line of kind ``run`` before them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

from mpicoll.bench.record import Record
from mpicoll.collectives import Collectives
from mpicoll.machine.processes import Process
from mpicoll.machine.variables import relevant_variables
from mpicoll.machine.versions import versions
from mpicoll.measurement.measure import Settings
from mpicoll.measurement.ping_pong import PairSettings

_LIMIT = 1.0
"""Seconds that another program may take to answer; two are asked for git's state."""


def describe(
    seed: int,
    worlds: Mapping[str, Collectives],
    processes: Sequence[Process],
    oversubscribed: Sequence[str],
) -> Record:
    """Return what all records of a run share, the same on every rank; collective."""
    name = next(iter(worlds.values())).exchange(str(uuid4()))[0]
    return {
        "id": name,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv[1:],
        "seed": seed,
        "versions": versions(),
        "libraries": {name: world.library for name, world in worlds.items()},
        "transports": {name: world.transports for name, world in worlds.items()},
        "hosts": [each.host for each in processes],
        "cores": [each.cores.allowed for each in processes],
        "quota": processes[0].cores.quota,
        "load": processes[0].load,
        "oversubscribed": bool(oversubscribed),
    }


def details(
    processes: Sequence[Process],
    settings: Settings | PairSettings,
    sync_error: int | None = None,
) -> Record:
    """Return what the line of the run adds; of what ranks may differ in, rank 0 reports.

    Args:
        processes: what each rank reports by `own_process`.
        sync_error: the bound on the error of the ranks' clocks, ns, where these were compared.
    """
    return {
        "argv": sys.orig_argv,
        "directory": os.getcwd(),
        "git": git_state(),
        "settings": asdict(settings),
        "stack": stack(),
        "machines": list(_machines(processes)),
        "binding": [_binding(rank, each) for rank, each in enumerate(processes)],
        "clock": {"sync_error_us": None if sync_error is None else sync_error / 1000},
        "environment": relevant_variables(),
    }


def _machines(processes: Iterable[Process]) -> Iterable[Record]:
    """Yield every host once, with what differs between hosts."""
    seen: dict[str, Record] = {}
    for each in processes:
        machine = each.machine._asdict()
        host = seen.setdefault(each.host, {"host": each.host, "ranks": 0, **machine})
        host["ranks"] += 1
    return seen.values()


def _binding(rank: int, process: Process) -> Record:
    cores = process.cores.allowed
    return {
        "rank": rank,
        "host": process.host,
        "cores": compact(cores),
        "bound": len(cores) < process.machine.cores,
    }


def compact(cores: Sequence[int]) -> str:
    """Return ascending numbers as ranges.

    >>> compact([0, 1, 2, 5, 7, 8]), compact([3]), compact([])
    ('0-2,5,7-8', '3', '')
    """
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][-1] + 1:
            runs[-1][1:] = [core]
        else:
            runs.append([core])
    return ",".join("-".join(map(str, run)) for run in runs)


# -- software -----------------------------------------------------------------------------


def stack() -> Record:
    """Return the libraries below the packages, as far as this process has loaded them."""
    return {
        "mpi": _mpi(),
        "nccl": _nccl(),
        "cuda_runtime": _cuda_runtime(),
        "cuda_driver": cuda_driver(),
    }


def _mpi() -> Record | None:
    """Return what MPI says of itself; without starting it."""
    module: Any = sys.modules.get("mpi4py.MPI")
    if module is None or not module.Is_initialized():
        return None
    text = module.Get_library_version().strip("\0 \n")
    lines = [" ".join(line.split()).rstrip(", ") for line in text.splitlines()]
    device = next((line.partition(": ")[2] for line in lines if line.startswith("MPICH Dev")), None)
    return {
        "library": lines[0],
        "standard": ".".join(map(str, module.Get_version())),
        "thread_level": module.Query_thread(),
        "device": device,
        "provider": provider(lines[0], device),
    }


def provider(
    library: str, device: str | None, variables: Mapping[str, str] = os.environ
) -> str | None:
    """Return what carries messages between nodes, as far as it can be told.

    >>> provider("MPICH Version: 5.0.2", "ch4:ucx ofi", {})
    'ucx, the first of ch4:ucx ofi'
    >>> provider("MPICH Version: 5.0.2", "ch4:ofi", {"FI_PROVIDER": "tcp"})
    'ofi, FI_PROVIDER=tcp'
    >>> provider("Open MPI v5.0.11", None, {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,tcp"})
    'pml=ob1 btl=self,tcp'
    """
    if library.startswith("Open MPI"):
        names = {each: variables.get(f"OMPI_MCA_{each}") for each in ("pml", "mtl", "btl", "osc")}
        return " ".join(f"{name}={value}" for name, value in names.items() if value) or None
    if device is None or ":" not in device:
        return None
    built = device.partition(":")[2].split()
    asked = variables.get("MPIR_CVAR_CH4_NETMOD")
    first = built[0] if len(built) == 1 else f"{built[0]}, the first of {device}"
    told = variables.get("FI_PROVIDER")
    return (asked or first) + (f", FI_PROVIDER={told}" if told else "")


def _nccl() -> str | None:
    torch: Any = sys.modules.get("torch")
    with suppress(Exception):  # a build without NCCL has many ways to say so
        return ".".join(map(str, torch.cuda.nccl.version()))
    return None


def _cuda_runtime() -> str | None:
    torch: Any = sys.modules.get("torch")
    return getattr(getattr(torch, "version", None), "cuda", None)


def cuda_driver(path: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Return the version of NVIDIA's driver, None without one."""
    with suppress(OSError):
        found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", path.read_text())
        return found[1] if found else None
    if shutil.which("nvidia-smi") is None:
        return None
    return _told("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader,nounits")


# -- source -------------------------------------------------------------------------------


def git_state(package: Path = Path(__file__).parents[1]) -> Record | None:
    """Return the commit of the checkout that this code runs from, None where it is in none."""
    git = ("git", "--no-optional-locks", "-C", str(package))
    # A package installed below somebody's checkout is no part of it.
    if _told(*git, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    found = _told(*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    if not found:
        return None
    commit, _, dirty = found.partition("-")
    return {"commit": commit, "dirty": bool(dirty)}


def _told(*command: str) -> str | None:
    """Return the first line that a program prints, None where it fails or takes long."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.split("\n", 1)[0].strip() if done.returncode == 0 else None
