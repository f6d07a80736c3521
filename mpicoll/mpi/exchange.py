"""Exchange items of plain data over a communicator of MPI.

It is what the first call of a communicator needs, before there is a transport.
"""

from __future__ import annotations

import os
from array import array
from math import inf
from sys import byteorder
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.backend import Stage
from mpicoll.memory.waiting import DEADLINE, agreeing
from mpicoll.mpi.requests import completed
from mpicoll.peers.known import Peers
from mpicoll.text.encoding import decode_alike, encode_for

_NUMBER = array("i").itemsize


def exchange(comm: MPI.Comm, item: Any, kind: Any = Any, peers: Peers | None = None) -> list[Any]:
    """Return every rank's item of a type, in rank order: without pickle, which mpi4py would use.

    Raises:
        RankLost: some rank did not come within the deadline.
    """
    peers = peers or Peers(comm.rank, comm.size)
    calls = peers.calls
    statement = array("i", [] if calls is None else calls.statement())
    head = bytes(array("i", [len(statement)]) + statement)
    peers.exchanges += 1
    parts = _gathered(comm, head + encode_for(kind, item), peers)
    heads = [_NUMBER + _NUMBER * int.from_bytes(part[:_NUMBER], byteorder) for part in parts]
    pairs = list(zip(parts, heads, strict=True))
    if calls is not None:
        calls.hear([array("i", part[_NUMBER:end]) for part, end in pairs])
    return decode_alike([part[end:] for part, end in pairs], kind)


def _gathered(comm: MPI.Comm, data: bytes, peers: Peers) -> list[bytes]:
    """Return the bytes of every rank of a communicator, in rank order."""
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


def exchange_items(comm: MPI.Comm, item: Any, kind: Any = Any) -> list[Any]:
    """Return every rank's item, in rank order; collective. It waits for as long as MPI would."""
    peers = Peers(comm.rank, comm.size)
    peers.deadline = mpi_deadline() or peers.deadline
    return exchange(comm, item, kind, peers)
