"""Forming the groups of a command."""

from __future__ import annotations

import pytest

from mpicoll.cli.watchdog import Watchdog
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError, LaunchError
from mpicoll.measurement.worlds import form_worlds


@pytest.mark.parametrize(("limit", "least", "most"), [(1e6, 5e5, 9e5), (0, 300, 300)])
def test_ranks_meet_before_the_limit_of_a_hang(limit: float, least: float, most: float) -> None:
    """A backend then names who has not come, where the watchdog knows stacks alone."""
    given = []

    def make(interface: str | None, timeout: float = 0) -> Collectives:
        given.append(timeout)
        raise LaunchError("waited for rank 1")

    with pytest.raises(ArgumentError, match="torch is left out: waited for rank 1"):
        form_worlds(("torch",), None, {"torch": make}, Watchdog(limit))
    assert least <= given[0] <= most
