"""Rendezvous of ranks on one host, by a file in a private folder."""

from __future__ import annotations

import os
from secrets import token_hex

from mpicoll.errors import LaunchError
from mpicoll.machine.launchers import ancestors
from mpicoll.machine.living import stat_of
from mpicoll.machine.network import LOOPBACK
from mpicoll.machine.waited import comes
from mpicoll.text.files import content_of
from torchcoll.place import Place
from torchcoll.rendezvous.secret import private_directory, write_private
from torchcoll.rendezvous.store import LONGEST_NAP, Rendezvous, client, server

_DAEMONS = {
    "hydra_pmi_proxy", "mpiexec.hydra", "mpiexec.gforker", "mpirun", "mpiexec", "prterun",
    "prted", "orterun", "orted", "slurmstepd",
}  # fmt: skip


def open_over_file(place: Place, timeout: float) -> Rendezvous:
    """Let rank 0 open a store on the loopback, and write its port and a secret to a file."""
    if place.local_size is not None and place.local_size != place.size:
        raise LaunchError(
            f"{place.launcher} started {place.size} processes on several hosts: to find each "
            "other they need mpi4py, torchrun, or init_method tcp://host:port"
        )
    path = private_directory() / launcher_identity()
    if place.rank == 0:
        store, port = server(LOOPBACK, 0)
        secret, fresh = token_hex(32), path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        write_private(fresh, f"{port} {secret}")
        fresh.replace(path)
        return Rendezvous(store, secret.encode(), lambda: path.unlink(missing_ok=True))
    if not comes(path.exists, timeout, LONGEST_NAP):
        raise LaunchError(f"rank {place.rank} of {place.size} waited {timeout:g} s for rank 0")
    number, secret = content_of(path, is_of_user=False).decode().split()
    return Rendezvous(client(place, LOOPBACK, int(number), timeout), secret.encode())


def launcher_identity() -> str:
    """Return a name that only the processes of one launch share: its process and start time.

    psutil's start time depends on the clock, and ranks that ask at different times may differ.
    """
    parents = [process for process, _ in ancestors()]
    try:
        daemons = (process for process in parents if stat_of(process)[0] in _DAEMONS)
        launcher = next(daemons, os.getppid())
        return f"{launcher}-{stat_of(launcher)[1][19]}"
    except OSError:
        return str(os.getppid())
