"""Tell why ranks come late at one place, by the activity of their threads before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from mpicoll.flight.reader import Dump
from mpicoll.measurement.peers import compare, medians_of_peers
from mpicoll.verdict.activity import working_ranks
from mpicoll.verdict.arrivals import Meeting, Observation
from mpicoll.verdict.findings import Finding, Kind
from mpicoll.verdict.matching import SYNCHRONISING, Place, amounts_of, counts_of
from mpicoll.verdict.profiles import Profile, profiles
from mpicoll.verdict.thresholds import (
    EXPLAINS,
    FEWEST_CALLS,
    OF_PROCESS,
    OUTLIER,
    RELEVANT,
    RELEVANT_QUEUE,
    SLOWER,
    SMALLEST,
    UNEVEN,
    WAITS,
)

_BY_ITSELF = ("running", "asleep")
"""Activities that neither the scheduler nor other ranks make longer."""


class Nodes(NamedTuple):
    """The hosts of the ranks, and the speed of their cores.

    Attributes:
        host_of: by rank.
        probe: by rank the nanoseconds that a fixed loop of arithmetic takes; without those of which
            nothing is known.
    """

    host_of: dict[int, str]
    probe: dict[int, float]

    @classmethod
    def of(cls, dumps: Sequence[Dump]) -> Nodes:
        """Return the nodes of a job."""
        probes = {
            dump.rank: sorted(sample.probe for sample in dump.samples if sample.probe)
            for dump in dumps
        }
        # A loop that lost its core takes longer: the lower quartile is free of that.
        quartiles = {rank: float(times[len(times) // 4]) for rank, times in probes.items() if times}
        return cls({dump.rank: dump.process.host for dump in dumps}, quartiles)

    def slowness(self, rank: int) -> float:
        """Return the time of the loop on a rank's node, relative to the other nodes' median."""
        host = self.host_of[rank]
        remote = [time for peer, time in self.probe.items() if self.host_of[peer] != host]
        local = [time for peer, time in self.probe.items() if self.host_of[peer] == host]
        return median(local) / median(remote) if local and remote else 1.0

    def whole(self, ranks: Sequence[int]) -> str:
        """Return the host whose ranks are exactly these; empty for none, and for a single host."""
        hosts = {self.host_of[rank] for rank in ranks}
        members = [rank for rank, host in self.host_of.items() if host in hosts]
        is_whole = len(hosts) == 1 and sorted(members) == sorted(ranks)
        return hosts.pop() if is_whole and len(members) < len(self.host_of) else ""


def late_ranks(
    place: Place, ranks: Mapping[int, Profile], observation: Observation, nodes: Nodes
) -> Iterator[Finding]:
    """Yield the causes for which ranks come late at a place, by their profiles there."""
    meetings = observation.meetings[place]
    workers = working_ranks({rank: profile.total for rank, profile in ranks.items()})
    if len(meetings) < FEWEST_CALLS or len(workers) < 2:
        return
    span, busy = observation.span / len(meetings), observation.busy_span / len(meetings)
    causes: tuple[tuple[Kind, str, float, float], ...] = (
        (Kind.MORE_WORK, "running", busy, RELEVANT), (Kind.ASLEEP, "asleep", busy, RELEVANT),
        (Kind.SHARED_CORE, "queued", span, RELEVANT_QUEUE),
    )  # fmt: skip
    if not all("queued" in profile.excesses for profile in ranks.values()):  # there are no samples
        causes = ((Kind.UNCLEAR, "arrival", span, 2 * RELEVANT),)
    largest: dict[int, tuple[float, Kind]] = {}
    for kind, activity, length, relevant in causes:
        for rank in _outliers(ranks, activity, length, relevant):
            profile, cause = ranks[rank], (_weight(ranks[rank], activity), kind)
            is_own_time = min(profile.arrival.mean, cause[0]) >= WAITS * profile.total.messages
            is_late = is_own_time and profile.arrival.mean >= profile.excesses[activity].mean / 3
            is_blamed = is_late and (
                activity in _BY_ITSELF or _is_late_in_group(profile, activity, place, observation)
            )
            if is_blamed:
                largest[rank] = max(largest.get(rank, cause), cause, key=itemgetter(0))
    for kind, activity, _, _ in causes:
        if stragglers := [rank for rank, (_, cause) in largest.items() if cause is kind]:
            yield _finding(kind, activity, stragglers, ranks, observation, meetings, nodes)
    if not largest and (lateness := turns(meetings, span)):
        yield Finding(
            Kind.TURNS, cost_of(meetings, observation), tuple(ranks), place=place,
            calls=len(meetings), late_calls=len(meetings), lateness=lateness,
        )  # fmt: skip


def _weight(profile: Profile, activity: str) -> float:
    """Return an excess with the waits for a core that it causes on a busy machine.

    A rank that runs longer loses its core more often, and one that sleeps has none when it wakes.
    """
    excess = profile.excesses[activity].mean
    if activity not in _BY_ITSELF:
        return excess
    is_reason = excess >= EXPLAINS * profile.base
    queued = max(0.0, profile.excesses["queued"].mean) if is_reason else 0.0
    return excess * profile.total.stretch + queued


def turns(meetings: Sequence[Meeting], span: float) -> float:
    """Return how late a rank is on average if the ranks are late in a fixed order; else 0.

    Then in each round one rank is late in the first call, another one in the second, and so on.

    Args:
        span: nanoseconds between two calls.
    """
    rows = []
    for meeting in meetings:
        arrivals = meeting.arrivals.values()
        by_itself = [
            # A call that does not block may complete while the thread sleeps.
            arrival.activity.by_itself if meeting.is_blocking else arrival.activity.running
            for arrival in arrivals if arrival.activity
        ]  # fmt: skip
        is_sampled = len(by_itself) == len(arrivals)
        rows.append(by_itself if is_sampled else [float(arrival.at) for arrival in arrivals])
    times, size = np.array(rows), len(rows[0])
    limit = max(SMALLEST, RELEVANT * span)
    sequence = np.array([meeting.call.sequence for meeting in meetings])  # some calls may be lost
    places = sequence // max(1, np.diff(sequence).min()) % size
    delays: dict[int, float] = {}
    for place in range(size if np.bincount(places, minlength=size).min() >= FEWEST_CALLS else 0):
        excesses = compare(times[places == place], least=limit)
        rank = max(range(size), key=lambda rank: excesses[rank].mean)
        if not excesses[rank].is_real or excesses[rank].mean < limit:
            break
        delays[rank] = excesses[rank].mean
    return fmean(delays.values()) if len(delays) == size else 0.0


def _is_late_in_group(
    profile: Profile, activity: str, place: Place, observation: Observation
) -> bool:  # fmt: skip
    """Whether a rank is late in all calls of a group together, half as much as at one place.

    Ranks that share cores take turns: the last one of a call keeps its core, and comes first to the
    next call. So each is late at a place of its own, and none is late in sum. The time before a
    call that does not synchronise counts for the next one that does.
    """
    frequent = [
        peer_place for peer_place, meetings in observation.meetings.items()
        if peer_place.group == place.group and 2 * len(meetings) >= profile.calls
    ]  # fmt: skip
    counted = [peer for peer in frequent if peer.collective in SYNCHRONISING] or frequent
    meetings = [meeting for peer in counted for meeting in observation.meetings[peer]]
    whole = profiles(sorted(meetings, key=lambda row: row.call.sequence))[profile.rank]
    late, local = (rank.arrival.mean * rank.calls for rank in (whole, profile))
    return place in counted and whole.excesses[activity].is_real and 2 * late >= local


def _outliers(
    ranks: Mapping[int, Profile], activity: str, span: float, relevant: float
) -> list[int]:  # fmt: skip
    """Return the ranks whose excess is relevant, no chance, and unlike that of the other ranks.

    Args:
        span: nanoseconds between two calls of the place.
        relevant: the share of `span` plus the excess that the excess must reach.
    """
    values = {rank: profile.excesses[activity] for rank, profile in ranks.items()}
    stragglers = [
        rank for rank, value in values.items()
        if value.mean >= max(SMALLEST, relevant * (span + value.mean)) and value.is_real
    ]  # fmt: skip
    normal = [value.mean for rank, value in values.items() if rank not in stragglers]
    if 2 * len(stragglers) > len(values):  # the other ranks are early, rather
        return []
    limit = OUTLIER * max(normal) if len(values) > 2 else 0.0
    return [rank for rank in stragglers if values[rank].mean > limit]


def _finding(
    kind: Kind, activity: str, stragglers: Sequence[int], ranks: Mapping[int, Profile],
    observation: Observation, meetings: Sequence[Meeting], nodes: Nodes,
) -> Finding:  # fmt: skip
    """Return the cause that some ranks are late by an activity, or what is behind it."""
    worst = max(stragglers, key=lambda rank: ranks[rank].excesses[activity].mean)
    late_calls = sorted({place for rank in stragglers for place in ranks[rank].late_calls})
    finding = Finding(
        kind, cost_of([meetings[place] for place in late_calls], observation), tuple(stragglers),
        nodes.whole(stragglers), meetings[0].call.place, len(meetings), len(late_calls),
        median(ranks[rank].lateness for rank in stragglers), ranks[worst],
    )  # fmt: skip
    if kind in (Kind.ASLEEP, Kind.SHARED_CORE):
        return finding._replace(kind=_of_process(kind, activity, ranks[worst]))
    if kind is Kind.MORE_WORK:
        excess, slowness = ranks[worst].excesses[activity], nodes.slowness(worst)
        if slowness >= SLOWER and ranks[worst].base * (slowness - 1) >= excess.mean / 2:
            return finding._replace(kind=Kind.SLOW_NODE, detail=f"{slowness:.2g}")
        larger = uneven_ranks(observation.of_group(meetings[0].call.place.group))
        if {*stragglers} <= larger.keys():
            factor = max(larger[rank] for rank in stragglers)
            return finding._replace(kind=Kind.UNEVEN_DATA, detail=f"{factor:.2g}")
    return finding


def _of_process(kind: Kind, activity: str, profile: Profile) -> Kind:
    """Return whether other threads of a rank or its children are the reason that it waits."""
    limit = OF_PROCESS * profile.excesses[activity].mean
    for cause, name in ((Kind.OWN_THREAD, "threads"), (Kind.CHILD_PROCESS, "children")):
        if profile.excesses[name].is_real and profile.excesses[name].mean >= limit:
            return cause
    return kind


def cost_of(meetings: Sequence[Meeting], observation: Observation) -> float:
    """Return the share of the job's time for which ranks wait for the last one in these calls.

    Calls that do not hold their threads have no waits: there, the peers of a late rank wait later.
    """
    waited = sum(arrival.wait for meeting in meetings for arrival in meeting.arrivals.values())
    if not waited:
        waited = sum(
            max(0, round(meeting.lateness(meeting.last))) * (len(meeting.arrivals) - 1)
            for meeting in meetings if not meeting.is_blocking
        )  # fmt: skip
    return min(1.0, waited / observation.total)


def uneven_ranks(meetings: Sequence[Meeting]) -> dict[int, float]:
    """Return the ranks with more data than the others in calls with counts, and how many times."""
    for meeting in reversed(meetings):
        call = meeting.call
        signatures = [call.rows[rank].call.signature for rank in call.members]
        sides = [*zip(*map(amounts_of, signatures), strict=False)]
        counts = next(filter(None, (counts_of(text, len(signatures)) for text in signatures)), [])
        sides += [tuple(counts)] if counts else []
        if sides:
            table = np.array(sides, np.float64)
            largest = (table / np.maximum(medians_of_peers(table), 1)).max(axis=0).tolist()
            pairs = zip(call.members, largest, strict=True)
            return {rank: factor for rank, factor in pairs if factor >= UNEVEN}
    return {}
