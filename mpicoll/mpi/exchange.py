"""Exchange items of plain data over a communicator of MPI.

It is what the first call of a communicator needs, before there is a transport.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from math import inf
from sys import byteorder
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from mpicoll.backend import Stage
from mpicoll.errors import RankLost
from mpicoll.memory.waiting import DEADLINE, agreeing, default_deadline
from mpicoll.text.encoding import decode_alike, encode_for

if TYPE_CHECKING:
    from mpicoll.peers.known import Peers

_NUMBER = array("i").itemsize
_NAP = 1e-4
"""Seconds between two looks at a request that has a deadline."""


def exchange(comm: MPI.Comm, item: Any, kind: Any, peers: Peers) -> list[Any]:
    """Return every rank's item of a type, in rank order: without pickle, which mpi4py would use.

    Raises:
        RankLost: some rank did not come within the deadline.
    """
    calls = peers.calls
    head = bytes(array("i", [0 if calls is None else calls.left]))
    peers.exchanges += 1
    parts = _gathered(comm, head + encode_for(kind, item), peers)
    if calls is not None:
        calls.hear([int.from_bytes(part[:_NUMBER], byteorder) for part in parts])
    return decode_alike([part[_NUMBER:] for part in parts], kind)


def _gathered(comm: MPI.Comm, data: bytes, peers: Peers) -> list[bytes]:
    """Return the bytes of every rank of a communicator, in rank order."""
    from mpicoll.mpi.requests import completed  # a program starts without

    lengths, stage = np.empty(comm.size, np.int64), Stage(agreeing())
    request = peers.inside(comm.Iallgather, np.array([len(data)]), lengths)
    completed(request, peers, stage, lengths)
    received = bytearray(int(lengths.sum()))
    request = peers.inside(comm.Iallgatherv, data, [received, lengths, MPI.BYTE])
    completed(request, peers, stage, data, received, lengths)
    ends = np.cumsum(lengths)
    return [bytes(received[i:j]) for i, j in zip(ends - lengths, ends, strict=True)]


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
    _complete(comm, comm.Iallgather, local, table)
    rows: list[list[int]] = table.tolist()
    return rows


def exchange_items(comm: MPI.Comm, item: Any, kind: Any = Any) -> list[Any]:
    """Return every rank's item, in rank order; collective. It raises as `exchange_numbers` does."""
    data = encode_for(kind, item)
    lengths = [length for (length,) in exchange_numbers(comm, [len(data)])]
    received = bytearray(sum(lengths))
    _complete(comm, comm.Iallgatherv, data, [received, lengths, MPI.BYTE])
    pairs = zip(np.cumsum(lengths), lengths, strict=True)
    return decode_alike([bytes(received[end - length : end]) for end, length in pairs], kind)


def _complete(comm: MPI.Comm, start: Any, data: Any, received: Any) -> None:
    """Make a call of MPI within the deadline that the user states, if any."""
    request = start(data, received)
    if mpi_deadline() == inf:
        request.Wait()
        return
    seconds = default_deadline()
    end = monotonic() + seconds
    while not request.Test():
        if monotonic() > end:
            raise RankLost(
                f"some rank of {comm.name or f'a communicator of {comm.size}'} did not come to its "
                f"first call within {seconds:g} s"
            )
        sleep(_NAP)
