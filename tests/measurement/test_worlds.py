"""Forming the groups of a command."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torchcoll
from mpicoll.errors import ArgumentError, LaunchError
from mpicoll.measurement.worlds import TORCH_BACKEND, form_worlds


@pytest.mark.parametrize(("limit", "timeout"), [(60, 42), (0, 300)])
def test_ranks_meet_before_the_limit_of_a_hang(
    monkeypatch: pytest.MonkeyPatch, limit: float, timeout: float
) -> None:
    """torchcoll then names who has not come, where the watchdog knows stacks alone."""
    timeouts = []

    def world(**all_given: Any) -> None:
        timeouts.append(all_given["timeout"])
        raise LaunchError("waited for rank 1")

    monkeypatch.setattr(torchcoll, "world", world)
    watchdog: Any = SimpleNamespace(limit=limit, starting=lambda name: None)
    with pytest.raises(ArgumentError, match="torch is left out: waited for rank 1"):
        form_worlds(("torch",), None, TORCH_BACKEND, watchdog)
    assert timeouts == [pytest.approx(timeout)]
