"""Samples of calls that follow one another on the stream of a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mpicoll.measurement.candidate import Settings
from mpicoll.measurement.measure import Bench


@pytest.mark.parametrize(
    ("timing", "on_gpu", "first"), [("loop", True, 1), ("loop", False, 1), ("together", True, 0)]
)
def test_a_call_comes_before_the_first_event_of_a_loop(
    timing: str, on_gpu: bool, first: int
) -> None:
    """An event on an idle GPU would count how far apart the ranks begin.

    On the host few calls follow one, too, for what another candidate left in the caches.
    """
    events: list[str] = []
    reports = SimpleNamespace(wait=lambda: 0, exchange=lambda *_report, nap: [])
    bench: Any = SimpleNamespace(
        settings=Settings(timing=timing), synchroniser=reports, _needs_cores=lambda *_which: False
    )
    bench._is_stream = lambda workbench: Bench._is_stream(bench, workbench)
    watch = SimpleNamespace(
        start=lambda: events.append("start"),
        stop=lambda: events.append("stop"),
        nanoseconds=lambda: 1,
    )
    plan = SimpleNamespace(run=lambda: events.append("run"), transport="ipc")
    candidate: Any = SimpleNamespace(plan=plan, case=SimpleNamespace(backend="torch"))
    workbench: Any = SimpleNamespace(on_gpu=on_gpu, watch=watch)
    Bench.sample(bench, candidate, 2, workbench)
    assert events == ["run"] * first + ["start", "run", "run", "stop"]
