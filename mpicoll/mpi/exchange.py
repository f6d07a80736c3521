"""Exchange plain data over a communicator of MPI, before there is a transport."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate
from math import inf
from time import monotonic, sleep
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.errors import RankLost
from mpicoll.machine.settings import DEADLINE, default_deadline

_NAP = 1e-4
"""Seconds between two looks at a request that has a deadline."""


def mpi_deadline() -> float | None:
    """Return the deadline of a communicator in seconds: none but the user's, as MPI has none."""
    return None if DEADLINE in os.environ else inf


def exchange_numbers(comm: MPI.Comm, numbers: Sequence[int]) -> list[list[int]]:
    """Return the numbers of all ranks, each of which has as many; collective.

    Raises:
        RankLost: some rank did not come within the deadline.
    """
    local = np.array(numbers, np.int64)
    table = np.empty((comm.size, local.size), np.int64)
    _complete(comm, "Allgather", local, table)
    rows: list[list[int]] = table.tolist()
    return rows


def exchange_bytes(comm: MPI.Comm, data: bytes) -> list[bytes]:
    """Return every rank's bytes, in rank order; collective. Raises as `exchange_numbers` does."""
    lengths = [length for (length,) in exchange_numbers(comm, [len(data)])]
    received = bytearray(sum(lengths))
    _complete(comm, "Allgatherv", data, [received, lengths, MPI.BYTE])
    ends = accumulate(lengths)
    return [bytes(received[end - length : end]) for end, length in zip(ends, lengths, strict=True)]


def exchange_items(comm: MPI.Comm, item: Any, kind: Any = Any) -> list[Any]:
    """Return every rank's item, in rank order; collective. It raises as `exchange_numbers` does."""
    from mpicoll.text.encoding import decode_alike, encode_for  # a program starts without

    return decode_alike(exchange_bytes(comm, encode_for(kind, item)), kind)


def _complete(comm: MPI.Comm, name: str, data: Any, received: Any) -> None:
    """Make a call of MPI within the deadline that the user states, if any."""
    if mpi_deadline() == inf:
        getattr(comm, name)(data, received)
        return
    request = getattr(comm, f"I{name.lower()}")(data, received)
    seconds = default_deadline()
    end = monotonic() + seconds
    while not request.Test():
        if monotonic() > end:
            raise RankLost(
                f"some rank of {comm.name or f'a communicator of {comm.size}'} did not come to its "
                f"first call within {seconds:g} s"
            )
        sleep(_NAP)
