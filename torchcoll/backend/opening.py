"""Open the collectives of a group, which all its ranks do at its first call."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, sleep
from typing import Any
from zlib import crc32

import torch

import mpicoll
from mpicoll.collectives import Collectives
from mpicoll.engine import extension
from mpicoll.errors import LaunchError, RankLost
from torchcoll.arrays import TorchArrays
from torchcoll.backend.tensors import as_numpy
from torchcoll.groups import world_ranks
from torchcoll.transport import TorchTransport

_TAGS = 1 << 15
"""Every MPI has as many tags."""
_NAP = 0.02
_HERE, _IN_MPI = "torchcoll/here/{}", "torchcoll/mpi/{}"


def open_over_gloo(group: Any) -> Collectives:
    """Return the collectives of a `Group` over its gloo."""
    name = group.group_name
    if group.group_desc != "undefined":
        name = f"{group.group_desc} {name}"
    compares = group.spanning is None
    transport = TorchTransport(group.library, ranks=world_ranks(group), compares=compares)
    return Collectives(transport, name)


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


def queue_of(opened: Any) -> Any:
    """Return the queue that runs opened collectives without Python; None where there is none.

    Ranks that compare a call by messages do so in Python.
    """
    shared = opened.transport.shared
    has_mailbox = shared is not None and shared.mailbox is not None
    if not has_mailbox and getattr(opened.transport, "compares", True):
        return None
    layout = TorchArrays().layout() if isinstance(opened, OverMpi) else None
    return extension.queue(opened.plans.table, opened.transport.size, layout)


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
