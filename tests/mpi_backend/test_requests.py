"""Requests that a rank has given up: MPI may still write to what they name."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from mpicoll import RankLost
from mpicoll.interfaces import Stage
from mpicoll.peers.known import Peers

MPI = pytest.importorskip("mpi4py.MPI")


class _Written:
    """Stands for memory that mpi4py does not keep."""


def test_what_mpi_writes_to_outlives_a_wait_that_was_given_up() -> None:
    from mpicoll.mpi.requests import _unfinished, completed

    peers = Peers(0, 1)
    peers.deadline = 0.05
    written, landing = _Written(), np.zeros(1, np.int64)
    kept = weakref.ref(written)
    request = MPI.COMM_SELF.Irecv(landing, 0, 77)
    with pytest.raises(RankLost, match="the other ranks, which did not come"):
        completed(request, peers, Stage("a call"), written)
    del written
    assert kept() is not None
    MPI.COMM_SELF.Send(np.ones(1, np.int64), 0, 77)
    _unfinished.pop()
    request.Wait()
    assert landing.tolist() == [1]
