"""Millions of small calls: what counts as growth, and a share of the run."""

from __future__ import annotations

import pytest

import mpicoll
from tests.selftest.soak import Resources, growth, soak


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (Resources(1009, 5, 2, 0, 1.09, 0.05), []),
        (Resources(1000, 6, 2, 0, 1.2, 0.05), ["descriptors", "us"]),
        (Resources(1000, 5, 2, 0, 1.2, 0.04), ["us"]),
        (Resources(1000, 5, 2, 0, 1.48, 0.25), []),
        (Resources(1000, 5, 2, 0, 1.52, 0.25), ["us"]),
    ],
)
def test_growth(last: Resources, said: list[str]) -> None:
    found = growth([Resources(1000, 5, 2, 0, 1.0, 0.05), last])
    assert [each.partition(":")[0] for each in found] == said


def test_a_soak_holds_what_it_held() -> None:
    """On ranks that are threads: times say nothing there, and one sees what the other reads by."""
    found = mpicoll.threads(2)(lambda c: soak(c, 20_000, lambda text: None))[0]
    assert len(found) == 10
    grown = {each.partition(":")[0] for each in growth(found)}
    assert grown <= {"us", "descriptors"}
