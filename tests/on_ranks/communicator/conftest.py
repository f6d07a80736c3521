"""Communicators that are served from their first call on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mpi4py import MPI

from mpicoll import Collectives, Comm
from mpicoll.mpi.communicator import state
from mpicoll.mpi.communicator.state import WARMUP


@pytest.fixture
def served_at_once(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no first calls to MPI, and record no calls where those of a freed communicator are."""
    monkeypatch.setenv(WARMUP, "0")
    monkeypatch.setattr(state, "_closed_flights", {})


@pytest.fixture
def comm(served_at_once: None) -> Iterator[Comm]:
    world = Comm(MPI.COMM_WORLD.Dup())
    yield world
    world.Free()
