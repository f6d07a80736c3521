"""Describe a run, so that its records can be believed and reproduced."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec import convert
from msgspec.structs import asdict

from mpicoll.engine.extension import executor
from mpicoll.gpu.nccl import version, version_text
from mpicoll.machine.processes import Process
from mpicoll.machine.variables import relevant_variables, thread_level
from mpicoll.measurement.candidate import Settings
from mpicoll.measurement.ping_pong import PairSettings
from mpicoll.measurement.ranks import Ranks
from mpicoll.records.description import Binding, Clock, FullRun, Git, Machine, Mpi, Run, Stack
from mpicoll.records.description import Settings as RecordedSettings
from mpicoll.text.masking import masked_arguments
from mpicoll.text.numbers import ranges

_PACKAGES = (
    "mpicoll", "numpy", "mpi4py", "torch", "cupy", "cupy-cuda12x", "cupy-cuda13x",
)  # fmt: skip
_RECORDED = {"min_samples": "least", "max_samples": "most"}
_LIMIT = 1.0
"""Seconds that another program may take to answer; git is asked twice."""


def describe_run(seed: int, ranks: Ranks) -> Run:
    """Return the description that all records of a run share, alike on every rank; collective."""
    everyone, worlds, processes = ranks.everyone, ranks.worlds, ranks.processes
    return Run(
        id=everyone.exchange(str(uuid4()))[0],
        started=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        command=masked_arguments(sys.argv[1:]),
        seed=seed,
        versions=_versions(),
        libraries={name: world.library for name, world in worlds.items()},
        transports={name: list(world.transports) for name, world in worlds.items()},
        threads=thread_level(),
        executor="; ".join(sorted(set(everyone.exchange(executor())))),
        choice={
            name: world.chooser.source(world.gpu() if ranks.gpu_ways else None)
            for name, world in worlds.items()
        },
        hosts=[process.host for process in processes],
        cores=[list(process.cores.allowed) for process in processes],
        quota=processes[0].cores.quota,
        load=processes[0].load,
        oversubscribed=bool(ranks.oversubscribed),
    )


def _versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def full_description(
    run: Run,
    processes: Sequence[Process],
    settings: Settings | PairSettings,
    sync_error: int | None = None,
) -> FullRun:
    """Return the whole description of a run, as rank 0 sees it.

    Args:
        processes: what each rank reports by `own_process`.
        sync_error: the bound on the error of the ranks' clocks, ns, where these were compared.
    """
    return FullRun(
        **asdict(run),
        argv=masked_arguments(sys.orig_argv),
        directory=os.getcwd(),
        git=git_state(),
        settings=_recorded(settings),
        stack=stack(),
        machines=list(_machines(processes)),
        binding=[_binding(rank, process) for rank, process in enumerate(processes)],
        clock=Clock(None if sync_error is None else sync_error / 1000),
        environment=relevant_variables(),
    )


def _recorded(settings: Settings | PairSettings) -> RecordedSettings:
    """Return the settings by the names that records give them."""
    values = dataclasses.asdict(settings)
    return convert({_RECORDED.get(name, name): values[name] for name in values}, RecordedSettings)


def _machines(processes: Iterable[Process]) -> Iterable[Machine]:
    """Return every host once, with its number of ranks."""
    machines: dict[str, Machine] = {}
    for process in processes:
        host = machines.setdefault(process.host, Machine(process.host, 0, *process.machine))
        host.ranks += 1
    return machines.values()


def _binding(rank: int, process: Process) -> Binding:
    cores = process.cores.allowed
    return Binding(rank, process.host, ranges(cores), len(cores) < process.machine.cores)


# -- software -----------------------------------------------------------------------------


def stack() -> Stack:
    """Return the libraries below the packages, as far as this process has loaded them."""
    nccl, torch = version(), sys.modules.get("torch")
    runtime = getattr(getattr(torch, "version", None), "cuda", None)
    return Stack(_mpi(), version_text(nccl) if nccl else None, runtime, cuda_driver())


def _mpi() -> Mpi | None:
    """Return the MPI library's own description, None where it has not started."""
    module: Any = sys.modules.get("mpi4py.MPI")
    if module is None or not module.Is_initialized():
        return None
    text = module.Get_library_version().strip("\0 \n")
    lines = [" ".join(line.split()).rstrip(", ") for line in text.splitlines()]
    device = next((line.partition(": ")[2] for line in lines if line.startswith("MPICH Dev")), None)
    return Mpi(
        library=lines[0],
        standard=".".join(map(str, module.Get_version())),
        thread_level=module.Query_thread(),
        device=device,
        provider=provider(lines[0], device),
    )


def provider(
    library: str, device: str | None, variables: Mapping[str, str] = os.environ
) -> str | None:
    """Return the network library that carries messages between nodes, None where that is unknown.

    >>> provider("MPICH Version: 5.0.2", "ch4:ucx ofi", {})
    'ucx, the first of ch4:ucx ofi'
    >>> provider("MPICH Version: 5.0.2", "ch4:ofi", {"FI_PROVIDER": "tcp"})
    'ofi, FI_PROVIDER=tcp'
    >>> provider("Open MPI v5.0.11", None, {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,tcp"})
    'pml=ob1 btl=self,tcp'
    """
    if library.startswith("Open MPI"):
        names = {
            framework: variables.get(f"OMPI_MCA_{framework}")
            for framework in ("pml", "mtl", "btl", "osc")
        }
        return " ".join(f"{name}={value}" for name, value in names.items() if value) or None
    if device is None or ":" not in device:
        return None
    built = device.partition(":")[2].split()
    netmod = variables.get("MPIR_CVAR_CH4_NETMOD")
    first = built[0] if len(built) == 1 else f"{built[0]}, the first of {device}"
    name = variables.get("FI_PROVIDER")
    return (netmod or first) + (f", FI_PROVIDER={name}" if name else "")


def cuda_driver(path: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Return the version of NVIDIA's driver, None without one."""
    with suppress(OSError):
        match = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", path.read_text())
        return match[1] if match else None
    if shutil.which("nvidia-smi") is None:
        return None
    return _first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader,nounits")


# -- source -------------------------------------------------------------------------------


def git_state(package: Path = Path(__file__).parents[1]) -> Git | None:
    """Return the commit of the checkout that this code runs from, None where it is in none."""
    git = ("git", "--no-optional-locks", "-C", str(package))
    # A package installed below somebody's checkout is no part of it.
    if _first_line(*git, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    revision = _first_line(*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    if not revision:
        return None
    commit, _, dirty = revision.partition("-")
    return Git(commit, bool(dirty))


def _first_line(*command: str) -> str | None:
    """Return the first line that a program prints, None where it fails or takes long."""
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return process.stdout.split("\n", 1)[0].strip() if process.returncode == 0 else None
