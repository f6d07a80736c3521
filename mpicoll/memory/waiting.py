"""How a rank waits for a word that another rank writes: spin, then yield, then sleep.

A rank that is alone on its core gains by spinning; one that shares it takes the core from
the very rank it waits for, so it yields at once. Whoever waits long sleeps, and in the end
gives up: the other rank is gone, or never came.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import Any, NamedTuple

from mpicoll.errors import ArgumentError, RankLost

DEADLINE = "MPICOLL_DEADLINE"
_SECONDS = 300.0
_SPINS = 400
_OVERSUBSCRIBED_SPINS = 4
_YIELDS = 16
_AWAKE = 0.02
_NAPS = (50e-6, 1e-3)
_LOOK = 0.05

Words = Any
"""A memoryview of 64-bit integers."""


class WaitContext(NamedTuple):
    """What a rank is doing when it waits for `peer`."""

    what: str
    round: int
    rounds: int
    peer: int


class WaitPolicy:
    """Waiting as it suits one group of ranks on one node.

    Attributes:
        oversubscribed: whether these ranks outnumber the cores they may use.
        deadline: seconds after which a rank gives up.
        progress: what lets the library below move its own messages meanwhile.
    """

    def __init__(
        self,
        rank: int,
        processes: dict[int, int],
        oversubscribed: bool,
        progress: Callable[[], object],
    ) -> None:
        self.rank, self.processes, self.progress = rank, processes, progress
        self.oversubscribed = oversubscribed
        self.spins = _OVERSUBSCRIBED_SPINS if oversubscribed else _SPINS
        self.deadline = default_deadline()

    def wait(self, words: Words, index: int, least: int, context: WaitContext) -> None:
        """Return when ``words[index] >= least``.

        Raises:
            RankLost: the rank that should write it has ended, or the deadline has passed.
        """
        for _ in range(self.spins):
            if words[index] >= least:
                return
        began = monotonic()
        while monotonic() - began < _AWAKE:
            for _ in range(_YIELDS):
                os.sched_yield()
                if words[index] >= least:
                    return
            self.progress()
        self._doze(words, index, least, context, began)

    def _doze(
        self, words: Words, index: int, least: int, context: WaitContext, began: float
    ) -> None:
        nap, looked = _NAPS[0], began
        while words[index] < least:
            sleep(nap)
            nap = min(1.5 * nap, _NAPS[1])
            self.progress()
            now = monotonic()
            if now - looked > _LOOK:
                looked = now
                # What it wrote before it ended counts.
                if self._has_ended(context.peer) and words[index] < least:
                    raise RankLost(self._complaint(context, "which has ended"))
            if now - began > self.deadline:
                raise RankLost(
                    self._complaint(context, f"which did not come in {now - began:.3g} s")
                )

    def _complaint(self, context: WaitContext, what: str) -> str:
        return (
            f"{context.what}, round {context.round} of {context.rounds}: rank {self.rank} waits "
            f"for rank {context.peer} (process {self.processes[context.peer]}), {what}"
        )

    def _has_ended(self, peer: int) -> bool:
        try:
            handle = os.pidfd_open(self.processes[peer])
        except ProcessLookupError:
            return True
        except OSError:
            return False
        with suppress(OSError):
            ended, _, _ = select.select([handle], [], [], 0)
        os.close(handle)
        return bool(ended)


def politely(is_done: Callable[[], bool]) -> None:
    """Return when something is done, leaving the core to others between two looks.

    A library that polls keeps its core for a turn of the scheduler, though the rank that it waits
    for may be one that needs the core.
    """
    while not is_done():
        os.sched_yield()


class Idle:
    """How a rank polls several plans: it yields, then sleeps, and in the end gives up.

    Attributes:
        began: when it last began to find nothing to do.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.began: float | None = None

    def pause(self) -> None:
        """Leave the core to others for a moment.

        Raises:
            RankLost: nothing has happened until the deadline.
        """
        now = monotonic()
        if self.began is None:
            self.began = now
        if now - self.began < _AWAKE:
            os.sched_yield()
        elif now - self.began < self.deadline:
            sleep(_NAPS[0])
        else:
            raise RankLost(f"no started plan has advanced in {self.deadline:g} s")


def default_deadline() -> float:
    """Return the deadline in seconds that the environment states, 300 by default."""
    text = os.environ.get(DEADLINE, str(_SECONDS))
    try:
        return check_deadline(float(text))
    except ValueError:
        raise ArgumentError(f"{DEADLINE} is a number of seconds, not {text!r}") from None


def check_deadline(seconds: float) -> float:
    """Return a deadline in seconds, or raise ArgumentError."""
    if not seconds > 0:
        raise ArgumentError(f"a deadline is a positive number of seconds, not {seconds!r}")
    return float(seconds)
