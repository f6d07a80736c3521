"""Which call of a method each rank is in, where ranks of several nodes run known plans.

They exchange nothing before such a call. The messages of a plan have a tag of their own, so that
those of two plans never meet, and no rank completes a call that another has not begun: ranks that
are in different calls wait for each other. One that has waited for a moment asks those that it
waits for (`mpicoll.peers.contact`), and leaves the call for an exchange of all where they differ.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from mpicoll.c_extension import _compiled
from mpicoll.errors import RankLost

BEGUN, ENDED, RECENT = _compiled.CALLS_BEGUN, _compiled.CALL_ENDED, _compiled.RECENT_PLANS
"""The places of the numbers in `Calls.numbers`."""
DIFFERENT_CALLS = "the ranks are in different calls"
_MOST_RECENT = _compiled.MOST_RECENT
"""The calls whose plans a rank remembers."""


class Apart(Protocol):
    """Keeps the library's own calls of one plan from those of others.

    Attributes:
        left: a rank has left such a call in its middle.
    """

    left: bool

    def leave(self, error: BaseException, *unfinished: object) -> None:
        """State that this rank has left such a call by an error.

        Args:
            unfinished: what must exist though this rank no longer waits for it.
        """

    def free(self) -> None:
        """Release it, unless a rank has left such a call; collective."""


class CallPosition(NamedTuple):
    """The call that a rank is in, or was in last.

    Attributes:
        epoch: the exchanges of the group that it had begun before.
        number: of the call, since that exchange.
        is_complete: whether it is complete on this rank.
        plan: the number of the plan, the same on all ranks.
        earlier_plans: those of the calls before, the last one first.
    """

    epoch: int = 0
    number: int = 0
    is_complete: bool = True
    plan: int = 0
    earlier_plans: tuple[int, ...] = ()

    def plan_of(self, number: int) -> int | None:
        """Return the plan of a call that the rank has begun, None where it is forgotten."""
        plans = self.plan, *self.earlier_plans
        age = self.number - number
        return plans[age] if 0 <= age < len(plans) else None


class CallState(NamedTuple):
    """The answer of a rank: its call, and the exchanges that it has begun."""

    position: CallPosition
    exchanges: int


class OtherCall(RankLost):
    """The ranks are in different calls: all must compare their arguments."""


class Calls:
    """The calls of this rank.

    Args:
        exchanges: returns how many exchanges of the group this rank has begun.
        ask: returns the state of each of some ranks, None where one does not answer.

    A call sets its plan and then `BEGUN`, and `ENDED` when it is complete; another thread, which
    answers, reads them in the order `BEGUN`, plan, `ENDED`, `since`. So it never takes the plan
    of the next call for that of one that is not complete, nor a call before an exchange for one
    after it.

    Attributes:
        numbers: how many calls this rank has begun, which of them it has completed last, and the
            numbers of the plans of the last ones, that of call n at `RECENT` and n modulo 16.
        since: the exchanges that it had begun when the last one was complete, and `begun` then.
        left: the number of a plan that this rank has left in its middle, 0 where there is none.
        drop: takes the numbers of plans that no rank may run again, as messages of them that
            nobody has received may be under way.
        apart: takes a tag that no other plan has and the name of a collective, and returns what the
            library's own calls for it need so that a rank can leave them in their middle;
            collective.
    """

    apart: Callable[[int, str], Apart]

    def __init__(
        self, exchanges: Callable[[], int],
        ask: Callable[[Sequence[int]], Mapping[int, CallState | None]],
    ) -> None:  # fmt: skip
        self.exchanges, self.ask = exchanges, ask
        self.numbers = array("q", [0] * _compiled.CALL_NUMBERS)
        self.since = exchanges(), 0
        self.left = 0
        self.drop: Callable[[set[int]], None] = lambda numbers: None

    def begin(self, plan: int) -> None:
        """Begin a call by a plan, or by what the library has for it."""
        numbers = self.numbers
        number = numbers[BEGUN] + 1
        numbers[RECENT + number % _MOST_RECENT] = plan
        numbers[BEGUN] = number

    def end(self) -> None:
        """End the call that this rank has begun last."""
        self.numbers[ENDED] = self.numbers[BEGUN]

    @property
    def position(self) -> CallPosition:
        """The call that this rank is in, or was in last; another thread may ask for it."""
        numbers = self.numbers
        last_begun = numbers[BEGUN]
        # One less than there are: the next call may take the place of the first meanwhile.
        calls = range(last_begun, max(last_begun + 1 - _MOST_RECENT, -1), -1)
        plan, *earlier_plans = (numbers[RECENT + number % _MOST_RECENT] for number in calls)
        ended = numbers[ENDED]
        epoch, base = self.since
        number = last_begun - base
        earlier_plans = earlier_plans[: max(number - 1, 0)]
        return CallPosition(epoch, number, ended >= last_begun, plan, tuple(earlier_plans))

    def state(self) -> CallState:
        """Return this rank's answer; another thread may call it."""
        exchanges = self.exchanges()  # read first, as the call may end meanwhile
        return CallState(self.position, exchanges)

    def is_behind(self, state: CallState | None) -> bool:
        """Whether a rank that answers so has not begun the call that this one is in."""
        if state is None:
            return False
        local, remote = self.position, state.position
        return (remote.epoch, remote.number) < (local.epoch, local.number) or _differs(local, state)

    def check(self, ranks: Sequence[int]) -> None:
        """Ask the awaited ranks for their calls, and compare these with the call of this rank.

        Raises:
            OtherCall: one of them is in another call.
        """
        if self._is_in_call(self.position):
            self.compare(self.ask(ranks))

    def _is_in_call(self, local: CallPosition) -> bool:
        return not local.is_complete and local.epoch == self.exchanges()

    def compare(self, states: Mapping[int, CallState | None]) -> None:
        """Compare the call that this rank is in with those of others.

        Args:
            states: of the other ranks.

        Raises:
            OtherCall: one of them is in another call.
        """
        local = self.position
        if not self._is_in_call(local):
            return
        for state in states.values():
            if state is not None and _differs(local, state):
                self.left = local.plan
                raise OtherCall(DIFFERENT_CALLS)

    def hear(self, plans: Sequence[int]) -> None:
        """Take the plan that each rank has left, as all ranks have exchanged it."""
        self.left = 0
        self.end()
        self.since = self.exchanges(), self.numbers[BEGUN]
        if aborted := {*plans} - {0}:
            self.drop(aborted)


def _differs(local: CallPosition, state: CallState) -> bool:
    """Whether a rank cannot come to this one's call any more."""
    remote = state.position
    here = remote if remote.epoch == local.epoch else CallPosition(local.epoch)
    if remote.epoch > local.epoch:
        return False
    number = min(here.number, local.number)
    plans = {local.plan_of(number), here.plan_of(number)} - {None}
    if len(plans) > 1:
        return True
    completed = here.number - (not here.is_complete)
    return completed < local.number and state.exchanges > local.epoch
