"""Whether this process is a fork of the one in which a group was made."""

from __future__ import annotations

import os

FORKED = "this process is a fork of a rank, and none itself"
"""The reason why it makes no call of its parent's groups."""
_forks = [0]


def generation() -> int:
    """Return how often this process is a fork of the one that has loaded this module."""
    return _forks[0]


def _count() -> None:
    _forks[0] += 1


os.register_at_fork(after_in_child=_count)
