"""Probes that start MPI and torch: how the ranks of this job can reach each other."""

from __future__ import annotations

import os
from collections import Counter
from importlib import import_module, metadata

from mpicoll.collectives import Collectives
from mpicoll.doctor.probes import Probe
from mpicoll.errors import Unavailable
from mpicoll.gpu.driver import Driver
from mpicoll.gpu.nccl import version, why_not_shared
from mpicoll.machine.launchers import find_launch
from mpicoll.machine.launches import singletons
from mpicoll.machine.variables import thread_level
from mpicoll.selection import tables


def _mpi() -> str:
    from mpi4py import MPI

    library = MPI.Get_library_version().strip("\0 ").split("\n")[0].rstrip(", ")
    standard = ".".join(map(str, MPI.Get_version()))
    return (
        f"{library} (MPI-{standard}, threads {thread_level()}), mpi4py {metadata.version('mpi4py')}"
    )


def _ranks() -> str:
    from mpi4py import MPI

    size = MPI.COMM_WORLD.size
    complaint = singletons(size, MPI.Get_library_version().split(",")[0].split("\n")[0])
    if complaint:
        return f"no: {complaint}"
    launch = find_launch()
    return f"{size}, started {f'by {launch.launcher}' if launch else 'without a launcher'}"


def _gpu_aware() -> str:
    from mpicoll.mpi.gpu_awareness import GpuAwareness

    awareness = GpuAwareness.detect()
    answer = "yes" if awareness.aware else "no: GPU buffers go through pinned host memory"
    return f"{answer} ({awareness.reason})"


def _symmetric() -> str:
    """Return how the ranks of this job reach each other's memory, and how they wait."""
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


def _cma() -> str:
    """Return whether ranks may read each other's private memory."""
    import mpicoll

    with mpicoll.world() as group:
        shared = group.transport.shared
        if shared is None:
            return f"no: {group.transport.unshared}"
        return f"no: {shared.no_cma}" if shared.no_cma else "yes: process_vm_readv works"


def _gpu_transports(package: str) -> Probe:
    """Return a probe of how arrays on this job's GPUs travel, by either package."""

    def probe() -> str:
        with import_module(package).world() as group:
            transports: dict[str, str] = group.gpu_transports()
            shared = "" if all(transports.values()) else _sharing(group)
        # Without a GPU there is one reason for all of them.
        if len(set(transports.values())) == 1 and all(transports.values()):
            return f"no: {next(iter(transports.values()))}"
        answers = [f"{name}: {why or 'yes'}" for name, why in transports.items()]
        best = next((name for name, why in transports.items() if not why), None)
        remarks = [f"by default {best}"] if best else []
        return "; ".join([*answers, *remarks, *([shared] if shared else [])])

    return probe


def _sharing(group: Collectives) -> str:
    """Return the cost of sharing a GPU; empty where no ranks do, or where nothing tells."""
    try:
        driver = Driver(group.transport.arrays.gpu(group.gpu()))
        identity = os.uname().nodename + driver.identity, driver.uses_mps
    except Unavailable:
        identity = "", True
    identities = group.exchange(identity, tuple[str, bool])
    largest = max(Counter(gpu for gpu, _ in identities if gpu).values(), default=0)
    if largest < 2:
        return ""
    why = why_not_shared() if version() else ""
    tail = f"; {why}" if why else ""
    if all(mps for _, mps in identities):
        return f"{largest} ranks share a GPU, by MPS{tail}"
    return (
        f"{largest} ranks share a GPU in time slices, which makes small messages slow: start "
        f"nvidia-cuda-mps-control -d before the job{tail}"
    )


def _table() -> str:
    path = tables.default_path()
    if not path.exists():
        return f"none at {path}: auto reads the shipped table; mpicoll.tune measures one"
    entries = tables.read(path)["entries"]
    layouts = sorted({(entry["backend"], *entry["ranks_per_node"]) for entry in entries})
    shown = ", ".join(f"{backend} on {'+'.join(map(str, n))} ranks" for backend, *n in layouts)
    return f"{path}: {shown}"


MPI_PROBES: dict[str, Probe] = {
    "MPI": _mpi,
    "ranks": _ranks,
    "GPU-aware MPI": _gpu_aware,
    "symmetric memory": _symmetric,
    "CMA": _cma,
    "GPUs, mpi4py": _gpu_transports("mpicoll"),
    "GPUs, torch": _gpu_transports("torchcoll"),
    "decision table": _table,
}
