"""Alltoall, scan, exscan, gather and scatter: what their newer algorithms must keep to."""

from __future__ import annotations

import pytest

from mpicoll.algorithms import algorithm, find
from mpicoll.schedule import send


@pytest.mark.parametrize(
    ("of", "equal"), [("gather", (1, 1, 1)), ("alltoall", ((1, 1, 1),) * 3)]
)  # fmt: skip
def test_counts_reach_the_generators_that_ask_for_them(
    of: str, equal: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mpicoll import algorithms as registry

    monkeypatch.setitem(registry._REGISTRY, of, dict(registry._REGISTRY[of]))

    @algorithm(of)
    def told(rank: int, size: int, counts):
        yield send(1, counts)

    found = find(of, "told")
    assert found.parameters == {}
    assert found.takes("counts")
    assert not found.takes("root")
    assert found.rounds(0, 3) == [(send(1, equal),)]
    assert found.rounds(0, 3, counts=(2, 0, 1)) == [(send(1, (2, 0, 1)),)]
