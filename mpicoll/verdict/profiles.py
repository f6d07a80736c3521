"""Compare the ranks at one place of the program: how late they come, and by what activity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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
        arrival: the excess of its arrival.
        running, asleep: the excess of these activities before the call; None without samples.
            Colder caches explain a small one of the running of a rank without a core of its own: 0.
        queued: the excess of the time without a core, less the share that its running explains at
            the other ranks' ratio. It is real if it is large beside their time without a core,
            and the rank is late in all batches of the calls: on a healthy busy machine the
            scheduler makes each rank late in some, and early in others.
        threads, children: the excess of the time that other threads, or ended children, have run.
        base: the median of the other ranks' mean running, in nanoseconds per call.
        total: the means of its activities before the call.
    """

    rank: int
    calls: int
    late_calls: tuple[int, ...]
    lateness: float
    arrival: Excess
    running: Excess | None = None
    asleep: Excess | None = None
    queued: Excess | None = None
    threads: Excess | None = None
    children: Excess | None = None
    base: float = 0.0
    total: Activity = Activity()


def profiles(meetings: Sequence[Meeting]) -> dict[int, Profile]:
    """Return the profile of each rank at a place, from its calls in the order of time."""
    ranks = list(meetings[0].arrivals)
    moments = np.array([[meeting.arrivals[rank].at for rank in ranks] for meeting in meetings])
    times = (moments - moments.min(axis=1, keepdims=True)).astype(np.float64)
    blocks = _independent(meetings)
    arrivals = compare(times, blocks, SMALLEST)
    lateness = times - medians_of_peers(times)
    rows = ([meeting.arrivals[rank].activity for rank in ranks] for meeting in meetings)
    sampled = [row for row in rows if None not in row]
    activities = np.array(sampled, np.float64).T  # by field, rank and call
    excesses = _excesses(activities.swapaxes(1, 2), blocks) if len(sampled) > 1 else {}
    profiles = {}
    for place, rank in enumerate(ranks):
        late_calls = _late_calls(lateness[:, place])
        local: dict[str, Any] = {name: values[place] for name, values in excesses.items()}
        profile = Profile(
            rank, len(meetings), tuple(late_calls),
            float(np.median(lateness[late_calls, place])) if late_calls else 0.0, arrivals[place],
            **local,
        )  # fmt: skip
        running, queued = profile.running, profile.queued
        if running and queued:
            base, queue = np.median(
                np.delete(activities[:2], place, axis=1).mean(axis=2), axis=1
            ).tolist()
            total = Activity(*activities[:, place].mean(axis=1).tolist())
            if running.mean < EXPLAINS * min(1.0, total.stretch - 1.0) * base:
                running = running._replace(mean=0.0)
            is_always = profile.arrival.least > 0 and queued.mean >= LONGER_QUEUE * queue
            queued = queued._replace(chance=0.0 if is_always else 1.0)
            profile = profile._replace(running=running, queued=queued, base=base, total=total)
        profiles[rank] = profile
    return profiles


def _late_calls(lateness: Numbers) -> list[int]:
    """Return the places of the calls with the lateness of a rank.

    Half of the sum comes from calls that are later than a typical one. A call counts that is a
    quarter as late as this one: noise in many calls does not hide a few long waits.
    """
    late = np.sort(lateness[lateness >= SMALLEST])[::-1]
    if not len(late):
        return []
    sums = late.cumsum()
    typical = late[np.searchsorted(sums, sums[-1] / 2)]
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
