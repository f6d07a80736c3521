"""Which ranks of a communicator run the drop-in, as far as a rank knows without a message.

Under ``mpicoll.run`` a launch may have other programs. They take no part in exchanges of ours, so
the ranks of a communicator exchange something only where all of them are marked.
"""

from __future__ import annotations

import sys
from functools import cache

from mpi4py import MPI

from mpicoll.machine.launchers import ranks_of_host
from mpicoll.machine.marks import is_marked, must_be_marked
from mpicoll.text.numbers import ranges

_warned: list[MPI.Comm] = []


def runs_everywhere(comm: MPI.Comm, members: tuple[int, ...]) -> bool:
    """Whether all ranks of a communicator run the drop-in: the same on those that do.

    A program that makes a `mpicoll.Comm` itself does so on all its ranks. Where all ranks of a host
    run the drop-in, those of other hosts are taken to do so, too.

    Args:
        members: as `world_ranks` returns them.
    """
    if not must_be_marked():
        return True
    unmarked = [rank for rank in members if rank < 0 or not _is_marked(rank)]
    if not unmarked:
        return True
    if min(unmarked) >= 0 and _is_host_marked():
        return True  # they are on other hosts
    first = next((rank for rank in members if rank not in unmarked), None)
    if first == MPI.COMM_WORLD.rank:
        _warn(comm, unmarked)
    return False


@cache
def _is_marked(rank: int) -> bool:
    return is_marked(rank)


@cache
def _is_host_marked() -> bool:
    """Whether all ranks of this launch that are on this host are marked."""
    return sum(map(_is_marked, range(MPI.COMM_WORLD.size))) == ranks_of_host()


def _warn(comm: MPI.Comm, unmarked: list[int]) -> None:
    """Say once in this process that MPI serves a communicator."""
    if _warned:
        return
    _warned.append(comm)
    name = comm.name or f"a communicator of {comm.size}"
    print(
        f"mpicoll.run: MPI serves {name}: rank {ranges(unmarked)} of MPI_COMM_WORLD does not run "
        "mpicoll.run on this host",
        file=sys.stderr, flush=True,
    )  # fmt: skip
