"""Exchange plain data over a communicator of MPI, before there is a transport."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf
from os import sched_yield
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.errors import RankLost
from mpicoll.machine.marks import has_exited
from mpicoll.machine.settings import DEADLINE, default_deadline
from mpicoll.machine.waited import Looks
from mpicoll.tuning import YIELDS

Complete = Callable[[MPI.Comm, str, Any, Any], None]
unfinished: list[object] = []
"""Requests that no rank completes any more, and their memory, which MPI may still write to."""


def mpi_deadline() -> float | None:
    """Return the deadline of a communicator in seconds: none but the user's, as MPI has none."""
    return None if DEADLINE in os.environ else inf


def world_ranks(comm: MPI.Comm) -> tuple[int, ...]:
    """Return the ranks of a communicator's members in ``MPI_COMM_WORLD``.

    A member of another launch has a negative number. MPICH 5.0.2 returns the parent's group for a
    grid of fewer ranks, which are the first ones of that group.
    """
    group, world = comm.Get_group(), MPI.COMM_WORLD.Get_group()
    try:
        return tuple(group.Translate_ranks(range(comm.size), world))
    finally:
        group.Free()
        world.Free()


def _complete(comm: MPI.Comm, name: str, data: Any, received: Any) -> None:
    """Make a call of MPI, until the program of a rank has ended, or the user's deadline."""
    request = getattr(comm, f"I{name.lower()}")(data, received)
    for _ in range(YIELDS):
        if request.Test():
            return
        sched_yield()
    waited, ended = Looks(), set[int]()
    try:
        deadline = mpi_deadline() or default_deadline()
        while not request.Test():
            waited.look()
            if waited.is_due():
                ended = _ended_twice(comm, ended)
            if waited.seconds > deadline:
                raise RankLost(f"{_title(comm)}: some rank did not come in {deadline:g} s")
            waited.rest()
    except BaseException:
        unfinished.append((request, data, received))
        raise


def exchange_numbers(
    comm: MPI.Comm, numbers: Sequence[int], complete: Complete = _complete
) -> list[list[int]]:
    """Return the numbers of all ranks, each of which has as many; collective.

    Args:
        complete: makes a blocking collective of a name; by default with the errors below.

    Raises:
        RankLost: the program of a rank has ended, or one did not come within the deadline.
    """
    local = np.array(numbers, np.int64)
    table = np.empty((comm.size, local.size), np.int64)
    complete(comm, "Allgather", local, table)
    rows: list[list[int]] = table.tolist()
    return rows


def exchange_bytes(comm: MPI.Comm, data: bytes, complete: Complete = _complete) -> list[bytes]:
    """Return every rank's bytes, in rank order; collective. Raises as `exchange_numbers` does."""
    lengths = [length for (length,) in exchange_numbers(comm, [len(data)], complete)]
    received = bytearray(sum(lengths))
    complete(comm, "Allgatherv", data, [received, lengths, MPI.BYTE])
    ends = accumulate(lengths)
    return [bytes(received[end - length : end]) for end, length in zip(ends, lengths, strict=True)]


def exchange_items(comm: MPI.Comm, item: Any, kind: Any = Any) -> list[Any]:
    """Return every rank's item, in rank order; collective. It raises as `exchange_numbers` does."""
    from mpicoll.text.encoding import decode_alike, encode_for  # a program starts without

    return decode_alike(exchange_bytes(comm, encode_for(kind, item)), kind)


def _ended_twice(comm: MPI.Comm, ended: set[int]) -> set[int]:
    """Return the ranks whose programs have ended.

    Args:
        ended: those at the last look; what they have sent may have been on its way.

    Raises:
        RankLost: there was one.
    """
    now = {rank for rank, member in enumerate(world_ranks(comm)) if has_exited(member)}
    for rank in now & ended:
        raise RankLost(f"{_title(comm)} waits for rank {rank}, whose program has ended", rank=rank)
    return now


def _title(comm: MPI.Comm) -> str:
    return f"the first call of {comm.name or f'a communicator of {comm.size}'}"
