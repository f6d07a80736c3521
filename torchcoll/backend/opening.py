"""Open the collectives of a group, which all its ranks do at its first call."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from time import monotonic, sleep
from typing import Any
from zlib import crc32

import torch

import mpicoll
from mpicoll.collectives import Collectives
from mpicoll.errors import LaunchError, RankLost
from mpicoll.text.encoding import decode_alike, encode_for
from torchcoll.backend.channels import OneNode, open_channel
from torchcoll.backend.tensors import as_numpy
from torchcoll.groups import world_ranks
from torchcoll.transport import TorchTransport

_TAGS = 1 << 15
"""Every MPI has as many tags."""
_NAP = 0.02
_HERE, _IN_MPI = "torchcoll/here/{}", "torchcoll/mpi/{}"


def open_over_gloo(group: Any) -> Collectives:
    """Return the collectives of a `Group` over its gloo."""
    compares = group.spanning is None
    transport = TorchTransport(group.library, ranks=world_ranks(group), compares=compares)
    return Collectives(transport, name_of(group))


def deadline_of(group: Any) -> float:
    """Return the seconds for which a call of a `Group` waits for the others."""
    seconds: float = group._get_backend(torch.device("cpu")).options._timeout.total_seconds()
    return seconds


def come(store: Any, rank: int) -> None:
    """Tell the other ranks of a group that this one is at its first call."""
    store.set(_HERE.format(rank), "")


def wait_for_all(store: Any, rank: int, size: int, seconds: float) -> None:
    """Return once all ranks of a group are here.

    What makes its collectives waits for longer: MPI without limit, gloo for the group's timeout.

    Raises:
        RankLost: a rank did not come in so many seconds.
    """
    keys = [_HERE.format(peer) for peer in range(size)]
    come(store, rank)
    try:
        wait_for_keys(store, keys, seconds, "come to the first call of this group")
    except RankLost:
        store.delete_key(keys[rank])
        raise


def wait_for_keys(store: Any, keys: Sequence[str], seconds: float, action: str) -> None:
    """Return once a store has the keys of all ranks.

    Args:
        keys: one for each rank.
        action: for the error: what a rank without a key did not do.

    Raises:
        RankLost: a rank has not set its key in so many seconds.
    """
    end, nap = monotonic() + seconds, 1e-3
    # A wait in the store would keep other threads from it, which open other groups.
    while not (all_here := store.check(keys)) and monotonic() < end:
        sleep(nap)
        nap = min(2 * nap, _NAP)
    if all_here:
        return
    if missing := [peer for peer, key in enumerate(keys) if not store.check([key])]:
        ranks = ", ".join(map(str, missing))
        raise RankLost(
            f"rank {ranks} did not {action} within the timeout of {seconds:.3g} s", rank=missing[0]
        )


def open_on_node(group: Any) -> OneNode | None:
    """Return the collectives of a `Group` by a channel, None where none can serve it; collective.

    Raises:
        RankLost: a rank did not come before the timeout of the group.
    """
    rank, size, seconds = group.rank(), group.size(), deadline_of(group)
    rounds = count()

    def exchange(item: Any, kind: Any = Any) -> list[Any]:
        number = next(rounds)
        keys = [f"torchcoll/channel/{number}/{peer}" for peer in range(size)]
        group.store.set(keys[rank], encode_for(kind, item))
        wait_for_keys(group.store, keys, seconds, "come to the first call of this group")
        return decode_alike([group.store.get(key) for key in keys], kind)

    return open_channel(exchange, rank, size, name_of(group), seconds)


def name_of(group: Any) -> str:
    """Return the name of a `Group` for people."""
    name: str = group.group_name
    return name if group.group_desc == "undefined" else f"{group.group_desc} {name}"


def open_over_mpi(group: Any) -> OverMpi:
    """Return the collectives of a `Group` over MPI.

    Raises:
        LaunchError: on all ranks, where one MPI has not started them.
        RankLost: a rank did not come before the timeout of the group.
    """
    from mpi4py import MPI

    comm, store, size = MPI.COMM_WORLD, group.store, group.size()
    store.set(_IN_MPI.format(group.rank()), f"{comm.rank} of {comm.size}")
    wait_for_all(store, group.rank(), size, deadline_of(group))
    places = [store.get(_IN_MPI.format(rank)).decode() for rank in range(size)]
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
        return OverMpi(mpicoll.world(part))
    finally:
        part.Free()


class OverMpi:
    """Collectives over MPI, which takes NumPy's arrays, on the memory of tensors."""

    def __init__(self, collectives: Collectives) -> None:
        self.collectives = collectives
        self.plans, self.transport = collectives.plans, collectives.transport
        self.recording = collectives.recording
        self.free = collectives.free

    @property
    def deadline(self) -> float:
        return self.collectives.deadline

    @deadline.setter
    def deadline(self, seconds: float) -> None:
        self.collectives.deadline = seconds

    def _call(self, name: str, x: Any, out: Any, *arguments: Any) -> None:
        self.collectives._call(name, _array(x), _array(out), *arguments)


def _array(tensor: torch.Tensor | None) -> Any:
    if tensor is None:
        return None
    if tensor.dtype == torch.bfloat16:
        # NumPy has no such dtype; it is only moved here.
        tensor = tensor.view(torch.int16)
    return as_numpy(tensor.detach())
