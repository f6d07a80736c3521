"""Advance started schedules: a wait for one advances all, so ranks may wait in any order."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from mpicoll.execution.rounds import BoundRound, Resources
from mpicoll.interfaces import Thunk
from mpicoll.memory.waiting import Idle

_local = threading.local()


def started_here() -> list[Progress]:
    """Return the started schedules of this thread, which may be a rank of its own."""
    found: list[Progress] = _local.__dict__.setdefault("started", [])
    return found


class Progress:
    """A schedule under way: the first round is posted at once, later ones as it advances.

    An error ends this run alone and is raised where this run is waited for, as a wait for another
    run may be what advances it.
    """

    def __init__(
        self, rounds: list[BoundRound], finish: list[Thunk], resources: Resources,
        started: list[Progress],
    ) -> None:  # fmt: skip
        self.remaining = iter(rounds)
        self.finish, self.resources, self.started = finish, resources, started
        self.current: BoundRound | None = None
        self.error: Exception | None = None
        resources.under_way = True
        self.started.append(self)
        self._attempt(self._next)

    def test(self) -> bool:
        self._attempt(self._advance)
        return self._is_complete()

    def wait(self) -> None:
        self._attempt(self._complete)
        self._is_complete()

    def _is_complete(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.current is None

    def _attempt(self, action: Thunk) -> None:
        try:
            action()
        except Exception as error:
            self.error = error
            self._leave()

    def _leave(self) -> None:
        self.current, self.resources.under_way = None, False
        if self in self.started:
            self.started.remove(self)

    def _next(self) -> None:
        self.current = next(self.remaining, None)
        if self.current is None:
            self._leave()
            posted: Sequence[Thunk] = self.finish
        else:
            posted = (*self.current.before, *self.current.messages.start, *self.current.during)
        for thunk in posted:
            thunk()

    def _land(self, current: BoundRound) -> None:
        for thunk in current.after:
            thunk()
        self._next()

    def _advance(self) -> None:
        """Advance as far as is possible without waiting."""
        while self.current is not None and self.current.messages.test():
            self._land(self.current)

    def _complete(self) -> None:
        """Advance to the end, and advance all other started runs meanwhile."""
        idle = Idle(self.resources.deadline())
        while self.current is not None:
            if len(self.started) > 1:
                before = [each.current for each in self.started]
                for each in list(self.started):
                    each._attempt(each._advance)
                if before == [each.current for each in self.started]:
                    idle.pause()
                else:
                    idle.began = None
            else:
                for thunk in self.current.messages.wait:
                    thunk()
                self._land(self.current)
