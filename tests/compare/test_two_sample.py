"""The comparison of two samples: shifts, chances and correlation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy.stats import mannwhitneyu
from two_runs import times

from mpicoll.compare.two_sample import Shift, can_differ, correlation, holm, scatter, shift


@pytest.mark.parametrize(("factor", "p"), [(2.0, 0.001), (1.2, 0.001), (1 / 1.2, 0.001)])
def test_a_factor_is_found(factor: float, p: float) -> None:
    ratio = shift(times(5.0, 1), times(5.0 / factor, 2))
    assert ratio.low < factor < ratio.high and ratio.p < p
    assert ratio.ratio == pytest.approx(factor, rel=0.03)


def zigzag(samples: Sequence[float]) -> list[float]:
    """Order samples so that neighbours are unlike: their correlation is below 0."""
    ordered, half = sorted(samples), len(samples) // 2
    return [
        sample
        for pair in zip(ordered[:half], ordered[: half - 1 : -1], strict=True)
        for sample in pair
    ]


@pytest.mark.parametrize("margin", [0.0, 0.03])
@pytest.mark.parametrize(("count", "method"), [(6, "exact"), (30, "exact"), (60, "asymptotic")])
def test_without_correlation_the_test_is_that_of_scipy(
    count: int, method: Any, margin: float
) -> None:
    first, second = (zigzag(times(us, seed, count)) for us, seed in ((1.0, 1), (0.96, 2)))
    expected = min(
        mannwhitneyu(
            slow, (1 + margin) * np.array(fast), alternative="greater", method=method
        ).pvalue
        for slow, fast in ((first, second), (second, first))
    )
    assert shift(first, second, margin).p == pytest.approx(min(1, 2 * expected), rel=1e-9)


@given(some.lists(some.floats(0.1, 1e4), min_size=4, max_size=25),
       some.lists(some.floats(0.1, 1e4), min_size=4, max_size=25))  # fmt: skip
def test_swapping_the_runs_inverts_the_ratio(a: list[float], b: list[float]) -> None:
    ratio, inverse = shift(a, b), shift(b, a)
    assert ratio.ratio == pytest.approx(1 / inverse.ratio, rel=1e-6) or len(a) * len(b) % 2 == 0
    assert ratio.low == pytest.approx(1 / inverse.high) and ratio.p == pytest.approx(inverse.p)
    assert ratio.low <= ratio.ratio <= ratio.high


def test_equals_are_called_different_as_rarely_as_promised() -> None:
    is_different = [
        shift(times(3.0, 2 * n, 10), times(3.0, 2 * n + 1, 10)).p < 0.05 for n in range(1000)
    ]
    assert sum(is_different) / 1000 <= 0.065


def test_correlated_samples_count_for_less() -> None:
    """Waves as long as half a run would be taken for differences, were they independent."""
    dice = random.Random(4)

    def wave() -> list[float]:
        level, levels = 1.0, []
        for _ in range(40):
            level = 0.8 * level + dice.gauss(0.2, 0.02)
            levels.append(level)
        return levels

    waves = [(wave(), wave()) for _ in range(400)]
    assert sum(shift(a, b).p < 0.05 for a, b in waves) / 400 < 0.15
    assert (correlation(waves[0][0]) or 0) > 0.4


@pytest.mark.parametrize(("a", "b", "can"), [(3, 3, False), (4, 4, True), (0, 9, False)])
def test_few_samples_carry_no_interval(a: int, b: int, can: bool) -> None:
    assert can_differ(a, b) is can


@given(some.lists(some.floats(0, 1), min_size=1, max_size=40))
def test_holm_finds_no_more_than_single_tests(chances: list[float]) -> None:
    significant = holm(chances)
    assert all(
        chance <= 0.05 for chance, is_real in zip(chances, significant, strict=True) if is_real
    )
    assert not any(chances[n] < min(chances) for n, is_real in enumerate(significant) if is_real)


def test_equals_that_differ_give_the_scatter() -> None:
    equals = [Shift(1.0, 0.9, 1.1, 1.0)] * 18 + [Shift(1.3, 1.2, 1.4, 0.0)] * 2
    assert scatter(equals) == pytest.approx(1.2)
