"""Judge a job by the files of all ranks: the causes of lost time, the most expensive first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from mpicoll.flight.reader import Dump
from mpicoll.verdict.arrivals import Meeting, Observation, observe
from mpicoll.verdict.calls import uneven_data, unneeded_calls
from mpicoll.verdict.clocks import Alignment, align
from mpicoll.verdict.findings import Finding, Kind
from mpicoll.verdict.lateness import Nodes, cost_of, late_ranks
from mpicoll.verdict.links import slow_links, with_full_link
from mpicoll.verdict.matching import IN_MESSAGES, Place
from mpicoll.verdict.messages import slices_of
from mpicoll.verdict.profiles import Profile, profiles
from mpicoll.verdict.thresholds import MOVING, OWN_CORE, RELEVANT, RELEVANT_STOP

_ASLEEP = frozenset((Kind.ASLEEP, Kind.CHILD_PROCESS, Kind.OWN_THREAD))


class Verdict(NamedTuple):
    """The verdict on a job.

    Attributes:
        findings: the causes of lost time, the most expensive first.
        places: the profiles of the ranks at each place.
        alignment: the files with the times of one clock.
    """

    findings: list[Finding]
    observation: Observation
    places: dict[Place, dict[int, Profile]]
    alignment: Alignment

    @property
    def calls(self) -> int:
        """The number of complete calls."""
        places = self.observation.meetings.items()
        return sum(len(meetings) for place, meetings in places if place.collective != IN_MESSAGES)


def judge(dumps: Sequence[Dump]) -> Verdict:
    """Return the verdict on a job by the files of all ranks."""
    alignment = align(dumps)
    observation = observe(alignment.dumps)
    nodes = Nodes.of(dumps)
    places, lateness = _late(observation, nodes)
    slices = slices_of(observation, alignment.dumps)
    slice_places, reasons = _late(slices, nodes)
    lateness = [finding for finding in lateness if _is_costly(finding, 0.0)] or [
        finding for finding in reasons if _is_costly(finding, RELEVANT)
    ]
    places |= slice_places
    observation = observation.joined(slices)
    findings = [*_merged([*stopped_ranks(observation, nodes), *lateness])]
    findings += [*slow_links(dumps, observation), *unneeded_calls(observation)]
    findings += [
        finding for finding in uneven_data(observation)
        if all(finding.kind is not earlier.kind for earlier in findings)
    ]  # fmt: skip
    if not findings:
        findings = [with_full_link(finding, dumps) for finding in data_movement(observation)]
    return Verdict(
        sorted(findings, key=lambda finding: -finding.cost), observation, places, alignment
    )


def _is_costly(finding: Finding, limit: float) -> bool:
    return finding.cost >= (OWN_CORE if finding.kind is Kind.SHARED_CORE else limit)


def _late(
    observation: Observation, nodes: Nodes
) -> tuple[dict[Place, dict[int, Profile]], list[Finding]]:
    """Return the profiles of the ranks at each place, and why ranks come late."""
    places = {place: profiles(meetings) for place, meetings in observation.meetings.items()}
    rows = (late_ranks(place, ranks, observation, nodes) for place, ranks in places.items())
    return places, [*chain.from_iterable(rows)]


def _merged(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield one finding for each kind and its ranks: the most expensive place, and the whole cost.

    A rank with a known cause is not reported a second time where its cause is unclear, and one that
    was stopped not as asleep.
    """
    groups: dict[tuple[Kind, tuple[int, ...]], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.kind, finding.ranks), []).append(finding)
    reasons = {rank for kind, ranks in groups if kind is not Kind.UNCLEAR for rank in ranks}
    stopped = {rank for kind, ranks in groups if kind is Kind.STOPPED for rank in ranks}
    for (kind, ranks), members in groups.items():
        explained = reasons if kind is Kind.UNCLEAR else stopped if kind in _ASLEEP else set[int]()
        if not {*ranks} <= explained:
            worst = max(members, key=lambda finding: finding.cost)
            yield worst._replace(cost=sum(finding.cost for finding in members))


def stopped_ranks(observation: Observation, nodes: Nodes) -> Iterator[Finding]:
    """Yield the ranks whose process was stopped and continued; all of them as one finding."""
    shares = {
        rank: activity.stopped / max(1, observation.observed[rank])
        for rank, activity in observation.activity.items() if observation.stops[rank]
    }  # fmt: skip
    shares = {rank: share for rank, share in shares.items() if share >= RELEVANT_STOP}
    is_of_all = len(shares) == len(observation.activity)
    for ranks in [[*shares]] if shares and is_of_all else [[rank] for rank in shares]:
        rank, costs = ranks[0], dict[Place | None, float]({None: shares[ranks[0]]})
        if not is_of_all:
            costs = {
                place: cost_of([row for row in meetings if _was_stopped(row, rank)], observation)
                for place, meetings in observation.meetings.items()
            }
        yield Finding(
            Kind.STOPPED, sum(costs.values()), tuple(ranks), nodes.whole(ranks),
            max(costs, key=lambda place: costs[place], default=None),
            sum(map(len, observation.meetings.values())), observation.stops[rank],
            observation.activity[rank].stopped / observation.stops[rank],
            detail=f"{100 * shares[rank]:.2g}",
        )  # fmt: skip


def _was_stopped(meeting: Meeting, rank: int) -> bool:
    """Whether a rank came last after a stop."""
    activity = meeting.arrivals[meeting.last].activity
    return meeting.last == rank and activity is not None and activity.stopped > 0


def data_movement(observation: Observation) -> Iterator[Finding]:
    """Yield the place that moves data for longest, if data moves for a large share of the time.

    The time without a core is left out. Objects of Python are pickled in their calls.
    """
    shares = {
        place: share - observation.coreless[place] for place, share in observation.moving.items()
    }
    if sum(shares.values()) >= MOVING:
        place = max(shares, key=lambda place: shares[place])
        is_pickled = observation.meetings[place][-1].call.is_of_objects
        yield Finding(
            Kind.OBJECTS if is_pickled else Kind.DATA_MOVEMENT, sum(shares.values()), place=place,
            calls=len(observation.meetings[place]), detail=f"{100 * shares[place]:.0f}",
        )  # fmt: skip
