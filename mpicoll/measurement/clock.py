"""One clock for all ranks: shared on a node, estimated by round trips across nodes."""

from __future__ import annotations

import resource
import time

import numpy as np

from mpicoll.collectives import Collectives

now = time.perf_counter_ns
_TRIPS = 100


def switches() -> int:
    """Return how often the kernel has made this process leave a core to another one."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def offset_to_root(world: Collectives, *, force: bool = False) -> tuple[int, int]:
    """Return the offset of rank 0's clock from this rank's, and the bound on its error, in ns.

    CLOCK_MONOTONIC is the same for all processes of a node. Across nodes the round trip
    with the least delay bounds the offset by half of itself (Cristian 1989).
    """
    if len(world.nodes) == 1 and not force:
        return 0, 0
    offset = (0, 0)
    for rank in range(1, world.size):
        if world.rank == 0:
            _answer(world, rank)
        elif world.rank == rank:
            offset = _ask(world)
    return offset


def _answer(world: Collectives, peer: int) -> None:
    arrays = world.transport.arrays
    mail = arrays.empty((1,), "int64")
    for _ in range(_TRIPS):
        world.recv(mail, peer)
        arrays.from_host(mail, np.array([now()]))
        world.send(mail, peer)


def _ask(world: Collectives) -> tuple[int, int]:
    arrays = world.transport.arrays
    mail = arrays.empty((1,), "int64")
    arrays.from_host(mail, np.array([0]))
    estimates = []
    for _ in range(_TRIPS):
        start = now()
        world.send(mail, 0)
        world.recv(mail, 0)
        stop = now()
        remote_time = int(arrays.to_host(mail)[0])
        estimates.append(((stop - start) // 2, remote_time - (start + stop) // 2))
    error, offset = min(estimates)
    return offset, error
