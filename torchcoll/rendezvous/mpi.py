"""Rendezvous of ranks that an mpirun or srun started, through their own MPI."""

from __future__ import annotations

from hashlib import blake2b
from secrets import token_hex
from time import sleep
from typing import Any

import msgspec
import numpy as np

from mpicoll.errors import LaunchError
from mpicoll.machine.launchers import SRUN
from mpicoll.machine.network import LOOPBACK, host_address, interfaces
from mpicoll.machine.nodes import host_identity
from mpicoll.machine.waited import Waited
from torchcoll.place import Place
from torchcoll.rendezvous.store import Rendezvous, client, server
from torchcoll.rendezvous.url import FORMS

_PAUSE = 0.001
_abandoned: list[Any] = []
"""Requests that were given up: MPI may still write to their memory."""


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


class _Offer(msgspec.Struct):
    """The address and secret of a store, or why rank 0 has opened none."""

    address: str
    port: int = 0
    secret: str = ""
    refusal: str = ""


def open_over_mpi(comm: Any, place: Place, interface: str | None, timeout: float) -> Rendezvous:
    """Let rank 0 open a store on a free port, and send its address and a secret by MPI."""
    is_one_host = is_equal(comm, host_identity(), timeout)
    store: Any = None
    offer = _Offer(LOOPBACK if is_one_host else host_address())
    if comm.rank == 0:
        if interface is not None:
            offer.address = interfaces()[interface] or offer.address
        try:
            store, offer.port = server(offer.address, 0)
            offer.secret = token_hex(32)
        except LaunchError as error:
            offer.refusal = str(error)
    answer = _broadcast(comm, msgspec.json.encode(offer), timeout)
    offer = msgspec.json.decode(answer, type=_Offer)
    if offer.refusal:
        raise LaunchError(offer.refusal)
    store = store or client(place, offer.address, offer.port, timeout)
    return Rendezvous(store, offer.secret.encode())


def is_equal(comm: Any, text: str, timeout: float) -> bool:
    """Whether all ranks gave the same text."""
    digest = blake2b(text.encode(), digest_size=16).digest()
    every = bytearray(len(digest) * comm.size)
    _complete(comm, comm.Iallgather(digest, every), timeout)
    return every == digest * int(comm.size)


def _broadcast(comm: Any, data: bytes, timeout: float) -> bytearray:
    """Return rank 0's bytes: mpi4py's own method for any object would pickle them."""
    length = np.array([len(data)])
    _complete(comm, comm.Ibcast(length), timeout)
    buffer = bytearray(data if comm.rank == 0 else int(length[0]))
    _complete(comm, comm.Ibcast(buffer), timeout)
    return buffer


def _complete(comm: Any, request: Any, timeout: float) -> None:
    waited = Waited()
    while not request.Test():
        if waited.look() > timeout:
            _abandoned.append(request)
            raise LaunchError(
                f"rank {comm.rank} of {comm.size} waited {timeout:g} s for another over MPI: one "
                "is stopped, or has not come to this call"
            )
        sleep(_PAUSE)
