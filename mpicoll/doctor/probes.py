"""Probes that do not start MPI: Python, cores, packages, interfaces, Slurm."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

from mpicoll.doctor import leftovers
from mpicoll.engine.extension import executor
from mpicoll.hosts import emulation
from mpicoll.machine.launchers import find_launch, ranks_of_host
from mpicoll.machine.memory import SHM, SHM_OF_RANK, SHM_TO_START, available_memory, enlarging
from mpicoll.machine.network import interfaces
from mpicoll.machine.nodes import container_quota
from mpicoll.text.sizes import rounded_size_text, size_text

_LARGE_COPY = 512 * 1024
"""glibc as mended uses rep movsb on these processors from about the size of a cache."""
_REMEDY = "GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1000000000 avoids it"

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
    process = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20)
    lines = [line.strip() for line in process.stdout.splitlines() if line.strip()]
    version = next((line for line in lines if "Version:" in line or "Open MPI" in line), "")
    return f"{path} ({' '.join(version.split())})"


def _torch() -> str:
    import torch
    import torch.distributed as dist

    backends = [name for name in ("gloo", "nccl", "mpi", "ucc") if dist.is_backend_available(name)]
    gpus = torch.cuda.device_count()
    return f"{torch.__version__}, backends {', '.join(backends)}, {gpus} CUDA device(s)"


def _cupy() -> str:
    import cupy

    return f"{cupy.__version__}, {cupy.cuda.runtime.getDeviceCount()} device(s)"


def _executor() -> str:
    return f"{executor()}, which runs schedules over host memory{_gil()}"


def _gil() -> str:
    """Return what a free-threaded Python does for the executor; empty where all have the GIL."""
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return ""
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        return "; it needs the GIL, which this free-threaded Python has turned on"
    return "; it needs the GIL: leave out PYTHON_GIL=0 and -X gil=0"


def _memcpy() -> str:
    """Return how the C library copies, on the processors where that may be slow."""
    return copies(Path("/proc/cpuinfo").read_text(), _tunables(), platform.libc_ver()[1])


def _tunables() -> str:
    """Return the C library's list of tunables, environment included; empty before 2.33."""
    linker = next(Path("/lib64").glob("ld-linux-x86-64.so.2"), None)
    if linker is None:
        return ""
    command = [str(linker), "--list-tunables"]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout


def copies(processors: str, tunables: str, version: str) -> str:
    """Return whether memcpy, and so NumPy's, torch's and MPI's copies, meets glibc's bug 30994.

    Args:
        processors: the text of ``/proc/cpuinfo``.
        tunables: what ``ld.so --list-tunables`` prints.
        version: of glibc.
    """
    name = next(re.finditer(r"model name\s*: (.*)", processors), None)
    place = f"glibc {version} on {name[1] if name else platform.machine()}"
    has_rep_movsb = re.search(r"^flags\s*:.*\b(erms|fsrm)\b", processors, re.MULTILINE)
    if "AuthenticAMD" not in processors or not has_rep_movsb:
        return f"{place}: not exposed to glibc's bug 30994"
    match = re.search(r"x86_rep_movsb_threshold: (\w+)", tunables)
    if match and int(match[1], 0) >= _LARGE_COPY:
        return f"{place}: rep movsb from {int(match[1], 0):,} B, out of reach of glibc's bug 30994"
    begin = f"from {int(match[1], 0):,} B" if match else "perhaps"
    return (
        f"no: {place} copies by rep movsb {begin}, which takes up to eight times as long where "
        f"arrays lie unluckily (glibc bug 30994): {_REMEDY}. The compiled executor's copies are "
        "not concerned"
    )


def _rendezvous() -> str:
    launch = find_launch()
    if launch is None:
        return "none needed: one process, or env://, tcp://host:port, file:///path as asked for"
    return f"{launch.launcher}: rank {launch.rank} of {launch.size}"


def _interfaces() -> str:
    return ", ".join(f"{name} {address or '-'}" for name, address in interfaces().items())


def _shared_memory() -> str:
    if not os.access(SHM, os.W_OK | os.X_OK):
        return f"no: you may not write in {SHM}, and MPICH ends as it starts: chmod 1777 {SHM}"
    disk, ranks = shutil.disk_usage(SHM), ranks_of_host() or os.cpu_count() or 1
    sizes = map(rounded_size_text, (disk.total, disk.free, available_memory()))
    text = "{} in {shm}, {} free; {} of memory left".format(*sizes, shm=SHM)
    if disk.free >= ranks * SHM_OF_RANK:
        return text
    return (
        f"no: {text}. MPICH takes up to {size_text(SHM_OF_RANK)} there for each of {ranks} ranks, "
        f"and ends by a bus error where there is less than {rounded_size_text(SHM_TO_START)}: "
        f"{enlarging(ranks * SHM_OF_RANK)}"
    )


def _leftovers() -> str:
    items = leftovers.find()
    if not items:
        return f"no file of an ended run in {SHM}"
    return f"{leftovers.summary(items)}: python -m mpicoll.doctor --clean removes your own"


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
    "executor": _executor,
    "memcpy": _memcpy,
    "rendezvous": _rendezvous,
    "interfaces": _interfaces,
    "shared memory": _shared_memory,
    "left by runs": _leftovers,
    "Slurm": _slurm,
    "emulated hosts": _emulated_hosts,
}
