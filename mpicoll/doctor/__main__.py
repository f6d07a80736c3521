"""What this machine can run, and why not the rest, on one page for a bug report.

``python -m mpicoll.doctor`` asks one process; ``mpirun -n 4 python -m mpicoll.doctor``
also says whether launcher and MPI fit together.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpicoll.hosts import __main__ as hosts
from mpicoll.machine.cores import container_quota
from mpicoll.machine.launchers import find_launch, is_first_process, singletons
from mpicoll.machine.network import interfaces
from mpicoll.machine.variables import relevant_variables
from mpicoll.selection import tables

Probe = Callable[[], str]


def probe(ask: Probe) -> str:
    """Return what a probe found, or why it could not: a missing part is an answer too."""
    try:
        return ask()
    except Exception as error:  # any failure of any library is what this page is for
        first = str(error).strip().split("\n", 1)[0]
        return f"no: {type(error).__name__}: {first}"


def _python() -> str:
    return f"{platform.python_version()} at {sys.executable} on {platform.platform()}"


def _cores() -> str:
    allowed = sorted(os.sched_getaffinity(0))
    limit = container_quota()
    cut = f", the container allows {limit:g}" if limit else ""
    return f"{os.cpu_count()} in the machine, this process may use {allowed}{cut}"


def _mpi() -> str:
    from mpi4py import MPI

    level = {
        MPI.THREAD_SINGLE: "single",
        MPI.THREAD_FUNNELED: "funneled",
        MPI.THREAD_SERIALIZED: "serialized",
        MPI.THREAD_MULTIPLE: "multiple",
    }[MPI.Query_thread()]
    library = MPI.Get_library_version().strip("\0 ").split("\n")[0].rstrip(", ")
    standard = ".".join(map(str, MPI.Get_version()))
    return f"{library} (MPI-{standard}, threads {level}), mpi4py {metadata.version('mpi4py')}"


def _launcher() -> str:
    path = shutil.which("mpirun", path=os.pathsep.join((str(_bin()), os.environ.get("PATH", ""))))
    if path is None:
        return "no: no mpirun beside this Python or on PATH; pip install mpicoll[mpich] brings one"
    told = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20)
    lines = [line.strip() for line in told.stdout.splitlines() if line.strip()]
    shown = next((line for line in lines if "Version:" in line or "Open MPI" in line), "")
    return f"{path} ({' '.join(shown.split())})"


def _bin() -> Path:
    return Path(sys.executable).parent


def _ranks() -> str:
    from mpi4py import MPI

    size = MPI.COMM_WORLD.size
    wrong = singletons(size, MPI.Get_library_version().split(",")[0].split("\n")[0])
    if wrong:
        return f"no: {wrong}"
    found = find_launch()
    return (
        f"{size}, started by {found.launcher}" if found else f"{size}, started without a launcher"
    )


def _gpu_aware() -> str:
    from mpicoll.mpi.staging import GpuAwareness

    found = GpuAwareness.detect()
    way = "yes" if found.aware else "no: GPU buffers go through pinned host memory"
    return f"{way} ({found.reason})"


def _gpu_ways(backend: str) -> Probe:
    """Ask a backend how the arrays of this job's GPUs travel, and why not otherwise."""

    def ask() -> str:
        import mpicoll
        import torchcoll

        with (mpicoll if backend == "mpi4py" else torchcoll).world() as group:
            ways = group.gpu_transports()
        best = next((name for name, why in ways.items() if not why), None)
        told = [f"{name}: {why or 'yes'}" for name, why in ways.items()]
        # Without a GPU there is one reason for all of them.
        told = told if len(set(ways.values())) > 1 else [f"no: {next(iter(ways.values()))}"]
        return "; ".join([*told, *([f"by default {best}"] if best else [])])

    return ask


def _cupy() -> str:
    import cupy

    return f"{cupy.__version__}, {cupy.cuda.runtime.getDeviceCount()} device(s)"


