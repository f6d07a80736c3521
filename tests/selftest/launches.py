"""Inject the faults of a launch of chaos, and collect how each fault ends for the ranks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from mpicoll.collectives import Collectives
from mpicoll.hosts.emulation import Hosts
from tests.selftest.faults import BREAKING, CUT, KILL, STOP, Fault, Launch
from tests.selftest.processes import PEER_DEADLINE, Ranks
from tests.selftest.ranks import (
    HUNG,
    LOST,
    OTHER_ERROR,
    PAUSED,
    STEPS,
    WRONG,
    WRONG_NAME,
    Ending,
)

_DEADLINES = 6
"""Deadlines that may pass until a rank reports how a fault ended."""
_GRACE = 10.0
"""Seconds past two deadlines after which a call counts as hung, without the seconds in which its
ranks had no core."""


class LaunchResult(NamedTuple):
    """The results of a launch.

    Attributes:
        endings: of each injected fault.
        grown: descriptors and threads by kind that a median rank holds more at the end.
        remains: processes and temporary files of the launch that still exist.
    """

    endings: list[list[Ending]]
    grown: Counter[str]
    remains: list[str]


class Faults:
    """The faults that happen to the ranks of a launch."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks, self.silent = ranks, set[int]()

    def through(self, fault: Fault) -> list[Ending]:
        """Inject a fault, and return its endings for the ranks that survive."""
        by_rank: dict[int, Ending] = {}
        self.ranks.paused = False
        stopped = fault.victims if fault.kind == STOP else ()
        self._begin(fault, by_rank)
        first = set(fault.survivors) - set(stopped)
        self._hear(fault, first, by_rank)
        if fault.kind == CUT and self.ranks.hosts is not None:
            self.ranks.hosts.link(fault.victims[0] // self.ranks.launch.per_host, up=True)
        if stopped:
            self.ranks.resume(stopped)
            resumed = time.monotonic()
            self._hear(fault, set(stopped), by_rank)
            since = time.monotonic() - resumed
            by_rank |= {
                rank: by_rank[rank]._replace(seconds=min(by_rank[rank].seconds, since))
                for rank in stopped
            }
        self.ranks.tell(fault.survivors)
        endings = [ending for _, ending in sorted(by_rank.items())]
        starved = max((ending.starved for ending in endings), default=0.0)
        endings = [self.mark_hung(ending, starved) for ending in endings]
        endings = [ending for ending in endings if _counts(ending, ending.rank in stopped)]
        return [self.mark_paused(ending) for ending in endings] if self.ranks.paused else endings

    def _begin(self, fault: Fault, by_rank: dict[int, Ending]) -> None:
        """Let the ranks form the group, and continue when all of them have it.

        Ranks wait here without a core. A rank that is killed earlier would leave the others in the
        formation of the group.
        """
        for step in STEPS:
            self._await(step, fault, by_rank)
            self.ranks.tell(fault.members)

    def _await(self, step: str, fault: Fault, by_rank: dict[int, Ending]) -> None:
        """Return when all ranks have reported a step, or have ended."""
        come = {*self.ranks.over}
        for rank, message in self.ranks.until(3 * PEER_DEADLINE, lambda: come >= {*fault.members}):
            if message.get("step") == step or not message:
                come.add(rank)
            self._take(fault, rank, message, by_rank)

    def mark_hung(self, ending: Ending, starved: float) -> Ending:
        """Return an ending as HUNG if its call has taken too long.

        Args:
            starved: seconds in which the rank, or a rank that it waited for, had no core.
        """
        is_late = ending.seconds - starved > 2 * self.ranks.deadline + _GRACE
        return ending._replace(how=HUNG) if is_late else ending

    def mark_paused(self, ending: Ending) -> Ending:
        """Return an ending as PAUSED if the machine stood still meanwhile.

        A rank that was silent for its whole time limit still counts as hung.
        """
        crashed = self.ranks.over.get(ending.rank, "").startswith("killed")
        is_late = ending.how in (WRONG_NAME, HUNG, OTHER_ERROR)
        excused = is_late and not crashed and ending.rank not in self.silent
        return ending._replace(how=PAUSED) if excused else ending

    def _hear(self, fault: Fault, ranks: set[int], by_rank: dict[int, Ending]) -> None:
        """Collect the endings of some ranks.

        Silent ranks are asked for their stacks, and get the same time again, except in `shrink`: on
        a busy machine the work between two calls may take minutes.
        """
        limit, stacks = _DEADLINES * self.ranks.deadline + 3 * PEER_DEADLINE, dict[int, str]()
        times = 1 if fault.kind == KILL else 2
        for _ in range(times):
            for rank, message in self.ranks.until(limit, lambda: ranks <= by_rank.keys()):
                self._take(fault, rank, message, by_rank)
            stacks = stacks or {rank: self.ranks.stacks(rank) for rank in ranks - by_rank.keys()}
        self.silent |= ranks - by_rank.keys()
        for rank in ranks - by_rank.keys():
            by_rank[rank] = Ending(fault.number, rank, HUNG, times * limit, stacks[rank])

    def _take(
        self, fault: Fault, rank: int, message: dict[str, Any], by_rank: dict[int, Ending]
    ) -> None:
        if not message and rank in fault.survivors:
            text = f"ended ({self.ranks.over[rank]}): {self.ranks.last_words()}"
            by_rank[rank] = Ending(fault.number, rank, OTHER_ERROR, 0.0, text)
        if "cut" in message and self.ranks.hosts is not None:
            self.ranks.hosts.link(message["cut"], up=False)
            self.ranks.tell([rank] if message["waits"] else [])
        if "ending" in message:
            by_rank[rank] = Ending(*message["ending"])


def _counts(ending: Ending, was_stopped: bool) -> bool:
    """Whether an ending counts: of a stopped rank, only an ending that must never happen."""
    return not was_stopped or ending.how in (WRONG, HUNG, OTHER_ERROR)


def run(
    launch: Launch, plan: dict[str, Any], deadline: float, folder: Path,
    make: Callable[[], Collectives], hosts: Hosts | None, until: float,
) -> LaunchResult:  # fmt: skip
    """Start a launch, inject its faults until one ends badly, and end the launch.

    Args:
        plan: the arguments of `launch_of` except the backend.
        until: monotonic time after which no fault begins.
    """
    ranks, endings = Ranks(launch, plan, deadline, folder, make, hosts), []
    faults = Faults(ranks)
    try:
        if wrong := ranks.come():
            return LaunchResult([[Ending(0, 0, OTHER_ERROR, 0.0, wrong)]], Counter(), [])
        for fault in launch.faults:
            endings.append(faults.through(fault))
            bad = any(ending.how in (WRONG, HUNG, OTHER_ERROR, PAUSED) for ending in endings[-1])
            # A group that has ended early would also end the following faults.
            lost = any(ending.how in (LOST, WRONG_NAME) for ending in endings[-1])
            bad |= lost and fault.kind not in BREAKING
            if bad or time.monotonic() > until:
                break
        else:
            ranks.hear_the_end(launch.faults[-1].survivors)
    finally:
        remains = ranks.end()
    return LaunchResult(endings, ranks.grown(), remains)
