"""The clocks of hosts, compared by calls whose true times the tests know."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from synthetic_job import MILLISECOND, dump, lockstep

from mpicoll.flight.reader import Dump
from mpicoll.verdict.clocks import align

CALLS = 200


def two_hosts(ahead: Callable[[int], float], lateness: float = 0.0, boots: int = 2) -> list[Dump]:
    """Return two hosts with two ranks each; the second clock is `ahead(call)` milliseconds ahead.

    Args:
        lateness: milliseconds by which the second host comes late, but for every 50th call.
    """
    draw = random.Random(1)
    delays = [
        [draw.random() * 0.3 + (lateness if rank > 1 and call % 50 else 0.0) for rank in range(4)]
        for call in range(CALLS)
    ]
    rows = lockstep(delays, ahead=lambda call, rank: ahead(call) if rank > 1 else 0.0)
    return [
        dump(rank, rows[rank], host=f"host{rank // 2}", boot=f"boot{rank // 2 % boots}")
        for rank in range(4)
    ]


@pytest.mark.parametrize("lateness", [0.0, 4.0])
@pytest.mark.parametrize("ahead", [0.0, 3.7, -5000.0])
def test_an_offset_is_found_within_its_error(ahead: float, lateness: float) -> None:
    alignment = align(two_hosts(lambda call: ahead, lateness))
    assert alignment.faults == []
    assert alignment.pieces["host0"] == [(0, 0, 0)]
    [piece] = alignment.pieces["host1"]
    assert abs(piece.offset + ahead * MILLISECOND) <= piece.error
    # The ranks leave the call together, so the likely offset is exact.
    assert abs(piece.offset + ahead * MILLISECOND) < 1000
    ends = {dump.entries[70].end for dump in alignment.dumps}
    assert max(ends) - min(ends) < 1000


def test_hosts_with_one_kernel_have_one_clock() -> None:
    dumps = two_hosts(lambda call: 0.0, boots=1)
    alignment = align(dumps)
    assert alignment.dumps == dumps
    assert alignment.error == 0


def test_a_clock_that_jumps_is_named_and_compared_on_both_sides() -> None:
    alignment = align(two_hosts(lambda call: 2000.0 if call >= 120 else 1.0))
    [fault] = alignment.faults
    assert "The clock of host1 jumps 1 time, by up to 2 s" in fault
    for place in (50, 119, 120, 180):
        ends = [dump.entries[place].end for dump in alignment.dumps]
        assert max(ends) - min(ends) < 0.1 * MILLISECOND


def test_a_clock_that_drifts_is_no_fault() -> None:
    alignment = align(two_hosts(lambda call: call * 1e-4 * 10))
    assert alignment.faults == []
    for place in (0, 100, 199):
        ends = [dump.entries[place].end for dump in alignment.dumps]
        assert max(ends) - min(ends) < 0.5 * MILLISECOND


def test_hosts_without_a_common_call_are_named() -> None:
    dumps = two_hosts(lambda call: 0.0)
    lonely = [dump._replace(entries=[]) if dump.rank > 1 else dump for dump in dumps]
    [fault] = align(lonely).faults
    assert "The clock of host1 cannot be compared" in fault
