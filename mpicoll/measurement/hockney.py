"""Fit Hockney's model, alpha + beta x bytes, to the times of single messages.

The fit minimises the sum of squared *relative* errors, so that 8 bytes count as much as 4 MiB. A
point has less weight the farther it lies from the median of its own size (Cauchy's weights): a pair
with a bad cable does not bend the line of its class. A robust loss over the distances from the line
would do the same, but drop a whole size that no line fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from statistics import median
from typing import NamedTuple

import numpy as np

from mpicoll.measurement.statistics import percentile

Point = tuple[int, float]
"""Bytes, and the microseconds that one message of them takes."""

_CAUCHY = 2.385 * 1.4826  # the usual width, and from a median of distances to a deviation
_MIN_SPREAD = 0.01


class Fit(NamedTuple):
    """The cost of a message: microseconds of start-up, nanoseconds for each byte.

    Attributes:
        error: the median of the relative errors of the points; `worst`: their 95th percentile.
    """

    alpha_us: float
    beta_ns_per_byte: float
    error: float
    worst: float
    points: int

    @property
    def GBps(self) -> float | None:
        """The bandwidth of large messages, None where beta is 0."""
        return 1 / self.beta_ns_per_byte if self.beta_ns_per_byte else None


def fit(points: Sequence[Point]) -> Fit | None:
    """Return the fit to these points, None where all have one size."""
    if len({size for size, _ in points}) < 2:
        return None
    sizes = np.array([size for size, _ in points], float)
    times = np.array([time for _, time in points])
    alpha, beta = _line(sizes, times, _weights(points))
    errors = np.abs((alpha + beta * sizes) / times - 1)
    sample = errors.tolist()
    return Fit(alpha, 1000 * beta, percentile(sample, 50), percentile(sample, 95), len(points))


def _weights(points: Sequence[Point]) -> np.ndarray:
    """Return the weight of each point, by its distance from the median of its size."""
    by_size: dict[int, list[float]] = {}
    for size, time in points:
        by_size.setdefault(size, []).append(time)
    middles = {size: median(times) for size, times in by_size.items()}
    distances = [abs(log(time / middles[size])) for size, time in points]
    # One width for all sizes: a size with few points says little about their spread.
    width = _CAUCHY * max(median(distances), _MIN_SPREAD)
    return 1 / (1 + (np.array(distances) / width) ** 2)


def _line(sizes: np.ndarray, times: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Return alpha and beta, neither below 0, with the least weighted relative errors."""
    root = np.sqrt(weights)
    alpha, beta = least_squares(np.stack([root / times, root * sizes / times], axis=1), root)
    return alpha, beta


def least_squares(rows: np.ndarray, targets: np.ndarray) -> list[float]:
    """Return the factors, none below 0, that bring rows closest to their targets.

    (Lawson and Hanson 1974)
    """
    from scipy.optimize import nnls  # slow to import, and needed after everything is measured

    # Bytes are millions where alpha is 1: solve in units that are alike.
    scale = np.linalg.norm(rows, axis=0)
    scale[scale == 0] = 1.0
    factors, _ = nnls(rows / scale, targets)
    return [float(factor) for factor in factors / scale]
