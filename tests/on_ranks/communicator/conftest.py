"""Communicators that are served from their first call on."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import pytest
from mpi4py import MPI

from mpicoll import Collectives, Comm
from mpicoll.mpi.communicator import classes, levels


@pytest.fixture
def served_at_once(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no first calls to MPI."""
    monkeypatch.setattr(levels, "LEVELS_AFTER", 0)
    monkeypatch.setattr(classes, "FIRST_MADE", inf)


@pytest.fixture
def comm(served_at_once: None) -> Iterator[Comm]:
    world = Comm(MPI.COMM_WORLD.Dup())
    yield world
    world.Free()
