"""Measure how fast a GPU copies within its own memory."""

from __future__ import annotations

from statistics import median

from mpicoll.backend import Array
from mpicoll.collectives import Collectives

_BYTES = 256 << 20
_SAMPLES, _COPIES = 5, 10


def copy_bandwidth(world: Collectives, like: Array, nbytes: int = _BYTES) -> float:
    """Return the GB/s that a copy within one GPU moves, read and written bytes counted.

    Rank 0 copies and the other ranks wait, so that no other rank uses the memory meanwhile.
    """
    gbps = _measured(world, like, nbytes) if world.rank == 0 else 0.0
    return float(world.exchange(gbps)[0])


def _measured(world: Collectives, like: Array, nbytes: int) -> float:
    """Return the GB/s of the median sample on this rank."""
    arrays = world.transport.arrays
    x, y = (arrays.empty((nbytes,), "uint8", like) for _ in range(2))
    watch, copy = arrays.stopwatch(), arrays.copier(x, y)
    copy()
    samples = []
    for _ in range(_SAMPLES):
        watch.start()
        for _ in range(_COPIES):
            copy()
        watch.stop()
        samples.append(watch.nanoseconds() / _COPIES)
    return 2 * nbytes / median(samples)
