"""Rendezvous of ranks on one host, by a file in a private folder that names a port."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from mpicoll.errors import LaunchError
from mpicoll.machine.network import LOOPBACK
from torchcoll.place import Place
from torchcoll.rendezvous.store import Rendezvous, client, nothing, server

_DAEMONS = {
    "hydra_pmi_proxy", "mpiexec.hydra", "mpiexec.gforker", "mpirun", "mpiexec", "prterun",
    "prted", "orterun", "orted", "slurmstepd",
}  # fmt: skip


def open_over_file(place: Place, timeout: float) -> Rendezvous:
    """Let rank 0 open a store on the loopback, and write its port to a file for the others."""
    if place.local_size is not None and place.local_size != place.size:
        raise LaunchError(
            f"{place.launcher} started {place.size} processes on several hosts: to find each "
            "other they need mpi4py, torchrun, or init_method tcp://host:port"
        )
    path = private_directory() / launcher_identity()
    if place.rank == 0:
        store, port = server(LOOPBACK, 0)
        fresh = path.with_suffix(".new")
        fresh.write_text(str(port))
        fresh.replace(path)
        return store, lambda: path.unlink(missing_ok=True)
    deadline = time.monotonic() + timeout
    while not path.exists():
        if time.monotonic() > deadline:
            raise LaunchError(f"rank {place.rank} of {place.size} waited {timeout:g} s for rank 0")
        time.sleep(0.01)
    return client(place, LOOPBACK, int(path.read_text()), timeout), nothing


def private_directory() -> Path:
    """Return this user's folder for such files.

    Raises:
        LaunchError: others can write there.
    """
    path = Path(tempfile.gettempdir()) / f"torchcoll-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid() or path.stat().st_mode & 0o077:
        raise LaunchError(f"{path} is not this user's own: remove it, or set TMPDIR")
    return path


def launcher_identity() -> str:
    """Return a name that only the processes of one launch share: its process and start time."""
    process, found = os.getppid(), None
    while process > 1:
        try:
            name, fields = _process(process)
        except OSError:
            break
        if found is None or name in _DAEMONS:
            found = f"{process}-{fields[19]}"
        if name in _DAEMONS:
            break
        process = int(fields[1])
    return found or str(os.getppid())


def _process(number: int) -> tuple[str, list[str]]:
    """Return a process's name, and its state, parent, ... as in proc(5).

    psutil's start time depends on the clock, and ranks that ask at different times may differ.
    """
    name, _, rest = Path(f"/proc/{number}/stat").read_text().partition("(")[2].rpartition(")")
    return name, rest.split()
