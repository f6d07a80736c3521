"""The kinds of causes, and what is said of one."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from mpicoll.verdict.matching import Place
from mpicoll.verdict.profiles import Profile


class Kind(Enum):
    """The kind of a cause, in the words of the table."""

    MORE_WORK = "more work"
    UNEVEN_DATA = "uneven data"
    SHARED_CORE = "shared core"
    OWN_THREAD = "own thread"
    CHILD_PROCESS = "child process"
    SLOW_NODE = "slow node"
    STOPPED = "stopped"
    ASLEEP = "asleep"
    UNCLEAR = "unclear"
    SLOW_LINK = "slow link"
    TURNS = "turns"
    UNNEEDED_CALL = "unneeded call"
    OBJECTS = "pickled objects"
    DATA_MOVEMENT = "data movement"


class Finding(NamedTuple):
    """One cause of lost time.

    Attributes:
        cost: the share of the job's time that it costs, from 0 to 1.
        ranks: the ranks that it is about; none for a link or a call.
        host: the node that it is about; empty for none.
        place: the calls at which it shows.
        calls: the number of these calls, and `late_calls` those in which the ranks were late.
        lateness: how late they came then, in nanoseconds.
        profile: of the rank that it shows most at; None where it is not about ranks.
        detail: a figure or a verb that the sentence needs.
        neighbour: the calls that make this one unneeded.
        link: the sender and the receiver of the slowest link; empty where links are no reason.
        rates, delays: the bytes per second of slow links, and the microseconds for which data wait
            before them; and those of the others. Without others 0, and the least round trip.
    """

    kind: Kind
    cost: float
    ranks: tuple[int, ...] = ()
    host: str = ""
    place: Place | None = None
    calls: int = 0
    late_calls: int = 0
    lateness: float = 0.0
    profile: Profile | None = None
    detail: str = ""
    neighbour: Place | None = None
    link: tuple[str, str] = ("", "")
    rates: tuple[float, float] = (0.0, 0.0)
    delays: tuple[float, float] = (0.0, 0.0)

    @property
    def frequency(self) -> float:
        """The share of the calls in which the ranks are late."""
        return self.late_calls / max(1, self.calls)
