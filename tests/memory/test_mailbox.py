"""Small items between the ranks of a node: of any length, and of ranks that run ahead."""

from __future__ import annotations

import time

import pytest

from mpicoll import Collectives
from mpicoll.memory.mailbox import CAPACITY, Mailbox

pytestmark = [pytest.mark.ranks(2, 3), pytest.mark.threads_only]


def mailbox(c: Collectives) -> Mailbox:
    assert c.transport.shared is not None and c.transport.shared.mailbox is not None
    return c.transport.shared.mailbox


@pytest.mark.parametrize("length", [0, 1, CAPACITY - 30, CAPACITY, 2 * CAPACITY, 5 * CAPACITY])
def test_items_of_any_length(c: Collectives, length: int) -> None:
    found = mailbox(c).exchange(bytes([c.rank]) * (length * c.rank))
    assert found == [bytes([rank]) * (length * rank) for rank in range(c.size)]


def test_a_rank_that_runs_ahead_waits(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has read an item before the next but one takes its place."""
    box = mailbox(c)
    wait = box.wait

    def late(*given: object) -> None:
        if c.rank == c.size - 1:
            time.sleep(0.003)
        wait(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(box, "wait", late)
    for turn in range(8):
        found = box.exchange((c.rank, turn), tuple[int, int])
        assert found == [(rank, turn) for rank in range(c.size)]
