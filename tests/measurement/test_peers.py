"""Members that differ from their peers, and equal ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from mpicoll.measurement.peers import CHANCE, compare

Numbers = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, int], Numbers]
_TRIALS = 40
NOISES: dict[str, Noise] = {
    "normal": lambda source, rows, size: source.normal(size=(rows, size)),
    "exponential": lambda source, rows, size: source.exponential(size=(rows, size)),
    "rare": lambda source, rows, size: 50.0 * (source.random((rows, size)) < 0.02),
    "lasting": lambda source, rows, size: np.repeat(
        source.exponential(size=(-(-rows // 10), size)), 10, axis=0
    )[:rows],
}


@pytest.mark.parametrize("members", [2, 8])
@pytest.mark.parametrize("rows", [12, 300])
@pytest.mark.parametrize("noise", NOISES)
def test_equal_members_hardly_ever_differ(noise: str, rows: int, members: int) -> None:
    source = np.random.default_rng(5)
    blocks = max(1, rows // 10) if noise == "lasting" else 64
    blamed = sum(
        any(excess.is_real for excess in compare(NOISES[noise](source, rows, members), blocks))
        for _ in range(_TRIALS)
    )
    assert blamed <= _TRIALS * CHANCE + 2


@pytest.mark.parametrize("noise", ["normal", "exponential"])
@pytest.mark.parametrize(("rows", "members"), [(20, 2), (20, 4), (300, 2), (300, 16)])
def test_a_member_with_larger_values_differs(rows: int, members: int, noise: str) -> None:
    values = NOISES[noise](np.random.default_rng(1), rows, members)
    values[:, 1] += 3.0
    excesses = compare(values)
    assert [place for place, excess in enumerate(excesses) if excess.is_real] == [1]
    assert excesses[1].mean == pytest.approx(3.0, abs=0.8)


@pytest.mark.parametrize("members", [2, 3])
def test_rare_but_large_values_of_one_member_count(members: int) -> None:
    values = NOISES["normal"](np.random.default_rng(2), 400, members)
    values[::20, 0] += 40.0
    assert [excess.is_real for excess in compare(values)] == [True] + [False] * (members - 1)


def test_one_long_event_neither_makes_nor_hides_an_excess() -> None:
    values = NOISES["normal"](np.random.default_rng(3), 100, 3)
    values[7, 2] += 1e6
    assert not any(excess.is_real for excess in compare(values))
    values[:, 0] += 3.0
    assert [excess.is_real for excess in compare(values)] == [True, False, False]
