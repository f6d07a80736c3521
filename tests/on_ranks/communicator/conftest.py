"""Communicators that are served from their first call on."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import pytest
from mpi4py import MPI

from mpicoll import Collectives, Comm
from mpicoll.mpi.communicator import classes, levels, state


@pytest.fixture
def served_at_once(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave no first calls to MPI, and go on with nothing of a freed communicator."""
    closed: list[state.State] = []
    monkeypatch.setattr(levels, "LEVELS_AFTER", 0)
    monkeypatch.setattr(classes, "FIRST_MADE", inf)
    monkeypatch.setattr(state, "_closed", closed)
    yield
    for freed in closed:
        freed.release()


@pytest.fixture
def comm(served_at_once: None) -> Iterator[Comm]:
    world = Comm(MPI.COMM_WORLD.Dup())
    yield world
    world.Free()
