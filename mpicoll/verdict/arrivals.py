"""Tell when the ranks arrive at each call, and the activity of each rank before it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from mpicoll.flight.reader import Dump, Entry
from mpicoll.verdict.activity import Activity, Curve, blocking_rows, curves
from mpicoll.verdict.matching import SYNCHRONISING, MatchedCall, Place, match
from mpicoll.verdict.waits import needed_ranks, waits


class Arrival(NamedTuple):
    """One rank in one call; times in nanoseconds.

    Attributes:
        at: when the rank would have come if data had reached all ranks of the last synchronising
            call of the group together, and it had waited for nobody in other calls since.
        wait: the time that it waits in this call for ranks that arrive later.
        moving: the rest of its time in this call: data moves, now or still in the last
            synchronising call of a rank that came later.
        coreless: the part of `moving` in which the rank had no core.
        activity: that of the rank since the last synchronising call of the group; `queued` includes
            the time without a core in that call. None where no samples tell it.
        is_blocking: the call holds its thread.
    """

    at: int
    wait: int
    moving: int
    coreless: int
    activity: Activity | None
    is_blocking: bool = True


class Meeting(NamedTuple):
    """One complete call: the arrivals of all ranks, by rank."""

    call: MatchedCall
    arrivals: dict[int, Arrival]

    @property
    def is_blocking(self) -> bool:
        """Whether the call holds a thread until it ends."""
        return any(arrival.is_blocking for arrival in self.arrivals.values())

    @property
    def last(self) -> int:
        """The rank that came last."""
        return max(self.arrivals, key=lambda rank: self.arrivals[rank].at)

    def lateness(self, rank: int) -> float:
        """Return how much later a rank came than the median of the other ranks, in nanoseconds."""
        times = [arrival.at for number, arrival in self.arrivals.items() if number != rank]
        return self.arrivals[rank].at - median(times)


class Observation(NamedTuple):
    """The calls of a job that all ranks have recorded.

    Attributes:
        meetings: by place, in the order of time.
        observed: nanoseconds that the rows of each rank cover.
        activity: of each rank outside of its calls; of ranks without samples all zeros.
        stops: how often each rank was continued after a stop.
        curves: by rank the activity of the thread that is longest in messages.
        waiting: by place the share of the time in which ranks wait for later ranks, `moving` that
            in which data moves, and `coreless` the part of that in which the rank has no core.
    """

    meetings: dict[Place, list[Meeting]]
    observed: dict[int, int]
    activity: dict[int, Activity]
    stops: dict[int, int]
    curves: dict[int, Curve]
    waiting: dict[Place, float]
    moving: dict[Place, float]
    coreless: dict[Place, float]

    @property
    def total(self) -> int:
        """The observed time of all ranks together."""
        return max(1, sum(self.observed.values()))

    def joined(self, slices: Observation) -> Observation:
        """Return it with slices of the time; the figures of the ranks are those of the longer."""
        is_longer = slices.span > self.span and (slices.meetings or not self.meetings)
        return (slices if is_longer else self)._replace(
            meetings=self.meetings | slices.meetings, waiting=self.waiting | slices.waiting,
            moving=self.moving | slices.moving, coreless=self.coreless | slices.coreless,
        )  # fmt: skip

    def of_group(self, group: str) -> list[Meeting]:
        """Return the calls of one group."""
        return [
            meeting for place, meetings in self.meetings.items() if place.group == group
            for meeting in meetings
        ]  # fmt: skip

    @property
    def span(self) -> float:
        """The mean observed time of a rank."""
        return self.total / max(1, len(self.observed))

    @property
    def busy_span(self) -> float:
        """The mean time of a rank in which it runs or sleeps outside of calls, or moves data.

        The time without a core is left out.
        """
        outside = sum(activity.running + activity.asleep for activity in self.activity.values())
        moving = sum(self.moving.values()) - sum(self.coreless.values())
        return max(1.0, (outside + self.total * moving) / max(1, len(self.observed)))


def observe(dumps: Sequence[Dump]) -> Observation:
    """Return the arrivals of all ranks at their calls; the times are those of one clock."""
    calls = match(dumps)
    waited: dict[int, dict[int, int]] = {
        dump.rank: dict.fromkeys(blocking_rows(dump.entries), 0) for dump in dumps
    }
    delayed: dict[int, dict[int, int]] = {dump.rank: {} for dump in dumps}
    for call in calls:
        first_end = min(entry.end or 1 << 63 for entry in call.rows.values())
        for rank, wait in waits(call).items():
            if (number := call.rows[rank].number) in waited[rank]:
                waited[rank][number] = wait
                delayed[rank][number] = max(0, call.rows[rank].end - first_end)
    histories = {dump.rank: History(dump, waited[dump.rank], delayed[dump.rank]) for dump in dumps}
    meetings: dict[Place, list[Meeting]] = {}
    for call in calls:
        if call.is_complete and len(call.members) > 1:
            meetings.setdefault(call.place, []).append(_meeting(call, histories))
    observed = {rank: history.observed for rank, history in histories.items()}
    return Observation(
        meetings, observed,
        {rank: history.activity for rank, history in histories.items()},
        {dump.rank: _stops(dump) for dump in dumps},
        {rank: max(history.curves.values(), key=lambda curve: curve.sums[-1].messages)
         for rank, history in histories.items() if history.curves},
        *(_shares(field, meetings, max(1, sum(observed.values())))
          for field in ("wait", "moving", "coreless")),
    )  # fmt: skip


def _shares(field: str, meetings: dict[Place, list[Meeting]], total: int) -> dict[Place, float]:
    """Return by place the share of the time that a field of the arrivals takes."""
    return {
        place: sum(
            getattr(arrival, field) for meeting in calls for arrival in meeting.arrivals.values()
        ) / total
        for place, calls in meetings.items()
    }  # fmt: skip


def _meeting(call: MatchedCall, histories: dict[int, History]) -> Meeting:
    windows = {rank: histories[rank].window[entry.number] for rank, entry in call.rows.items()}
    times = {rank: entry.start for rank, entry in call.rows.items()}
    if all(windows.values()):
        first = min(
            window.start - window.coreless - window.held for window in windows.values() if window
        )
        for rank, window in windows.items():
            if window:
                delay = window.coreless + window.held - window.waited
                times[rank] += first - window.start + delay
    return Meeting(call, {
        rank: histories[rank].arrival(
            entry, times[rank], max((times[peer] for peer in needed_ranks(call, rank)), default=0)
        )
        for rank, entry in call.rows.items()
    })  # fmt: skip


def _stops(dump: Dump) -> int:
    continued = [sample.continued for sample in dump.samples]
    return max(continued) - min(continued) if continued else 0


class History:
    """The calls of one rank, in the order in which they began.

    Args:
        waited: by row the time that it waits for later ranks, and `delayed` the time by which it
            leaves the call after the first rank.
    """

    def __init__(self, dump: Dump, waited: dict[int, int], delayed: dict[int, int]) -> None:
        self.curves: dict[int, Curve] = curves(dump)
        self.waited, self.delayed = waited, delayed
        self.window: dict[int, Window | None] = {}
        self.observed = 0
        self._walk(dump.entries)
        self.activity = self._share_of_threads()

    def _share_of_threads(self) -> Activity:
        """Return the activity of the mean thread, in the observed time."""
        total, span = Activity(), 0
        for curve in self.curves.values():
            total = total.plus(curve.sums[-1])
            span += curve.times[-1] - curve.times[0]
        return Activity().plus(total, min(1.0, self.observed / max(1, span)))

    def _walk(self, entries: Sequence[Entry]) -> None:
        """Store for each row since when its rank was not held by a call of the same group."""
        since: dict[str, Window] = {}
        is_synchronised = set[str]()
        total = 0
        for previous, entry in zip((None, *entries), entries, strict=False):
            if previous is None or entry.number != previous.number + 1:
                since.clear()
                is_synchronised.clear()
            else:
                self.observed += max(0, entry.start - previous.start)
            if entry.group is None:
                continue
            if entry.group.messages:  # as the wait of a nonblocking call
                total += entry.end - entry.start if entry.number in self.waited else 0
                continue
            key = entry.group.id
            begin, curve = since.get(key), self.curves.get(entry.thread)
            activity = curve.between(begin.start, entry.start) if begin and curve else None
            self.window[entry.number] = begin and begin._replace(
                waited=total - begin.waited + round(activity.messages if activity else 0),
                activity=activity,
            )
            total += self.waited.get(entry.number, 0)
            is_new = entry.call.collective in SYNCHRONISING
            if not is_new:  # as a root that waits, and has no core when the last rank has come
                total += self._held(entry)[0]
            if entry.end and (is_new or key not in is_synchronised):
                since[key] = Window(entry.end, total, *self._held(entry))
                is_synchronised |= {key} if is_new else set()

    def arrival(self, entry: Entry, at: int, last: int) -> Arrival:
        """Return the arrival at a call.

        Args:
            at: when the rank came, as in `Arrival`.
            last: when the last rank came that this one needs.
        """
        window, curve = self.window[entry.number], self.curves.get(entry.thread)
        activity = window.activity if window else None
        if activity and window:
            activity = activity._replace(
                queued=activity.queued + window.coreless, asleep=activity.asleep + window.held,
                threads=activity.threads + window.held,
            )  # fmt: skip
        if entry.number not in self.waited:  # the call does not hold its thread
            return Arrival(at, 0, 0, 0, activity, False)
        wait = max(0, min(self.waited[entry.number], last - at))
        moving = max(0, entry.end - entry.start - wait)
        queued = curve.shares(entry.start, entry.end)[0] if curve else 0.0
        return Arrival(at, wait, moving, int(moving * queued), activity)

    def _held(self, entry: Entry) -> tuple[int, int]:
        """Return how long a rank stays in a call after all ranks have come, without its fault.

        Without a core, and without the interpreter while other threads of its process run.
        """
        curve = self.curves.get(entry.thread)
        if entry.number not in self.waited or curve is None:
            return 0, 0
        length = entry.end - entry.start
        moving = max(0, length - self.waited[entry.number])
        queued, threads = curve.shares(entry.start, entry.end)
        coreless = int(moving * queued)
        remaining = max(0, min(moving, self.delayed.get(entry.number, 0)) - coreless)
        return coreless, min(remaining, int(length * threads))


class Window(NamedTuple):
    """The time since a rank left the last synchronising call of a group.

    In a group that makes no synchronising calls, the last call counts.

    Attributes:
        start: when it left that call.
        waited: the time that it waits in other calls and is in messages since.
        coreless: for how long it had no core in that call after all ranks had come. The rank left
            the call that much later: its core was late, and not the data.
        held: the same for the time in which other threads of its process kept the interpreter.
        activity: of the rank since; None where no samples tell it.
    """

    start: int
    waited: int
    coreless: int = 0
    held: int = 0
    activity: Activity | None = None
