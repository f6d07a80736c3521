"""Compare the ranks at one place of the program: who comes last, how late, and by what activity."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpicoll.verdict.activity import Activity
from mpicoll.verdict.arrivals import Meeting

_BATCHES = 10
Numbers = NDArray[np.float64]


class Excess(NamedTuple):
    """The mean by which a rank exceeds the median of the other ranks, in nanoseconds per call.

    Attributes:
        score: the mean in units of its standard error, by the method of batch means: calls that
            follow each other closely depend on each other.
        least: the mean of the batch of calls with the smallest one.
    """

    mean: float
    score: float
    least: float


class Profile(NamedTuple):
    """One rank at one place.

    Attributes:
        last: the number of calls in which it came last.
        chance: how far that number exceeds an equal share, in standard deviations.
        lateness: of the calls in which it came last, the median time after the others' median.
        arrival: the excess of its arrival.
        running, asleep: the excess of these activities before the call; None without samples.
        queued: the excess of the time without a core, less the share that its running explains at
            the other ranks' ratio.
        base: the median of the other ranks' mean running, in nanoseconds per call.
        total: the means of its activities before the call.
    """

    rank: int
    calls: int
    last: int
    chance: float
    lateness: float
    arrival: Excess
    running: Excess | None = None
    asleep: Excess | None = None
    queued: Excess | None = None
    base: float = 0.0
    total: Activity = Activity()


def profiles(meetings: Sequence[Meeting]) -> dict[int, Profile]:
    """Return the profile of each rank at a place, from its calls in the order of time."""
    ranks = list(meetings[0].arrivals)
    times = np.array([_times(meeting, ranks) for meeting in meetings], np.float64)
    lateness = times - medians_of_others(times)
    last = times.argmax(axis=1)
    sampled = [
        meeting for meeting in meetings
        if all(arrival.activity is not None for arrival in meeting.arrivals.values())
    ]  # fmt: skip
    activities = _activities(sampled, ranks) if len(sampled) > 1 else None
    return {
        rank: _profile(rank, place, lateness[:, place], last == place, len(ranks), activities)
        for place, rank in enumerate(ranks)
    }


def _times(meeting: Meeting, ranks: Sequence[int]) -> list[int]:
    """Return when the ranks came, in nanoseconds after the first one."""
    times = [meeting.arrivals[rank].at for rank in ranks]
    first = min(times)
    return [time - first for time in times]


def _activities(sampled: Sequence[Meeting], ranks: Sequence[int]) -> Numbers:
    """Return running, queued and asleep, by call and rank."""
    rows = [
        [
            activity[:3] if (activity := meeting.arrivals[rank].activity) else (0, 0, 0)
            for rank in ranks
        ]
        for meeting in sampled
    ]
    return np.array(rows, np.float64).transpose(2, 0, 1)


def _profile(
    rank: int, place: int, lateness: Numbers, is_last: NDArray[np.bool_], size: int,
    activities: Numbers | None,
) -> Profile:  # fmt: skip
    calls, last = len(is_last), int(is_last.sum())
    share = 1 / size
    chance = (last - calls * share) / sqrt(calls * share * (1 - share))
    when_last = float(np.median(lateness[is_last])) if last else 0.0
    profile = Profile(rank, calls, last, chance, when_last, excess(lateness))
    if activities is None:
        return profile
    running, queued, asleep = activities
    peers = [number for number in range(size) if number != place]
    ratio = float(np.median(queued[:, peers].sum(0) / np.maximum(running[:, peers].sum(0), 1.0)))
    fair = np.minimum(running * ratio, queued)
    differences = [
        (values - medians_of_others(values))[:, place]
        for values in (running, asleep, queued - fair)
    ]
    return profile._replace(
        running=excess(differences[0]), asleep=excess(differences[1]),
        queued=excess(differences[2]),
        base=float(np.median(running[:, peers].mean(0))),
        total=Activity(*(float(values[:, place].mean()) for values in activities)),
    )  # fmt: skip


def medians_of_others(values: Numbers) -> Numbers:
    """Return for each element of a row the median of the other elements of its row.

    >>> medians_of_others(np.array([[1.0, 2.0, 9.0]])).tolist()
    [[5.5, 5.0, 1.5]]
    """
    order = np.sort(values, axis=1)
    place = values.argsort(axis=1).argsort(axis=1)
    low, high = (values.shape[1] - 2) // 2, (values.shape[1] - 1) // 2
    picked = [
        np.take_along_axis(order, middle + (place <= middle), axis=1) for middle in (low, high)
    ]
    return (picked[0] + picked[1]) / 2


def excess(differences: Numbers) -> Excess:
    """Return the mean and its score, without the lowest and the highest batch.

    So one long event, as at the start of a program, neither makes nor hides an excess.
    """
    batches = sorted(
        float(batch.mean()) for batch in np.array_split(differences, _BATCHES) if batch.size
    )
    inner = batches[1:-1] if len(batches) > 3 else batches
    error = float(np.std(inner, ddof=1)) / sqrt(len(inner)) if len(inner) > 1 else 0.0
    mean = float(np.mean(inner))
    return Excess(mean, mean / max(error, 1.0), batches[0])
