"""Tables of rows: how copies are slot_modes, and which fetches are one call of the system."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpicoll import tuning
from mpicoll.engine import compiled
from mpicoll.engine.compiled import AWAIT, COPY, FETCH
from mpicoll.threads import threads


@pytest.mark.parametrize(
    ("collective", "nbytes", "slots", "results"),
    [
        ("allgather", 1024, compiled.CACHED, compiled.CACHED),
        ("allgather", 2048, compiled.ADAPTIVE, compiled.CACHED),
        ("reduce", 1 << 18, compiled.ADAPTIVE, None),
        ("broadcast", 3 << 18, compiled.ADAPTIVE, compiled.CACHED),
        ("alltoall", 1 << 20, compiled.ADAPTIVE, compiled.STREAMED),
    ],
)  # fmt: skip
def test_slots_are_written_adaptively_and_large_results_past_the_cache(
    collective: str, nbytes: int, slots: int, results: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache of another core holds every line of a slot that it has read before."""
    monkeypatch.setattr(tuning, "STREAMED_RESULTS", 2 << 20)
    modes = modes_of(collective, nbytes, monkeypatch)
    assert modes == ({slots}, set() if results is None else {results})


def modes_of(
    collective: str, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[set[int], set[int]]:
    """Return how a call writes slots, and how results."""
    slot_modes, results = set(), set()

    def note(
        table: Any, code: int, target: compiled.Operand, *operands: Any, **options: Any
    ) -> None:
        if code == COPY:
            (results if target.register == compiled.OUTPUT else slot_modes).add(options["extra"])
        add(table, code, target, *operands, **options)

    add = compiled.Table._row
    x = np.ones((2, nbytes) if collective == "alltoall" else nbytes, np.uint8)
    with monkeypatch.context() as patched:
        patched.setattr(compiled.Table, "_row", note)
        threads(2)(lambda c: getattr(c, collective)(x, algorithm="naive@symmetric"))
    return slot_modes, results


def test_what_is_fetched_to_one_place_is_fetched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of the system takes microseconds; what is folded is fetched tile by tile."""
    counts = []

    def note(table: Any) -> None:
        fill(table)
        codes = table.rows[:: compiled._COLUMNS]
        counts.append((codes.count(FETCH), codes.count(AWAIT)))

    fill = compiled.Table.fill
    monkeypatch.setattr(compiled.Table, "fill", note)
    x = np.arange(1 << 19, dtype=np.float32).reshape(2, -1)
    y = threads(2)(lambda c: c.alltoall(x + c.rank, algorithm="naive@cma"))
    np.testing.assert_array_equal(y[0][1], x[0] + 1)
    assert counts == [(1, 2)] * 2
    threads(2)(lambda c: c.reduce_scatter(x, algorithm="direct@cma"))
    assert counts[2:] == [(2, 2)] * 2