def _torch() -> str:
    import torch
    import torch.distributed as dist

    found = [name for name in ("gloo", "nccl", "mpi", "ucc") if dist.is_backend_available(name)]
    gpus = torch.cuda.device_count()
    return f"{torch.__version__}, backends {', '.join(found)}, {gpus} CUDA device(s)"


def _rendezvous() -> str:
    found = find_launch()
    if found is None:
        return "none needed: one process, or env://, tcp://host:port, file:///path as asked for"
    return f"{found.launcher}: rank {found.rank} of {found.size}"


def _interfaces() -> str:
    from torchcoll.network import interfaces

    return ", ".join(f"{name} {address or '-'}" for name, address in interfaces().items())


def _shared_memory() -> str:
    found = os.statvfs("/dev/shm")
    return f"{found.f_bavail * found.f_frsize / 2**30:.1f} GiB free in /dev/shm"


def _symmetric() -> str:
    """Say how the ranks of this job reach each other's memory, and how they wait."""
    import mpicoll

    with mpicoll.world() as group:
        shared = group.transport.shared
        if shared is None:
            return f"no: {group.transport.unshared}"
        waits = (
            "yield, as they outnumber the cores" if shared.wait_policy.oversubscribed else "spin"
        )
        return (
            f"{len(shared.intra_node)} ranks of this node map each other's memory; ranks that wait "
            f"{waits}, then sleep, and give up after {group.deadline:g} s"
        )


def _attach() -> str:
    """Say whether ranks may read each other's private memory."""
    import mpicoll

    with mpicoll.world() as group:
        shared = group.transport.shared
        if shared is None:
            return f"no: {group.transport.unshared}"
        return f"no: {shared.no_cma}" if shared.no_cma else "yes: process_vm_readv works"


def _table() -> str:
    path = tables.default_path()
    if not path.exists():
        return f"none at {path}: auto uses its built-in rule; mpicoll.tune measures one"
    entries = tables.read(path)["entries"]
    known = sorted({(each["backend"], *each["ranks_per_node"]) for each in entries})
    shown = ", ".join(f"{backend} on {'+'.join(map(str, n))} ranks" for backend, *n in known)
    return f"{path}: {shown}"


def _slurm() -> str:
    job = os.environ.get("SLURM_JOB_ID")
    path = shutil.which("sbatch")
    here = f"inside job {job}" if job else "not inside a job"
    return f"{here}, {path}" if path else f"{here}, no sbatch on PATH"


def _emulated_hosts() -> str:
    why = hosts.missing()
    return f"no: {why}" if why else "yes: python -m mpicoll.hosts"


PROBES: dict[str, Probe] = {
    "Python": _python,
    "cores": _cores,
    "launcher": _launcher,
    "torch": _torch,
    "CuPy": _cupy,
    "rendezvous": _rendezvous,
    "interfaces": _interfaces,
    "shared memory": _shared_memory,
    "Slurm": _slurm,
    "emulated hosts": _emulated_hosts,
}
# Last, because an MPI under another MPI's launcher may end the process: the rest is told by then.
MPI_PROBES: dict[str, Probe] = {
    "MPI": _mpi,
    "ranks": _ranks,
    "GPU-aware MPI": _gpu_aware,
    "symmetric memory": _symmetric,
    "attach": _attach,
    "GPUs, mpi4py": _gpu_ways("mpi4py"),
    "GPUs, torch": _gpu_ways("torch"),
    "decision table": _table,
}


def main() -> None:
    """Print the page on the first rank; the others only take part."""
    console = Console(width=None if sys.stdout.isatty() else 120, quiet=not is_first_process())

    def say(name: str, text: str) -> None:
        row = Table.grid(padding=(0, 2))
        row.add_column(style="bold", min_width=16, no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(name, Text(text))
        console.print(row)

    console.print("mpicoll doctor", style="bold")
    for name, ask in PROBES.items():
        say(name, probe(ask))
    for name, value in relevant_variables().items():
        say(name, value)
    if find_launch():
        say("asking MPI", "if this line is the last, the launcher and mpi4py's MPI do not match")
    for name, ask in MPI_PROBES.items():
        say(name, probe(ask))


if __name__ == "__main__":
    main()
