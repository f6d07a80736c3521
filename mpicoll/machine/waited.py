"""How long a process has waited, which a job that was suspended has not."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic, sleep

from mpicoll.c_extension import _compiled
from mpicoll.tuning import FIRST_NAP, LAST_NAP

_STOPPED = 1.0
"""Seconds between two looks from which on a process was stopped instead of waiting."""
_FIRST, _LONGEST = 0.05, 2.0
"""Seconds between two looks at the ranks that are missing: the longer a wait, the fewer.

With many ranks both are longer, as each look of each rank is a question.
"""


class Waited:
    """The seconds that a process has waited, without those in which it was stopped.

    A job that a batch system suspends and resumes has lost no rank, and does not hang.
    """

    def __init__(self) -> None:
        self.seconds, self.looked = 0.0, monotonic()

    def look(self) -> float:
        """Return the seconds until now; who waits looks several times in a second."""
        now = monotonic()
        self.seconds += min(now - self.looked, _STOPPED)
        self.looked = now
        return self.seconds


def comes(test: Callable[[], object], seconds: float, last_nap: float = LAST_NAP) -> bool:
    """Whether a test holds within so many seconds, which pass between ever longer naps."""
    end, nap = monotonic() + seconds, FIRST_NAP
    while not test():
        if monotonic() >= end:
            return False
        sleep(nap)
        nap = min(1.5 * nap, last_nap)
    return True


class Looks(Waited):
    """The seconds of a wait, and when it looks at the ranks that are missing.

    Args:
        size: how many ranks wait in this way at a time.
    """

    def __init__(self, size: int = 1) -> None:
        super().__init__()
        scale = max(1.0, size.bit_length() / 2)
        self.last, self.step, self.longest = 0.0, scale * _FIRST, scale * _LONGEST

    def is_due(self) -> bool:
        """Whether it is time to look at them, which counts as done."""
        if self.seconds - self.last <= self.step:
            return False
        self.last, self.step = self.seconds, min(2 * self.step, self.longest)
        return True

    def rest(self) -> None:
        """Yield the core; after some milliseconds sleep, for longer the longer the wait is."""
        yielding = _compiled.LONG_YIELD_NS * 1e-9
        if self.seconds < yielding:
            os.sched_yield()
        else:
            sleep(min(FIRST_NAP * self.seconds / yielding, LAST_NAP))
