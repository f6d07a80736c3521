"""The place of a call: the line of the user's source, however the call is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from recordings import recorded

import mpicoll
from mpicoll.flight.records import Location


def _by_a_method(c: mpicoll.Collectives) -> None:
    x = np.ones(4)
    for _ in range(4):
        c.allreduce(x)


def _by_a_plan(c: mpicoll.Collectives) -> None:
    plan = c.plan("allreduce", np.ones(4))
    for _ in range(4):
        plan.run()


def _by_a_started_plan(c: mpicoll.Collectives) -> None:
    plan = c.plan("allreduce", np.ones(4))
    for _ in range(4):
        plan.start().wait()


def _by_a_new_frame(c: mpicoll.Collectives) -> None:
    x = np.ones(4)

    def step() -> None:
        c.allreduce(x)

    for _ in range(4):
        step()


def _by_a_callback(c: mpicoll.Collectives) -> None:
    list(map(c.allreduce, [np.ones(4)] * 4))


@pytest.mark.parametrize(
    ("calls", "line", "function"),
    [
        (_by_a_method, 3, "_by_a_method"),
        (_by_a_plan, 3, "_by_a_plan"),
        (_by_a_started_plan, 3, "_by_a_started_plan"),
        (_by_a_new_frame, 4, "_by_a_new_frame.<locals>.step"),
        (_by_a_callback, 1, "_by_a_callback"),
    ],
)
def test_a_call_has_the_line_of_the_users_source(
    place: Path, calls: Callable[[mpicoll.Collectives], None], line: int, function: str
) -> None:
    """The first calls are served by Python, the later ones by the extension."""
    first = calls.__code__.co_firstlineno
    for dump in recorded(place, calls):
        entries = [entry for entry in dump.entries if entry.call.collective == "allreduce"]
        assert len(entries) == 4
        assert {entry.location for entry in entries} == {Location(__file__, first + line, function)}
