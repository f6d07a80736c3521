"""The bytes that ping-pongs send, and the memory of their buffers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from mpicoll.measurement.checking import compare
from mpicoll.measurement.huge_pages import huge_pages
from mpicoll.measurement.patterns import Repeated
from mpicoll.measurement.ping_pong import pattern


def as_array(values: Repeated) -> np.ndarray:
    """Return values as one array."""
    return np.concatenate([*values.pieces()])


@given(
    some.integers(0, 40),
    some.integers(0, 40),
    some.integers(1, 1000) | some.integers(10**6, 2 * 10**6),
)
def test_patterns_differ_by_sender_and_position(rank: int, peer: int, count: int) -> None:
    assume(rank != peer)
    good, peer_bytes = (as_array(pattern(sender, count)) for sender in (rank, peer))
    assert (good != 255).all()
    assert (good != peer_bytes).all()
    assert count == 1 or (good[1:] != good[:-1]).all()
    assert compare(0, [(np.full(count, 255, "uint8"), good)]) is not None


@pytest.mark.parametrize("nbytes", [1, 4096, 5 << 20])
def test_buffers_begin_a_huge_page(nbytes: int) -> None:
    memory = huge_pages(nbytes)
    whole = np.frombuffer(memory, "uint8")
    assert whole.size == nbytes and whole.ctypes.data % (2 << 20) == 0
    whole[-1] = 7
    assert memory[nbytes - 1] == 7
