"""Where a run takes place: versions, hosts, cores, and a launcher that does not match."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

from mpicoll.interfaces import Nodes
from mpicoll.machine import cores as machine

_LAUNCHERS = (
    ("Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("an MPICH-like mpirun (Hydra)", "PMI_SIZE", "PMI_RANK"),
    ("torchrun", "WORLD_SIZE", "RANK"),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)
# Before this run's own ranks begin to count.
_LOAD = round(os.getloadavg()[0], 2)
_PACKAGES = (
    "mpicoll", "numpy", "mpi4py", "torch", "cupy", "cupy-cuda12x", "cupy-cuda13x",
)  # fmt: skip


def launched(variables: Mapping[str, str] = os.environ) -> tuple[str, int, int] | None:
    """Return which launcher started this process, how many, and which one this is."""
    for name, size, rank in _LAUNCHERS:
        try:
            return name, int(variables[size]), int(variables.get(rank, "0"))
        except (KeyError, ValueError):
            continue
    return None


def is_first(variables: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is_root for all, as far as the launcher tells."""
    found = launched(variables)
    return found is None or found[2] == 0


def mismatch(size: int, library: str, variables: Mapping[str, str] = os.environ) -> str | None:
    """Say how to mend a job that fell apart into single ranks, None where it did not."""
    found = launched(variables)
    if found is None or size > 1 or found[1] <= 1:
        return None
    name, started, _ = found
    own = Path(sys.executable).parent / "mpirun"
    right = str(own) if own.exists() else "the mpirun of that library"
    if name == "torchrun":
        advice = (
            f"start it with {right} -n {started}, or run "
            f"torchrun --nproc-per-node {started} -m torchcoll.bench"
        )
    else:
        advice = (
            f"start it with {right} -n {started} {sys.executable} -m mpicoll.bench, or install an "
            "mpi4py built for this launcher's MPI"
        )
    return (
        f"{name} started {started} processes, but each of them is alone: {library} does not "
        f"understand that launcher. These would be {started} independent runs of 1 rank: {advice}."
    )


def suspicion(vendor: str, variables: Mapping[str, str] = os.environ) -> str | None:
    """Say that MPI may fail under another MPI's launcher; to be asked before it starts."""
    found = launched(variables)
    if found is None or found[1] <= 1 or "mpirun" not in found[0]:
        return None
    if ("Open MPI" in found[0]) == (vendor == "Open MPI"):
        return None
    own = Path(sys.executable).parent / "mpirun"
    right = str(own) if own.exists() else f"the mpirun of {vendor}"
    return (
        f"{found[0]} started this, but mpi4py runs on {vendor}, which may not understand it; "
        f"should MPI fail to start, use {right} -n {found[1]}"
    )


def is_terminal(stream: TextIO) -> bool:
    """Whether a person's terminal is at the other end; a launcher may put a pipe behind a pty."""
    return stream.isatty() and launched() is None


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that are here."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def here() -> dict[str, Any]:
    """Return what one process knows of its machine, and how busy that was."""
    return {**machine.here(), "load": _LOAD, "machine": _machine()}


def _machine() -> dict[str, Any]:
    """Return what is the same for all processes of a host."""
    return {
        "processor": machine.processor(),
        "kernel": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count() or 1,
    }


def oversubscribed(nodes: Nodes, everyone: list[dict[str, Any]]) -> list[str]:
    """Return one remark for each node with more ranks than cores."""
    remarks = []
    for node in nodes:
        there = [everyone[rank] for rank in node]
        if machine.oversubscribed(there):
            remarks.append(
                f"oversubscribed: {len(node)} ranks share {machine.usable(there):g} cores on "
                f"{there[0]['host']}; these timings are those of ranks that wait for a core"
            )
    return remarks


def busy(nodes: Nodes, everyone: list[dict[str, Any]]) -> list[str]:
    """Return one remark for each node on which something else runs."""
    remarks = []
    for node in nodes:
        cores, first = machine.usable([everyone[rank] for rank in node]), everyone[node[0]]
        if first["load"] > cores:
            remarks.append(
                f"{first['host']} was busy: its load before this run was {first['load']:g} on "
                f"{cores:g} cores; what else runs there takes time from these calls"
            )
    return remarks
