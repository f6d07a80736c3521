"""Fit Hockney's model, alpha + beta x bytes, to the times of single messages.

The sum of squared *relative* errors is made least, so that 8 bytes count as much as 4 MiB, and
points that lie far from the line count less with every round (Huber's weights): a pair with a
bad cable does not bend the line of its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mpicoll.bench.statistics import percentile

Point = tuple[int, float]
"""Bytes, and the microseconds that one message of them takes."""

_ROUNDS = 30
_HUBER = 1.345
_SCALE = 1.4826  # from the median of absolute errors to a standard deviation


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
    weights = np.ones(len(points))
    alpha = beta = 0.0
    for _ in range(_ROUNDS):
        alpha, beta = _line(sizes, times, weights)
        errors = np.abs((alpha + beta * sizes) / times - 1)
        scale = max(_SCALE * float(np.median(errors)), 1e-12)
        weights = np.minimum(1, _HUBER * scale / np.maximum(errors, 1e-15))
    found = errors.tolist()
    return Fit(alpha, 1000 * beta, percentile(found, 50), percentile(found, 95), len(points))


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
