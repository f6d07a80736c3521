"""Groups whose ranks have GPUs: real ones with ``MPICOLL_TEST_GPU=1``, else fake ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import fake_gpu
import pytest
from gpu_plans import MESSAGES, REAL

from mpicoll import Collectives, Unavailable
from mpicoll.backend import IPC
from mpicoll.gpu import ipc as device
from mpicoll.memory import slots


@pytest.fixture(scope="module")
def g(c: Collectives) -> Iterator[Collectives]:
    """A group of its own whose ranks have a GPU each, or share one."""
    part = c.split(0)
    assert part is not None
    if not REAL:
        fake_gpu.install(part)
    yield part
    part.free()


@pytest.fixture(params=[IPC, MESSAGES])
def way(request: pytest.FixtureRequest, g: Collectives) -> str:
    """By memory that ranks share, or by messages: staged, or direct where a library reads GPUs."""
    return IPC if request.param == IPC else g.transport.gpu_transport


@pytest.fixture
def fresh(c: Collectives) -> Iterator[Any]:
    """A group, on fake GPUs, that nothing has been opened on."""
    if REAL:
        pytest.skip("the fake ones")
    part = c.split(0)
    assert part is not None
    if part.size == 1 or part.transport.shared is None:
        pytest.skip("nothing is shared")
    arrays = fake_gpu.install(part)
    yield part, arrays
    part.free()


@pytest.fixture
def by_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hosts, instead of streams, wait for flags and raise them."""
    monkeypatch.setenv(device.ORDER, "0")


@pytest.fixture
def tiny(c: Collectives, g: Collectives, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every message a large one: in place, in pieces and tiles, and no double slots."""
    monkeypatch.setattr(device, "FETCHED_ROW", 32)
    with suppress(Unavailable):
        store = g.routes.gpu_memory(g.gpu())
        monkeypatch.setattr(store, "tile", 64 if store.orders else 0)
    monkeypatch.setattr(slots, "RING_BYTES", 1200)
    monkeypatch.setattr("mpicoll.peers.transport.STAGED_PIECE", 64)
