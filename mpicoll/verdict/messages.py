"""Compare the ranks by their time outside of messages, which have no rows.

A rank that is in a message waits for another one. So the rank that keeps the others waiting is the
one that is least in messages. The watched time is cut into slices, and each slice counts as a call
to which a rank comes after the time that it was outside of calls and messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from mpicoll.flight.layout import Outcome
from mpicoll.flight.reader import Dump, Entry
from mpicoll.flight.records import Call, Group, Location
from mpicoll.verdict.activity import Activity, Curve, working_ranks
from mpicoll.verdict.arrivals import Arrival, Meeting, Observation
from mpicoll.verdict.matching import IN_MESSAGES, MatchedCall, Place
from mpicoll.verdict.thresholds import FEWEST_CALLS, INDEPENDENT, RELEVANT

_MOST_SLICES = 64
_GROUP, _CALL = Group(IN_MESSAGES, IN_MESSAGES, 0, ""), Call(IN_MESSAGES)


def slices_of(observation: Observation, dumps: Sequence[Dump]) -> Observation:
    """Return slices of the watched time as calls; none if no rank is in messages for long."""
    curves = {rank: curve for rank, curve in observation.curves.items() if len(curve.times) > 1}
    begin = max((curve.times[0] for curve in curves.values()), default=0)
    end = max(begin + 1, min((curve.times[-1] for curve in curves.values()), default=0))
    whole = {rank: curve.between(begin, end) or Activity() for rank, curve in curves.items()}
    shares = {rank: activity.messages / (end - begin) for rank, activity in whole.items()}
    workers = {rank: curves[rank] for rank in working_ranks(whole)}
    count = min(_MOST_SLICES, (end - begin) // INDEPENDENT)
    meetings: dict[Place, list[Meeting]] = {}
    if count >= FEWEST_CALLS and len(workers) > 1 and max(shares.values()) >= RELEVANT:
        place = Place(IN_MESSAGES, IN_MESSAGES, _most_used_line(dumps))
        times = [begin + (end - begin) * step // count for step in range(count + 1)]
        meetings[place] = [
            _slice(place, number, *span, workers) for number, span in enumerate(pairwise(times))
        ]
    nothing = dict.fromkeys(meetings, 0.0)
    return Observation(
        meetings, dict.fromkeys(whole, end - begin), whole, observation.stops, curves,
        dict.fromkeys(meetings, fmean(shares.values() or [0.0])), nothing, nothing,
    )  # fmt: skip


def _most_used_line(dumps: Sequence[Dump]) -> Location | None:
    """Return the line at which the ranks are longest in messages."""
    times = Counter[Location]()
    for dump in dumps:
        for first, second in pairwise(dump.samples):
            if location := dump.locations.get(second.location):
                times[location] += max(0, second.messages - first.messages)
    return max(times, key=lambda location: times[location], default=None)


def _slice(
    place: Place, number: int, start: int, end: int, curves: Mapping[int, Curve]
) -> Meeting:  # fmt: skip
    """Return a slice of the time as a call."""
    activities = {rank: curve.between(start, end) or Activity() for rank, curve in curves.items()}
    times = {rank: start + round(activity.outside) for rank, activity in activities.items()}
    rows = {
        rank: Entry(number, number, at, max(at, end), _GROUP, _CALL, None, 0, Outcome.COMPLETED, "")
        for rank, at in times.items()
    }
    arrivals = {}
    for rank, activity in activities.items():
        wait = min(max(times.values()) - times[rank], round(activity.messages))
        arrivals[rank] = Arrival(times[rank], wait, 0, 0, activity)
    return Meeting(MatchedCall(_GROUP, number, place, tuple(curves), rows, None), arrivals)
