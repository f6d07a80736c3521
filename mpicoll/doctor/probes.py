"""Probes that do not start MPI: Python, cores, packages, interfaces, Slurm."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from mpicoll.hosts import emulation
from mpicoll.machine.cores import container_quota
from mpicoll.machine.launchers import find_launch
from mpicoll.machine.network import interfaces

Probe = Callable[[], str]
"""A question to this machine; its answer is a line, which begins with "no:" if all is not well."""


def ask(probe: Probe) -> str:
    """Return the answer of a probe, or why there is none: a missing part is an answer too."""
    try:
        return probe()
    except Exception as error:  # the failures of all libraries are what this command reports
        first = str(error).strip().split("\n", 1)[0]
        return f"no: {type(error).__name__}: {first}"


def _python() -> str:
    return f"{platform.python_version()} at {sys.executable} on {platform.platform()}"


def _cores() -> str:
    allowed = sorted(os.sched_getaffinity(0))
    limit = container_quota()
    cut = f", the container allows {limit:g}" if limit else ""
    return f"{os.cpu_count()} in the machine, this process may use {allowed}{cut}"


def _mpirun() -> str:
    folders = (str(Path(sys.executable).parent), os.environ.get("PATH", ""))
    path = shutil.which("mpirun", path=os.pathsep.join(folders))
    if path is None:
        return "no: no mpirun beside this Python or on PATH; pip install mpicoll[mpich] brings one"
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20)
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    version = next((line for line in lines if "Version:" in line or "Open MPI" in line), "")
    return f"{path} ({' '.join(version.split())})"


def _torch() -> str:
    import torch
    import torch.distributed as dist

    found = [name for name in ("gloo", "nccl", "mpi", "ucc") if dist.is_backend_available(name)]
    gpus = torch.cuda.device_count()
    return f"{torch.__version__}, backends {', '.join(found)}, {gpus} CUDA device(s)"


def _cupy() -> str:
    import cupy

    return f"{cupy.__version__}, {cupy.cuda.runtime.getDeviceCount()} device(s)"


def _rendezvous() -> str:
    launch = find_launch()
    if launch is None:
        return "none needed: one process, or env://, tcp://host:port, file:///path as asked for"
    return f"{launch.launcher}: rank {launch.rank} of {launch.size}"


def _interfaces() -> str:
    return ", ".join(f"{name} {address or '-'}" for name, address in interfaces().items())


def _shared_memory() -> str:
    return f"{shutil.disk_usage('/dev/shm').free / 2**30:.1f} GiB free in /dev/shm"


def _slurm() -> str:
    job = os.environ.get("SLURM_JOB_ID")
    path = shutil.which("sbatch")
    place = f"inside job {job}" if job else "not inside a job"
    return f"{place}, {path}" if path else f"{place}, no sbatch on PATH"


def _emulated_hosts() -> str:
    why = emulation.missing()
    return f"no: {why}" if why else "yes: python -m mpicoll.hosts"


PROBES: dict[str, Probe] = {
    "Python": _python,
    "cores": _cores,
    "launcher": _mpirun,
    "torch": _torch,
    "CuPy": _cupy,
    "rendezvous": _rendezvous,
    "interfaces": _interfaces,
    "shared memory": _shared_memory,
    "Slurm": _slurm,
    "emulated hosts": _emulated_hosts,
}
