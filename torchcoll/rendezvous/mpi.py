"""Rendezvous of ranks that an mpirun or srun started, through their own MPI."""

from __future__ import annotations

from typing import Any

from mpicoll.errors import LaunchError
from mpicoll.machine.launchers import SRUN
from mpicoll.machine.network import LOOPBACK, host_address, host_identity, interfaces
from torchcoll.place import Place
from torchcoll.rendezvous.store import Rendezvous, client, nothing, server
from torchcoll.rendezvous.url import FORMS


def mpi_world(place: Place) -> Any:
    """Return MPI's COMM_WORLD where it has all ranks of the launch, None without mpi4py.

    Raises:
        LaunchError: mpi4py is built on another MPI than that of the launcher.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        return None
    comm = MPI.COMM_WORLD
    if comm.size == place.size:
        return comm
    if place.launcher == SRUN:
        return None
    raise LaunchError(
        f"{place.launcher} started {place.size} processes, but mpi4py is built on another MPI "
        f"({MPI.get_vendor()[0]}) and sees {comm.size}: start with that MPI's mpirun, with "
        f"torchrun, or give init_method ({FORMS})"
    )


def open_over_mpi(comm: Any, place: Place, interface: str | None, timeout: float) -> Rendezvous:
    """Let rank 0 open a store on a free port, and send its address to the others by MPI."""
    hosts = comm.allgather(host_identity())
    store: Any = None
    offer: Any = None
    if comm.rank == 0:
        address = LOOPBACK if len(set(hosts)) == 1 else host_address()
        if interface is not None:
            address = interfaces()[interface] or address
        try:
            store, port = server(address, 0)
            offer = address, port
        except LaunchError as error:
            offer = error
    offer = comm.bcast(offer)
    if isinstance(offer, LaunchError):
        raise offer
    address, port = offer
    return store or client(place, address, port, timeout), nothing
