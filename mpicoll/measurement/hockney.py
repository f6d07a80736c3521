"""Fit Hockney's model, alpha + beta x bytes, to the times of single messages.

The sum of squared *relative* errors is made least, so that 8 bytes count as much as 4 MiB. A
point counts less the farther it lies from the median of its own size (Cauchy's weights): a pair
with a bad cable does not bend the line of its class, and a size that no line fits still counts.
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
_LEAST = 0.01


class Fit(NamedTuple):
    """What a message costs: microseconds to begin, nanoseconds for each byte.

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
        """The bandwidth that beta tends to, None where size made no difference."""
        return 1 / self.beta_ns_per_byte if self.beta_ns_per_byte else None


def fit(points: Sequence[Point]) -> Fit | None:
    """Return the line through these points, None where they have a single size."""
    if len({size for size, _ in points}) < 2:
        return None
    sizes = np.array([size for size, _ in points], float)
    times = np.array([time for _, time in points])
    alpha, beta = _line(sizes, times, _weights(points))
    errors = np.abs((alpha + beta * sizes) / times - 1)
    found = errors.tolist()
    return Fit(alpha, 1000 * beta, percentile(found, 50), percentile(found, 95), len(points))


def _weights(points: Sequence[Point]) -> np.ndarray:
    """Return how much each point counts, by its distance from the median of its size."""
    by_size: dict[int, list[float]] = {}
    for size, time in points:
        by_size.setdefault(size, []).append(time)
    middles = {size: median(times) for size, times in by_size.items()}
    distances = [abs(log(time / middles[size])) for size, time in points]
    # All sizes together: one of few points does not tell how points scatter.
    width = _CAUCHY * max(median(distances), _LEAST)
    return 1 / (1 + (np.array(distances) / width) ** 2)


def _line(sizes: np.ndarray, times: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Return alpha and beta, neither below 0, that make the weighted relative errors least."""
    root = np.sqrt(weights)
    terms = np.stack([root / times, root * sizes / times])
    # Bytes are millions where alpha is 1: solve in units that are alike.
    scale = np.linalg.norm(terms, axis=1)
    alpha, beta = np.linalg.lstsq((terms / scale[:, None]).T, root, rcond=None)[0] / scale
    if alpha >= 0 and beta >= 0:
        return float(alpha), float(beta)
    alone = terms[1] if alpha < 0 else terms[0]
    only = float(alone @ root / (alone @ alone))
    return (0.0, only) if alpha < 0 else (only, 0.0)
