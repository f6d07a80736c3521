"""What the environment states for every group of ranks: the deadline, and the order of folding."""

from __future__ import annotations

import os

from mpicoll.errors import ArgumentError

DEADLINE, REPRODUCIBLE = "MPICOLL_DEADLINE", "MPICOLL_REPRODUCIBLE"
_SECONDS = 300.0


def is_reproducible() -> bool:
    """Whether this process asks for one order of folding."""
    return os.environ.get(REPRODUCIBLE, "").lower() in ("1", "on", "yes", "true")


def default_deadline() -> float:
    """Return the deadline in seconds that the environment states, 300 by default."""
    text = os.environ.get(DEADLINE, str(_SECONDS))
    try:
        return check_deadline(float(text))
    except ValueError:
        raise ArgumentError(f"{DEADLINE} must be a number of seconds, not {text!r}") from None


def check_deadline(seconds: float) -> float:
    """Return a deadline in seconds, or raise ArgumentError."""
    if not seconds > 0:
        raise ArgumentError(f"a deadline must be a positive number of seconds, not {seconds!r}")
    return float(seconds)
