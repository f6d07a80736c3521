"""Make many small calls of mixed kinds, and watch the resources of the process.

``mpirun -n 2 python -m tests.selftest.soak --calls 10000000`` reads resident memory, descriptors,
threads, mapped shared memory and the median time of a small call between blocks of calls. It prints
a line for each tenth of the run. The exit status is 1 if, from the first tenth on, a resource grows
by more than 1 %, or the median by more than 10 %. A host may move the two cores apart while the
command runs, so the median may also grow by the time in which a flag travels between them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click

from mpicoll.cli.command import RanksCommand
from mpicoll.cli.options import Whole, option
from mpicoll.collectives import Collectives
from mpicoll.machine.memory import SHM
from mpicoll.measurement.worlds import ALL_BACKENDS, Worlds
from tests.selftest.overhead import trips

_PARTS, _BLOCK, _WARM_UP = 10, 1000, 100
_GROWTH, _DRIFT = 0.01, 0.10
_ROUND_TRIPS, _TRIPS = 50, 2
"""Of a flag: those of a look at it, and the trips in a small call of two ranks, at most."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Resources(NamedTuple):
    """The resources of a process, and the median us of a small call since the last look.

    Attributes:
        resident: bytes; `shared`: how many parts of shared memory it maps.
        trip: us for which a flag travels between the cores of two ranks, by the median over the
            same time; 0 where that is not known.
    """

    resident: int
    descriptors: int
    threads: int
    shared: int
    us: float
    trip: float = 0.0


def measure_resources(us: float, trip: float = 0.0) -> Resources:
    """Return the resources that this process holds now."""
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    descriptors, threads = (len(os.listdir(f"/proc/self/{folder}")) for folder in ("fd", "task"))
    maps = Path("/proc/self/maps").read_text(errors="replace")
    shared = sum(maps.count(name) for name in (f"{SHM}/", "/memfd:"))
    return Resources(resident, descriptors, threads, shared, us, trip)


def growth(looks: Sequence[Resources]) -> list[str]:
    """Return in words which resources have grown too much since the first of these.

    >>> growth([Resources(1000, 5, 2, 0, 1.0), Resources(1009, 5, 2, 0, 1.09)])
    []
    >>> growth([Resources(1000, 5, 2, 0, 1.0), Resources(1011, 6, 2, 0, 1.0)])
    ['resident: 1000, then 1011', 'descriptors: 5, then 6']
    """
    first, last = looks[0], looks[-1]
    texts = [
        f"{name}: {first_value:g}, then {last_value:g}"
        for name, first_value, last_value in zip(Resources._fields[:4], first, last, strict=False)
        if last_value > first_value * (1 + _GROWTH)
    ]
    moved = _TRIPS * max(0.0, last.trip - first.trip)
    if last.us > first.us * (1 + _DRIFT) + moved:
        trips = f", a trip {first.trip:.3g}, then {last.trip:.3g}" if first.trip else ""
        texts.append(f"us: {first.us:g}, then {last.us:g}{trips}")
    return texts


def calls_of(c: Collectives) -> list[Callable[[], Any]]:
    """Return calls of all kinds, of which the first is the small one that is timed."""
    arrays = c.transport.arrays
    x, out, rows = (arrays.empty(n, "float32") for n in ((1,), (1,), (c.size, 1)))
    vector = arrays.empty((1000,), "float32")
    for array in (x, out, rows, vector):
        arrays.from_host(array, 0)
    plan = c.plan("allreduce", vector)
    return [
        lambda: c.allreduce(x, out=out), lambda: c.allreduce(x), lambda: c.broadcast(x, 0),
        lambda: c.allgather(x), lambda: c.reduce_scatter(rows), lambda: c.alltoall(rows),
        lambda: c.scan(x), c.barrier, plan.run, lambda: plan.start().wait(),
    ]  # fmt: skip


def soak(c: Collectives, calls: int, say: Callable[[str], object]) -> list[Resources]:
    """Make so many calls on all ranks, and return the resources held after each tenth of them."""
    every, looks, trip = calls_of(c), list[Resources](), trips(c, _ROUND_TRIPS)
    small, other_calls = every[0], every[1:]
    for call in every:  # what starts once, as the progress thread does
        for _ in range(_WARM_UP):
            call()
    blocks = max(1, calls // (_PARTS * 2 * _BLOCK))
    for part in range(_PARTS):
        times, travels = [], []
        for block in range(blocks):
            began = time.perf_counter()
            for _ in range(_BLOCK):
                small()
            times.append((time.perf_counter() - began) / _BLOCK * 1e6)
            travels.append(trip() / 1e3 if trip else 0.0)
            other_call = other_calls[(part * blocks + block) % len(other_calls)]
            for _ in range(_BLOCK):
                other_call()
        looks.append(measure_resources(median(times), median(travels)))
        say(f"{(part + 1) * blocks * 2 * _BLOCK:12} {looks[-1]}")
    return looks


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


@click.command("soak", cls=RanksCommand, help=__doc__)
@option("--calls", type=Whole(1, 10**12), default=10_000_000, shown=True, help="Of each rank.")
@option("--backend", type=click.Choice([*ALL_BACKENDS]), default="mpi4py", shown=True)
@click.pass_obj
def main(makers: Worlds, /, calls: int, backend: str) -> int:
    """Make the calls, print the resources held, and return 1 where one grows."""
    with makers[backend](None) as c:
        looks = soak(c, calls, say if c.rank == 0 else lambda text: None)
        texts: list[list[str]] = c.exchange(growth(looks), list[str])
        for rank, rank_texts in enumerate(texts):
            for text in rank_texts if c.rank == 0 else ():
                print(f"missed: rank {rank}: {text}")
    return int(any(texts))


if __name__ == "__main__":
    sys.exit(main(obj=ALL_BACKENDS))
