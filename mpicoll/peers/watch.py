"""End a process that waits beyond its deadline in a call that only the library can leave.

A thread looks once in a while at the calls that are under way. It says which call it is and who has
not come, as far as this rank and the flight recorder know, and ends the process: the launcher then
ends the other ranks.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, ref

from mpicoll.backend import Stage
from mpicoll.c_extension import _compiled
from mpicoll.errors import CollectiveError, RankLost
from mpicoll.machine.hidden_threads import HiddenThread
from mpicoll.machine.waited import Waited
from mpicoll.peers.known import Peers

P = ParamSpec("P")
T = TypeVar("T")
GRACE = 10.0
"""Seconds beyond the deadline for a call that waits for nobody: its thread may have no core."""
_SHARE, _MAX_PAUSE, _MIN_PAUSE = 1 / 8, 1.0, 0.01
"""Of the deadline, and seconds, between two looks."""


class _Guard:
    """The observations of a call.

    Args:
        leave: ends the process.
        grace: seconds beyond the deadline.
    """

    def __init__(
        self, peers: Peers, label: str, leave: Callable[[], object], grace: float
    ) -> None:  # fmt: skip
        # A group may have guarded calls of its own, and end with them.
        self.group, self.label, self.leave, self.grace = ref(peers), label, leave, grace
        self.seen, self.waited = 0, Waited()

    def look(self, call: Any) -> None:
        """End the process where the call is under way for too long."""
        number, peers = call.oldest, self.group()
        if peers is None or not number or number != self.seen:
            self.seen, self.waited = number, Waited()
            return
        seconds = self.waited.look()
        if seconds > peers.deadline + self.grace and number == call.oldest:
            self._end(peers, seconds)

    def _end(self, peers: Peers, seconds: float) -> None:
        from mpicoll.flight.groups import end_by
        from mpicoll.flight.job import look
        from mpicoll.flight.words import sentences

        reason = f"which did not come in {seconds:.3g} s"
        error = peers.lost(Stage(self.label), peers.absent(), reason)
        lines = [f"{self.label} cannot be left, so this process ends: {error}"]
        with suppress(CollectiveError, OSError):
            if RankLost.found_in:
                lines += sentences(look(Path(RankLost.found_in))[0])
        print(*lines, sep="\n", file=sys.stderr, flush=True)
        sleep(_MAX_PAUSE)  # A launcher may drop what it has not read of a process that aborts.
        end_by(error)
        self.leave()


_guards: WeakKeyDictionary[Any, _Guard] = WeakKeyDictionary()
"""That of each call which exists."""
_lock = threading.Lock()
_threads: list[HiddenThread] = []


def guarded(
    call: Callable[P, T], peers: Peers, label: str, leave: Callable[[], object],
    grace: float = 0.0,
) -> Callable[P, T]:  # fmt: skip
    """Return a call that is not waited for beyond the deadline of a group.

    Args:
        label: as the beginning of an error.
        leave: ends the process; called by another thread.
        grace: seconds beyond the deadline.
    """
    guarded_call: Callable[P, T] = _compiled.Counted(call)
    with _lock:
        _guards[guarded_call] = _Guard(peers, label, leave, grace)
        if not (_threads and _threads[-1].is_alive()):
            _threads.append(HiddenThread(_watch, "mpicoll deadline"))
    return guarded_call


def _watch() -> None:
    while True:
        sleep(_look())


def _look() -> float:
    """Look at all calls, and return the seconds until the next look."""
    with _lock:
        guards = list(_guards.items())
    for call, guard in guards:
        guard.look(call)
    groups = [guard.group() for _, guard in guards]
    deadlines = [group.deadline for group in groups if group is not None]
    return max(_MIN_PAUSE, min([_MAX_PAUSE, *(deadline * _SHARE for deadline in deadlines)]))
