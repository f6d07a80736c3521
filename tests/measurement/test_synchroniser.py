"""The start of a sample: one deadline for all ranks, from clocks that are compared."""

from __future__ import annotations

from typing import Any

import pytest

from mpicoll import Collectives
from mpicoll.measurement import clock
from mpicoll.measurement.synchroniser import StartSynchroniser
from mpicoll.threads.transport import ThreadTransport

pytestmark = pytest.mark.threads_only


def test_all_ranks_get_all_reports_and_one_deadline(c: Collectives) -> None:
    start = StartSynchroniser(c, oversubscribed=True)
    reports = start.exchange(delay=c.rank, elapsed=10 * c.rank, host=7, switches=c.rank + 1)
    assert [report[1:] for report in reports] == [(r, 10 * r, 7, r + 1) for r in range(c.size)]
    agreed = start.deadline, start.time
    assert set(c.exchange(agreed, tuple[int, int])) == {agreed}
    assert start.deadline == max(report.now for report in reports) + start.margin


def test_nobody_starts_before_the_deadline(c: Collectives) -> None:
    start = StartSynchroniser(c, oversubscribed=True)
    start.exchange()
    delay = start.wait()
    assert delay >= 0
    assert clock.now() + start.offset >= start.deadline


@pytest.mark.ranks(2)
def test_the_margin_follows_those_that_come_late(c: Collectives) -> None:
    start = StartSynchroniser(c, oversubscribed=True)
    first = start.margin
    start.adapt(was_late=True)
    assert start.margin == int(1.5 * first)
    for _ in range(1000):
        start.adapt(was_late=False)
    assert start.margin == 10_000


@pytest.fixture(params=[0, 5_000_000_000])
def skew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How far rank 0's clock is ahead of the others', as its answers say."""
    sent = ThreadTransport.isend

    def ahead(self: ThreadTransport, x: Any, peer: int, tag: int) -> Any:
        return sent(self, x + (self.rank == 0) * request.param, peer, tag)

    monkeypatch.setattr(ThreadTransport, "isend", ahead)
    return int(request.param)


@pytest.mark.ranks(3)
def test_a_clock_that_differs_is_noticed(c: Collectives, skew: int) -> None:
    offset, error = clock.offset_to_root(c, force=True)
    assert abs(offset - (skew if c.rank else 0)) <= error + 1
    c.barrier()


@pytest.mark.ranks(3)
def test_ranks_of_one_node_have_one_clock(c: Collectives) -> None:
    assert clock.offset_to_root(c) == (0, 0)
