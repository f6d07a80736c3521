"""Open the collectives of a group, which all its ranks do at its first call."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from zlib import crc32

import torch

from mpicoll.errors import LaunchError, RankLost
from mpicoll.machine.waited import comes

if TYPE_CHECKING:
    from mpicoll.collectives import Collectives

_TAGS = 1 << 15
"""Every MPI has as many tags."""
_NAP = 0.02


def open_over_gloo(group: Any, seconds: float) -> Collectives:
    """Return the collectives of a `Group` over its gloo; collective.

    Args:
        seconds: for which this rank waits for the others to begin.

    Raises:
        RankLost: a rank did not come.
    """
    # A group of one node does not need these.
    from mpicoll.collectives import Collectives
    from torchcoll.groups import world_ranks
    from torchcoll.transport import TorchTransport

    exchange_values(group.store, "gloo", group.rank(), group.size(), "", seconds)
    compares = group.spanning is None
    transport = TorchTransport(group.library, ranks=world_ranks(group), compares=compares)
    return Collectives(transport, name_of(group))


def deadline_of(group: Any) -> float:
    """Return the seconds for which a call of a `Group` waits for the others."""
    return float(group._get_backend(torch.device("cpu")).options._timeout.total_seconds())


def exchange_values(
    store: Any, name: str, rank: int, size: int, value: str | bytes, seconds: float,
    action: str = "come to the first call of this group",
) -> list[bytes]:  # fmt: skip
    """Return the values of all ranks in a store; collective. A rank that gives up removes its own.

    Args:
        name: of the exchange.
        action: for the error: what a missing rank did not do.

    Raises:
        RankLost: a rank did not come in so many seconds.
    """
    keys = [f"torchcoll/{name}/{peer}" for peer in range(size)]
    store.set(keys[rank], value)
    # A wait in the store would keep other threads from it, which open other groups.
    if not comes(partial(store.check, keys), seconds, _NAP):
        missing = [peer for peer, key in enumerate(keys) if not store.check([key])]
        if missing:
            store.delete_key(keys[rank])
            ranks = ", ".join(map(str, missing))
            raise RankLost(
                f"rank {ranks} did not {action} within the timeout of {seconds:.3g} s",
                rank=missing[0],
            )
    values: list[bytes] = store.multi_get(keys)
    return values


def name_of(group: Any) -> str:
    """Return the name of a `Group` for people."""
    name: str = group.group_name
    return name if group.group_desc == "undefined" else f"{group.group_desc} {name}"


def open_over_mpi(group: Any, seconds: float) -> Collectives:
    """Return the collectives of a `Group` over MPI; collective.

    Its arguments and errors are those of `open_over_gloo`.

    Raises:
        LaunchError: on all ranks, where one MPI has not started them.
    """
    from mpi4py import MPI

    from mpicoll import world

    comm, size = MPI.COMM_WORLD, group.size()
    place = f"{comm.rank} of {comm.size}"
    values = exchange_values(group.store, "mpi", group.rank(), size, place, seconds)
    places = [value.decode() for value in values]
    ranks, sizes = zip(*(map(int, place.split(" of ")) for place in places), strict=True)
    if len({*ranks}) < size or {*sizes} != {comm.size}:
        raise LaunchError(
            f"the ranks of this group are ranks {', '.join(places)} of MPI: start all of them by "
            "one mpirun or srun, and set no RANK"
        )
    members = comm.group.Incl(ranks)
    # Threads of a program may open groups of the same ranks at once, each rank in another order.
    part = comm.Create_group(members, tag=crc32(group.group_name.encode()) % _TAGS)
    members.Free()
    try:
        return world(part)
    finally:
        part.Free()
