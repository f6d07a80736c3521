"""Every registered algorithm, and its name as the id of a test."""

from __future__ import annotations

from mpicoll.algorithms.registry import Algorithm, algorithms
from mpicoll.notation.contract import COLLECTIVES

CATALOGUE = [each for name in COLLECTIVES for each in algorithms(name)]


def label(value: object) -> str:
    return f"{value.collective.name}-{value}" if isinstance(value, Algorithm) else str(value)
