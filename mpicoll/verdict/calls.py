"""Find calls that nobody needs, and calls whose ranks have uneven data."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from mpicoll.verdict.arrivals import Meeting, Observation
from mpicoll.verdict.findings import Finding, Kind
from mpicoll.verdict.lateness import uneven_ranks
from mpicoll.verdict.thresholds import DIRECT, FEWEST_CALLS, MOSTLY, RELEVANT


def unneeded_calls(observation: Observation) -> Iterator[Finding]:
    """Yield the barriers that stand directly beside another synchronising call of their group."""
    for place, meetings in observation.meetings.items():
        if place.collective != "barrier" or len(meetings) < FEWEST_CALLS:
            continue
        by_sequence = {
            meeting.call.sequence: meeting for meeting in observation.of_group(place.group)
        }
        for step, verb in ((-1, "follows"), (1, "precedes")):
            neighbours = [
                neighbour for meeting in meetings
                if (neighbour := by_sequence.get(meeting.call.sequence + step))
                and neighbour.call.is_synchronising and neighbour.call.place != place
                and _gap(*((neighbour, meeting) if step < 0 else (meeting, neighbour))) <= DIRECT
            ]  # fmt: skip
            if len(neighbours) >= MOSTLY * len(meetings):
                yield Finding(
                    Kind.UNNEEDED_CALL, observation.moving[place], place=place,
                    calls=len(meetings), late_calls=len(neighbours), detail=verb,
                    neighbour=neighbours[-1].call.place,
                )  # fmt: skip
                break


def _gap(first: Meeting, second: Meeting) -> float:
    """Return the median over the ranks of the time between two calls, in nanoseconds.

    The time without a core is left out where samples tell it.
    """
    gaps = []
    for rank, arrival in second.arrivals.items():
        wall = second.call.rows[rank].start - first.call.rows[rank].end
        activity = arrival.activity
        gaps.append(min(wall, activity.running + activity.asleep) if activity else wall)
    return median(gaps)


def uneven_data(observation: Observation) -> Iterator[Finding]:
    """Yield the calls that move data for long, and whose ranks have uneven data."""
    for place, meetings in observation.meetings.items():
        if len(meetings) < FEWEST_CALLS or not (larger := uneven_ranks(meetings)):
            continue
        factor = max(larger.values())
        cost = observation.moving[place] * (1 - 1 / factor)
        if cost >= RELEVANT:
            yield Finding(
                Kind.UNEVEN_DATA, cost, tuple(larger), place=place, calls=len(meetings),
                detail=f"{factor:.2g}",
            )  # fmt: skip
