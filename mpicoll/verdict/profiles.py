"""Compare the ranks at one place of the program: how late they come, and by what activity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mpicoll.measurement.peers import Excess, Numbers, compare, medians_of_peers
from mpicoll.verdict.activity import Activity
from mpicoll.verdict.arrivals import Meeting
from mpicoll.verdict.thresholds import EXPLAINS, INDEPENDENT, LONGER_QUEUE, SMALLEST


class Profile(NamedTuple):
    """One rank at one place; an excess is that over the median of the other ranks, per call.

    Attributes:
        calls: at the place, and `late_calls` the places of those in which it is late.
        lateness: the median lateness of these.
        excesses: by name: "arrival", and with samples the activities before the call, the time of
            other threads and of ended children. Colder caches explain a small excess of the running
            of a rank without a core of its own: 0. That of "queued" is the time without a core less
            the share that its running explains at the other ranks' ratio. It is real if it is large
            beside their time without a core, and the rank is late in all batches of the calls: on a
            healthy busy machine the scheduler makes each rank late in some, and early in others.
        base: the median of the other ranks' mean running, in nanoseconds per call.
        total: the means of its activities before the call.
    """

    rank: int
    calls: int
    late_calls: tuple[int, ...]
    lateness: float
    excesses: dict[str, Excess]
    base: float
    total: Activity

    @property
    def arrival(self) -> Excess:
        """The excess of its arrival."""
        return self.excesses["arrival"]


def profiles(meetings: Sequence[Meeting]) -> dict[int, Profile]:
    """Return the profile of each rank at a place, from its calls in the order of time."""
    ranks = list(meetings[0].arrivals)
    moments = np.array([[meeting.arrivals[rank].at for rank in ranks] for meeting in meetings])
    times = (moments - moments.min(axis=1, keepdims=True)).astype(np.float64)
    blocks = _independent(meetings)
    compared = {"arrival": compare(times, blocks, SMALLEST)}
    lateness = times - medians_of_peers(times)
    rows = ([meeting.arrivals[rank].activity for rank in ranks] for meeting in meetings)
    sampled = [row for row in rows if None not in row]
    means = np.zeros((len(Activity._fields), len(ranks)))
    if len(sampled) > 1:
        activities = np.array(sampled, np.float64).transpose(2, 0, 1)  # by field, call and rank
        compared |= _excesses(activities, blocks)
        means = activities.mean(axis=1)
    bases, queues = medians_of_peers(means[:2]).tolist()
    profiles = {}
    for place, rank in enumerate(ranks):
        late_calls = _late_calls(lateness[:, place])
        excesses = {name: values[place] for name, values in compared.items()}
        total = Activity(*means[:, place].tolist())
        if len(sampled) > 1:
            running, queued = excesses["running"], excesses["queued"]
            if running.mean < EXPLAINS * min(1.0, total.stretch - 1.0) * bases[place]:
                excesses["running"] = running._replace(mean=0.0)
            is_always = excesses["arrival"].least > 0
            is_long = queued.mean >= LONGER_QUEUE * queues[place]
            excesses["queued"] = queued._replace(chance=0.0 if is_always and is_long else 1.0)
        profiles[rank] = Profile(
            rank, len(meetings), tuple(late_calls),
            float(np.median(lateness[late_calls, place])) if late_calls else 0.0,
            excesses, bases[place], total,
        )  # fmt: skip
    return profiles


def _late_calls(lateness: Numbers) -> list[int]:
    """Return the places of the calls with the lateness of a rank.

    Half of the sum comes from calls that are later than a typical one. A call counts that is a
    quarter as late as this one: noise in many calls does not hide a few long waits.
    """
    delays = np.sort(lateness[lateness >= SMALLEST])[::-1]
    if not len(delays):
        return []
    sums = delays.cumsum()
    typical = delays[np.searchsorted(sums, sums[-1] / 2)]
    places: list[int] = np.flatnonzero(lateness >= max(SMALLEST, typical / 4)).tolist()
    return places


def _independent(meetings: Sequence[Meeting]) -> int:
    """Return the number of stretches of time in which the scheduler may favour another rank."""
    first, last = (meetings[place].call.rows for place in (0, -1))
    span = max(row.start for row in last.values()) - min(row.start for row in first.values())
    return int(span / INDEPENDENT)


def _excesses(activities: Numbers, blocks: int) -> dict[str, list[Excess]]:
    """Return the excess of each rank, by the name of the activity."""
    fields = dict(zip(Activity._fields, activities, strict=True))
    running, queued = fields["running"], fields["queued"]
    ratios = queued.sum(axis=0) / np.maximum(running.sum(axis=0), 1.0)
    fair = np.minimum(running * medians_of_peers(ratios[None])[0], queued)
    return {
        "queued": compare(queued - fair, blocks, SMALLEST),
        **{
            name: compare(fields[name], least=SMALLEST)
            for name in ("running", "asleep", "threads", "children")
        },
    }
