"""Meet through MPI, where torch.distributed is told nothing of the other ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpicoll.machine.launchers import TORCHRUN
from mpicoll.machine.nodes import host_identity
from torchcoll.launch import use_interface
from torchcoll.place import find_place
from torchcoll.rendezvous.mpi import is_equal, mpi_world, open_over_mpi

_SECONDS = 300.0


def meet_over_mpi() -> Iterator[tuple[Any, int, int]] | None:
    """Return the result of torch's rendezvous, None where MPI has not started this process."""
    place = find_place(None, None, None)
    if place.launcher in (TORCHRUN, "no launcher"):
        return None
    comm = mpi_world(place)
    if comm is None:
        return None
    use_interface(None, is_equal(comm, host_identity(), _SECONDS))
    return iter([(open_over_mpi(comm, place, None, _SECONDS).store, place.rank, place.size)])
