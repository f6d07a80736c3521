"""The fit of Hockney's model to times of messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from mpicoll.measurement.hockney import fit

SIZES = (8, 65536, 1 << 20)


@given(some.floats(0.1, 1e4), some.floats(1e-3, 100), some.floats(0, 0.02), some.integers(0, 99))
def test_the_fit_recovers_alpha_and_beta(
    alpha: float, beta: float, noise: float, seed: int
) -> None:
    sizes = [8, 64, 1024, 65536, 1 << 20, 1 << 24] * 5
    shakes = np.random.default_rng(seed).uniform(-noise, noise, len(sizes))
    # Both must show: alpha at the smallest size, beta at the largest.
    assume(beta / 1000 * 8 < alpha < beta / 1000 * (1 << 24))
    points = [
        (size, (alpha + beta / 1000 * size) * (1 + shake))
        for size, shake in zip(sizes, shakes, strict=True)
    ]
    line = fit(points)
    assert line is not None
    assert line.alpha_us == pytest.approx(alpha, rel=0.15 if noise else 1e-6)
    assert line.beta_ns_per_byte == pytest.approx(beta, rel=0.15 if noise else 1e-6)
    assert line.error <= line.worst <= 3 * noise + 1e-6


@pytest.mark.parametrize("factor", [12, 1 / 12])
def test_a_pair_unlike_the_others_does_not_bend_the_line(factor: float) -> None:
    good = [(size, 2 + size / 1e4) for size in SIZES * 6]
    line = fit([*good, *((size, factor * (2 + size / 1e4)) for size in SIZES)])
    assert line is not None
    assert line.alpha_us == pytest.approx(2, rel=0.02)
    assert line.beta_ns_per_byte == pytest.approx(0.1, rel=0.02)
    assert line.worst > 0.5


@pytest.mark.parametrize("times", [(9.0, 1.0), (1.0, 1.0)])
def test_a_fit_is_never_negative(times: tuple[float, float]) -> None:
    line = fit(list(zip((8, 4096), times, strict=True)))
    assert line is not None and line.alpha_us >= 0 and line.beta_ns_per_byte >= 0


def test_one_size_makes_no_line() -> None:
    assert fit([(8, 1.0), (8, 1.1)]) is None
