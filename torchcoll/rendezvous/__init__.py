"""Rendezvous: a key-value store that all ranks reach, and a secret that only they know."""

from __future__ import annotations

from secrets import token_bytes

from mpicoll.machine.launchers import SRUN, TORCHRUN
from torchcoll.place import ARGUMENTS, Place
from torchcoll.rendezvous.file import open_over_file
from torchcoll.rendezvous.meeting import Member, exchange_members
from torchcoll.rendezvous.mpi import mpi_world, open_over_mpi
from torchcoll.rendezvous.slurm import open_over_slurm
from torchcoll.rendezvous.store import Rendezvous, distributed
from torchcoll.rendezvous.url import open_url

__all__ = ["Member", "exchange_members", "open_store"]


def open_store(
    place: Place, init_method: str | None, interface: str | None, timeout: float
) -> Rendezvous:
    """Open the store as `init_method` says, or as fits the launcher."""
    if init_method is not None:
        return open_url(place, init_method, timeout)
    if place.size == 1:
        return Rendezvous(distributed().HashStore(), token_bytes())
    if place.launcher in (TORCHRUN, ARGUMENTS):
        return open_url(place, "env://", timeout)
    comm = mpi_world(place)
    if comm is not None:
        return open_over_mpi(comm, place, interface, timeout)
    if place.launcher == SRUN:
        return open_over_slurm(place, timeout)
    return open_over_file(place, timeout)
