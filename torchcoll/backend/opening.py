"""Open the collectives of a group, which all its ranks do at its first call."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Any
from zlib import crc32

import torch
from torch.distributed import distributed_c10d as c10d

import mpicoll
from mpicoll.collectives import Collectives
from mpicoll.errors import LaunchError, RankLost
from mpicoll.execution import extension
from torchcoll.arrays import TorchArrays
from torchcoll.backend.tensors import lent
from torchcoll.transport import TorchTransport

_TAGS = 1 << 15
"""Every MPI has as many tags."""
_NAP = 0.02
_HERE = "torchcoll/here/{}"


def open_over_gloo(group: Any) -> Collectives:
    """Return the collectives of a `Group` over its gloo."""
    library, world = group.library, c10d._world
    # What torch.distributed asks of a group, and its messages of errors, too.
    world.pg_group_ranks[library] = world.pg_group_ranks[group]
    world.pg_backend_config[library] = "cpu:gloo"
    world.pg_map[library] = ("gloo", group.store)
    name = group.group_name
    if group.group_desc != "undefined":
        name = f"{group.group_desc} {name}"
    return Collectives(TorchTransport(library), name)


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
    keys = [_HERE.format(each) for each in range(size)]
    come(store, rank)
    end, nap = monotonic() + seconds, 1e-3
    # A wait in the store would keep other threads from it, which open other groups.
    while not (all_here := store.check(keys)) and monotonic() < end:
        sleep(nap)
        nap = min(2 * nap, _NAP)
    if all_here:
        return
    if missing := [each for each, key in enumerate(keys) if not store.check([key])]:
        store.delete_key(keys[rank])
        ranks = ", ".join(map(str, missing))
        raise RankLost(
            f"rank {ranks} did not come to the first call of this group within the timeout of "
            f"{seconds:.3g} s",
            rank=missing[0],
        )


def queue_of(opened: Any) -> Any:
    """Return the queue that runs opened collectives without Python; None where there is none."""
    layout = TorchArrays(torch.device("cpu")).layout() if isinstance(opened, OverMpi) else None
    return extension.queue(opened.plans.find, layout)


def forget(library: Any) -> None:
    """Leave nothing of a library that `open_over_gloo` has made known to torch.distributed."""
    world = c10d._world
    for known in (world.pg_group_ranks, world.pg_backend_config, world.pg_map):
        known.pop(library, None)


def open_over_mpi(group: Any) -> OverMpi:
    """Return the collectives of a `Group` over MPI.

    Raises:
        LaunchError: MPI has not started these ranks, or in another order.
        RankLost: a rank did not come before the timeout of the group.
    """
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    ranks = list(c10d._world.pg_group_ranks[group])
    if comm.size != c10d.get_world_size() or comm.rank != c10d.get_rank():
        raise LaunchError(
            f"torch.distributed has rank {c10d.get_rank()} of {c10d.get_world_size()} here, MPI "
            f"rank {comm.rank} of {comm.size}: start the ranks by mpirun or srun, and set no RANK"
        )
    wait_for_all(group.store, group.rank(), group.size(), deadline_of(group))
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

    def _call(self, name: str, x: Any, out: Any, *given: Any) -> None:
        self.collectives._call(name, _array(x), _array(out), *given)


def _array(tensor: torch.Tensor | None) -> Any:
    if tensor is None:
        return None
    if tensor.dtype == torch.bfloat16:
        # NumPy has no such dtype; it is only moved here.
        tensor = tensor.view(torch.int16)
    return lent(tensor.detach())
