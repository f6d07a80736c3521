"""Time native calls as OSU's and Intel's benchmarks do: one call, then a barrier.

``mpirun -n 2 python -m mpicoll.study.single_calls gather --sizes 4,1K`` prints a line of JSON for
each size. ``us`` is the mean over the calls of the slowest rank. ``call_us`` is the same for a call
without data on one rank: the cost of mpi4py's call and of this loop.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import click

from mpicoll.backend import Thunk
from mpicoll.cli.command import RanksCommand
from mpicoll.cli.options import SIZES, option, threads
from mpicoll.cli.watchdog import Watchdog
from mpicoll.collectives import Collectives
from mpicoll.measurement import clock
from mpicoll.measurement.cases import Case, Group, Wanted, groups
from mpicoll.measurement.workbench import Workbench
from mpicoll.measurement.worlds import ALL_BACKENDS, Worlds, form_worlds
from mpicoll.notation.contract import collective

_CALLS, _CALLS_OF_LARGE, _LARGE = 1000, 100, 8192
"""Calls of each size, calls of each large size, and the bytes above which a size is large (OSU)."""


class _Loop:
    """The native calls of a group of ranks, each timed alone."""

    def __init__(self, world: Collectives) -> None:
        self.world = world
        self.barrier = world.plan("barrier", algorithm="native").run

    def mean(self, call: Thunk, count: int) -> float:
        """Return the microseconds of a call on the slowest rank."""
        barrier, now, taken = self.barrier, clock.now, 0
        for _ in range(count // 10):
            call()
            barrier()
        for _ in repeat(None, count):
            start = now()
            call()
            taken += now() - start
            barrier()
        return float(max(self.world.exchange(taken / count / 1000, float)))

    def nothing(self, group: Group, single_rank: Collectives) -> float:
        """Return the microseconds of a call without data on one rank."""
        # With data, MPI would copy it on one rank. A broadcast needs a buffer that is not empty.
        nbytes = 4 if group.contract.name == "broadcast" else 0
        (empty,) = groups(Wanted(collectives=(group.contract.name,), sizes=(nbytes,)), 1)
        return self.mean(_bound(single_rank, empty), _CALLS)

    def lines(self, names: Sequence[str], sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Yield the times of each collective at each size."""
        single_rank = self.world.split(self.world.rank)
        assert single_rank is not None
        wanted = Wanted(collectives=tuple(names), sizes=tuple(sizes))
        for group in groups(wanted, self.world.size):
            count = _CALLS_OF_LARGE if group.bytes_per_rank > _LARGE else _CALLS
            yield {
                "collective": group.contract.name, "bytes_total": group.bytes_total,
                "us": self.mean(_bound(self.world, group), count),
                "call_us": self.nothing(group, single_rank),
            }  # fmt: skip


def _bound(world: Collectives, group: Group) -> Thunk:
    """Return the native call with new arrays."""
    return Workbench(world, group).bind(Case(group, "mpi4py", "native")).run


@click.command(cls=RanksCommand, help=__doc__)
@click.argument("names", nargs=-1, required=True)
@option("--sizes", type=SIZES, required=True, metavar="4,1K,1M", help="Total bytes of a call.")
@threads
@click.pass_obj
def main(makers: Worlds, /, names: Sequence[str], sizes: Sequence[int], threads: str | None) -> int:
    """Time the calls; rank 0 prints. Return the exit status."""
    chosen = [collective(name).name for name in names]
    worlds, _ = form_worlds(("mpi4py",), None, makers, Watchdog(120.0))
    loop = _Loop(worlds["mpi4py"])
    gc.disable()
    for row in loop.lines(chosen, sizes):
        if loop.world.rank == 0:
            print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    main(obj=ALL_BACKENDS)
