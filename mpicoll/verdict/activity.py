"""The activity of a rank outside of calls and messages: whether its thread ran or slept.

A thread of its own may make the calls, as that of torch's backward pass does. Then the running of
the thread that the process began with counts, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from mpicoll.flight.reader import Dump, Entry, Sample
from mpicoll.verdict.thresholds import IDLE, UNFAIR


class Activity(NamedTuple):
    """A division of time outside of calls and messages, in nanoseconds.

    Attributes:
        running: the thread ran.
        queued: the thread was ready, and had no core; in messages, too.
        asleep: the thread waited for something else, or its process was stopped.
        stopped: the process was stopped, and continued by SIGCONT; in calls, too.
        reading: the part of `asleep` with major page faults: memory that was read from a disk.
        threads: other threads of the process ran, meanwhile or at the same time.
        children: child processes ran, which have ended.
        messages: the rest of the time in messages.
    """

    running: float = 0.0
    queued: float = 0.0
    asleep: float = 0.0
    stopped: float = 0.0
    reading: float = 0.0
    threads: float = 0.0
    children: float = 0.0
    messages: float = 0.0

    @property
    def stretch(self) -> float:
        """By what factor waits for a core make the running longer."""
        return (self.running + self.queued) / max(self.running, 1.0)

    @property
    def outside(self) -> float:
        """The time outside of calls and messages, and that without a core in messages."""
        return self.running + self.queued + self.asleep

    @property
    def by_itself(self) -> float:
        """The time that no other process and no other thread of this one explains."""
        return self.running + max(0.0, self.asleep - self.threads)

    def plus(self, addend: Activity, factor: float = 1.0) -> Activity:
        """Return the sum with `factor` times another activity."""
        return Activity(*(a + factor * b for a, b in zip(self, addend, strict=True)))


class Curve:
    """The activity of one thread outside of its calls, accumulated over time."""

    def __init__(self, samples: Sequence[Sample], entries: Sequence[Entry]) -> None:
        self.samples = samples
        self.times = [sample.at for sample in samples]
        calls = Calls(entries)
        steps = (_between(*pair, calls) for pair in pairwise(samples))
        self.sums = [*accumulate(steps, Activity.plus, initial=Activity())]

    def between(self, start: int, end: int) -> Activity | None:
        """Return the activity from `start` to `end`; None where no samples tell it."""
        if len(self.times) < 2 or start < self.times[0] or end <= start:
            return None
        return self._at(end).plus(self._at(start), -1.0)

    def shares(self, start: int, end: int) -> tuple[float, float]:
        """Return the shares of the time from `start` to `end`, in calls, too.

        That without a core, and that in which other threads of the process run.
        """
        first = bisect_right(self.times, start) - 1
        last = bisect_right(self.times, end - 1)
        if first < 0 or last >= len(self.samples):
            return 0.0, 0.0
        begin, finish = self.samples[first], self.samples[last]
        wall = max(1, finish.at - begin.at)
        threads = finish.process - begin.process - (finish.running - begin.running)
        return min(1.0, (finish.queued - begin.queued) / wall), min(1.0, max(0, threads) / wall)

    def _at(self, time: int) -> Activity:
        place = bisect_right(self.times, time)
        if place >= len(self.times):
            return self.sums[-1]
        begin, end = self.times[place - 1], self.times[place]
        previous, following = self.sums[place - 1], self.sums[place]
        share = (time - begin) / (end - begin)
        return previous.plus(previous, -share).plus(following, share)


class Calls:
    """The time that one thread spends in calls that block it."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        blocking = blocking_rows(entries)
        self.spans = [(entry.start, entry.end) for entry in entries if entry.number in blocking]
        self.starts = [start for start, _ in self.spans]
        lengths = (end - start for start, end in self.spans)
        self.sums = [*accumulate(lengths, initial=0)]

    def until(self, time: int) -> int:
        """Return the nanoseconds in calls before a time."""
        place = bisect_right(self.starts, time)
        if place == 0:
            return 0
        return self.sums[place - 1] + min(self.spans[place - 1][1], time) - self.starts[place - 1]


def _between(first: Sample, second: Sample, calls: Calls) -> Activity:
    """Return the activity outside of calls between two samples of a thread."""
    wall = max(1, second.at - first.at)
    messages = max(0, second.messages - first.messages)
    outside = max(0, wall - messages - (calls.until(second.at) - calls.until(first.at)))
    share = outside / wall
    thread = second.running - first.running
    if second.main != second.running:  # the thread that the process began with works for the call
        thread += second.main - first.main
    running = min(share * thread, outside)
    queued = min(share * (second.queued - first.queued), outside - running)
    asleep = max(0.0, outside - running - queued)
    # A rank that ran in a message and stayed waited for data: of its waits for a core only the last
    # one counts, if it is longer than fair.
    last_wait = (second.queued - first.queued) / max(1, second.preempted - first.preempted)
    unfair = max(0.0, last_wait - UNFAIR * (second.running - first.running))
    coreless = min(messages / wall * unfair, messages)
    idle = max(0, wall - (second.running - first.running) - (second.queued - first.queued))
    return Activity(
        running, queued + coreless, asleep,
        idle if second.continued > first.continued else 0.0,
        asleep if second.faults > first.faults else 0.0,
        share * max(0, second.process - first.process - thread),
        share * max(0, second.children - first.children), messages - coreless,
    )  # fmt: skip


def working_ranks(activities: Mapping[int, Activity]) -> list[int]:
    """Return the ranks without those that only hand out work: these are in messages, and idle."""
    works = {rank: activity.running + activity.asleep for rank, activity in activities.items()}
    least = IDLE * max(works.values(), default=0.0)
    return [
        rank for rank, activity in activities.items()
        if works[rank] >= least or activity.messages < activity.outside
    ]  # fmt: skip


def blocking_rows(entries: Sequence[Entry]) -> set[int]:
    """Return the numbers of the rows that held their thread.

    A call that goes on while its thread makes the next one does not hold the thread.
    """
    following: dict[int, int] = {}
    numbers = set()
    for entry in reversed(entries):
        if entry.start < entry.end <= following.get(entry.thread, 1 << 63):
            numbers.add(entry.number)
        following[entry.thread] = entry.start
    return numbers


def curves(dump: Dump) -> dict[int, Curve]:
    """Return the activity of the threads of a rank that make calls, by the number of the thread."""
    threads = {sample.thread for sample in dump.samples}
    return {
        thread: Curve(
            [sample for sample in dump.samples if sample.thread == thread],
            [entry for entry in dump.entries if entry.thread == thread],
        )
        for thread in threads
    }
