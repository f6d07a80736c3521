"""Intervals that hold what they promise, whatever the distribution."""

from __future__ import annotations

import random
from math import isclose

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy.stats import binom, binomtest, quantile_test

from mpicoll.measurement.statistics import (
    FLOOR,
    is_enough,
    median_interval,
    order_of_bound,
    percentile,
    speedup,
    summary,
)

TIMES = some.lists(some.floats(1e-3, 1e6), min_size=1, max_size=60)


CONFIDENCES = some.sampled_from([0.8, 0.9, 0.95, 0.99])


@given(count=some.integers(1, 500), confidence=CONFIDENCES)
def test_the_bounds_are_quantiles_of_the_binomial_distribution(
    count: int, confidence: float
) -> None:
    assert order_of_bound(count, confidence) == binom.ppf((1 - confidence) / 2, count, 0.5)


@given(count=some.integers(501, 10**6), confidence=CONFIDENCES)
def test_many_samples_have_the_bounds_of_the_normal_distribution(
    count: int, confidence: float
) -> None:
    exact = binom.ppf((1 - confidence) / 2, count, 0.5)
    assert abs(order_of_bound(count, confidence) - exact) <= 1


@given(some.lists(some.floats(1e-3, 1e6), min_size=6, max_size=60), CONFIDENCES)
def test_the_interval_of_a_median_is_that_of_scipy(samples: list[float], confidence: float) -> None:
    interval = median_interval(samples, confidence)
    reference = quantile_test(samples, p=0.5).confidence_interval(confidence)
    assert interval.value == pytest.approx(np.median(samples), rel=1e-12)
    if is_enough(len(samples), confidence):
        assert (interval.low, interval.high) == (reference.low, reference.high)


@given(some.lists(some.floats(0.5, 2.0), min_size=6, max_size=60, unique=True))
def test_a_ratio_is_no_tie_where_the_sign_test_rejects_one(ratios: list[float]) -> None:
    ratio = speedup(blocks(ratios), blocks([1.0] * len(ratios)))
    assert ratio is not None
    for bound, name in ((1 + FLOOR, "faster"), (1 / (1 + FLOOR), "slower")):
        beyond = sum(value > bound if name == "faster" else value < bound for value in ratios)
        is_beyond = 2 * beyond > len(ratios)
        p = binomtest(beyond, len(ratios)).pvalue
        assert (ratio.verdict == name) == (is_beyond and p <= 0.05)


def test_few_samples_carry_no_interval() -> None:
    assert [is_enough(count) for count in (1, 5, 6)] == [False, False, True]


@given(TIMES)
def test_interval_encloses_the_median(samples: list[float]) -> None:
    value, low, high = median_interval(samples)
    assert min(samples) <= low <= value <= high <= max(samples)


@given(TIMES, some.floats(1e-2, 1e2))
def test_interval_scales(samples: list[float], factor: float) -> None:
    plain = median_interval(samples)
    scaled = median_interval([factor * sample for sample in samples])
    assert all(isclose(factor * a, b, rel_tol=1e-9) for a, b in zip(plain, scaled, strict=True))


@given(TIMES, some.randoms())
def test_order_does_not_matter(samples: list[float], shuffler: random.Random) -> None:
    shuffled = samples.copy()
    shuffler.shuffle(shuffled)
    first, second = summary(shuffled), summary(samples)
    assert all(isclose(first[key], second[key], rel_tol=1e-12) for key in first)


def test_interval_covers_the_true_median_of_skewed_times() -> None:
    dice = random.Random(1)
    hits = 0
    for _ in range(2000):
        _, low, high = median_interval([dice.lognormvariate(0, 2) for _ in range(15)])
        hits += low <= 1 <= high
    assert hits / 2000 >= 0.94


def blocks(values: list[float]) -> dict[int, float]:
    return dict(enumerate(values))


@pytest.mark.parametrize(
    ("factor", "verdict"), [(2.0, "faster"), (0.5, "slower"), (1.0, "tie")], ids=str
)
def test_speedup_sees_through_drift(factor: float, verdict: str) -> None:
    """Times that triple while measuring still give the exact ratio, block by block."""
    drift = [1 + 2 * block / 20 for block in range(20)]
    ratio = speedup(blocks(drift), blocks([time / factor for time in drift]))
    assert ratio is not None and ratio.verdict == verdict
    assert isclose(ratio.ratio, factor)


def test_noise_is_a_tie() -> None:
    dice = random.Random(7)
    times = [[dice.lognormvariate(0, 0.3) for _ in range(40)] for _ in range(2)]
    ratio = speedup(blocks(times[0]), blocks(times[1]))
    assert ratio is not None and ratio.verdict == "tie"


def test_too_few_blocks_are_a_tie() -> None:
    ratio = speedup(blocks([2.0] * 5), blocks([1.0] * 5))
    assert ratio is not None and (ratio.ratio, ratio.verdict) == (2.0, "tie")


def test_only_common_blocks_count() -> None:
    ratio = speedup({0: 4.0, 1: 100.0}, {0: 2.0, 2: 0.1})
    assert ratio is not None and ratio.ratio == 2.0
    assert speedup({0: 1.0}, {1: 1.0}) is None


@given(TIMES, some.floats(1, 100))
def test_a_percentile_is_that_of_numpy(samples: list[float], percent: float) -> None:
    reference = np.percentile(samples, percent, method="inverted_cdf")
    assert percentile(samples, percent) == reference
