"""Wait for a word that another rank writes: look a few times, then yield, then sleep.

A rank may share its core with the very rank that it waits for. A long wait sleeps, and ends with an
error when the other rank has ended or the deadline has passed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Protocol

from mpicoll.backend import SharedMemory, WaitContext, WaitPolicy, Words
from mpicoll.errors import RankLost
from mpicoll.machine.living import has_ended
from mpicoll.machine.settings import default_deadline
from mpicoll.machine.waited import Looks
from mpicoll.tuning import YIELDS

_LOOK = 0.05


class ProcessWaits:
    """How a rank waits for words of other processes of its node.

    Attributes:
        oversubscribed: whether these ranks outnumber the cores they may use.
        deadline: seconds after which a rank gives up.
        progress: lets the library move its own messages meanwhile.
        lost: returns the error of a wait, given what happened as the end of a sentence; one that
            knows more of the other ranks may take its place.
        tell: takes the rank that this one has waited for long, None once it no longer does.
        has_exited: whether the program of a rank has ended: its process may wait in MPI's end.
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
        self.deadline = default_deadline()
        self.looked = 0.0
        self.lost: Callable[[WaitContext, str], RankLost] = self._lost
        self.tell: Callable[[int | None], None] = lambda rank: None
        self.has_exited: Callable[[int], bool] = lambda rank: False

    def test(self, words: Words, index: int, minimum: int, context: WaitContext) -> bool:
        if words[index] >= minimum:
            return True
        self.progress()
        # A rank that has left or ended may have written the word before.
        if (why := context.abort_reason()) and words[index] < minimum:
            raise self.lost(context, why)
        if (now := monotonic()) - self.looked > _LOOK:  # it takes a call of the system
            self.looked, peer = now, context.peer
            is_gone = has_ended(self.processes[peer]) or self.has_exited(peer)
            if is_gone and words[index] < minimum:
                raise self.lost(context, "which has ended")
        return False

    def _lost(self, context: WaitContext, reason: str) -> RankLost:
        return RankLost(
            f"{context.stage}: rank {self.rank} waits for rank {context.peer} (process "
            f"{self.processes[context.peer]}), {reason}",
            rank=context.peer,
        )


class StartedRun(Protocol):
    """A run that was started, and advances as it is asked to."""

    def mark(self) -> object:
        """Return something that differs once it has advanced."""

    def advance(self) -> None:
        """Advance as far as is possible without waiting."""


_local = threading.local()


def set_call(name: str | None) -> str | None:
    """Set the name of the call for which this thread agrees with the other ranks.

    Returns:
        the name before, to be set again when the call has ended.
    """
    previous: str | None = _local.__dict__.get("call")
    _local.call = name
    return previous


def agreeing(name: str | None = None) -> str:
    """Return in words that a rank agrees with the others, as the beginning of an error.

    Args:
        name: of the call; by default the one of `set_call`.
    """
    return f"agreeing on {name or _local.__dict__.get('call') or 'a call'}"


def started_here() -> list[StartedRun]:
    """Return the runs that this thread, maybe a rank of its own, started and has to advance."""
    runs: list[StartedRun] = _local.__dict__.setdefault("started", [])
    return runs


def advance_others(
    started: list[StartedRun], is_done: Callable[[], bool], deadline: float,
    look: Callable[[], object] | None = None,
) -> None:  # fmt: skip
    """Advance all started runs until something holds: yield, then sleep while none advances.

    Args:
        look: looks now and then at the ranks that are missing, and raises where the wait is to end.

    Raises:
        RankLost: nothing has advanced until the deadline, in seconds.
    """
    waited: Looks | None = None
    marks: list[object] = []
    while not is_done():
        previous = marks
        for run in list(started):
            run.advance()
        # Some advance during a pause, too.
        marks = [run.mark() for run in started]
        if previous != marks:
            waited = None
            continue
        waited = waited or Looks()
        waited.look()
        if look is not None and waited.is_due():
            look()
            waited.look()  # a rank may be asked for as long as a second
        if waited.seconds > deadline:
            raise Unadvanced(f"no started plan has advanced in {deadline:g} s")
        waited.rest()


def wait_advancing(
    policy: WaitPolicy, started: list[StartedRun], words: Words, index: int, minimum: int,
    context: WaitContext,
) -> None:  # fmt: skip
    """Return when ``words[index] >= minimum``, and advance started runs meanwhile.

    Another rank may wait for these before it writes the word.

    Raises:
        RankLost: the rank that should write it has ended or left the operation, or the deadline
            has passed.
    """
    for _ in range(1 if started else YIELDS):
        if words[index] >= minimum:
            return

    is_there = partial(policy.test, words, index, minimum, context)
    try:
        advance_others(started, is_there, policy.deadline, partial(policy.tell, context.peer))
    except Unadvanced:
        raise policy.lost(context, f"which did not come in {policy.deadline:.3g} s") from None
    policy.tell(None)


class Unadvanced(RankLost):
    """No plan that was started has advanced until the deadline."""


class HasDeadline:
    """Has a deadline that its waits in shared memory keep to, too.

    Attributes:
        shared: that memory, None where there is none.
    """

    shared: SharedMemory | None
    _deadline: float

    @property
    def deadline(self) -> float:
        """Seconds after which this rank gives up waiting for another."""
        return self._deadline

    @deadline.setter
    def deadline(self, seconds: float) -> None:
        self._deadline = seconds
        if self.shared is not None:
            self.shared.wait_policy.deadline = seconds
