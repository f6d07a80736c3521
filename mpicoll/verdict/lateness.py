"""Tell why ranks come late at one place, by the activity of their threads before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from statistics import median
from typing import NamedTuple

from mpicoll.flight.reader import Dump
from mpicoll.verdict.arrivals import Meeting, Observation
from mpicoll.verdict.findings import Finding, Kind
from mpicoll.verdict.matching import counts_of
from mpicoll.verdict.profiles import Excess, Profile, profiles
from mpicoll.verdict.thresholds import (
    CHANCE,
    FEWEST_CALLS,
    OUTLIER,
    RELEVANT,
    RELEVANT_QUEUE,
    SCORE,
    SLOWER,
    SMALLEST,
    UNEVEN,
)

Pick = Callable[[Profile], Excess | None]


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

    def slowness(self, rank: int) -> float | None:
        """Return the time of the loop on a rank's node, relative to the other nodes' median."""
        host = self.host_of[rank]
        remote = [time for peer, time in self.probe.items() if self.host_of[peer] != host]
        local = [time for peer, time in self.probe.items() if self.host_of[peer] == host]
        return median(local) / median(remote) if local and remote else None

    def whole(self, ranks: Sequence[int]) -> str:
        """Return the host whose ranks are exactly these; empty for none, and for a single host."""
        hosts = {self.host_of[rank] for rank in ranks}
        members = [rank for rank, host in self.host_of.items() if host in hosts]
        is_whole = len(hosts) == 1 and sorted(members) == sorted(ranks)
        return hosts.pop() if is_whole and len(members) < len(self.host_of) else ""


def late_ranks(
    meetings: Sequence[Meeting], observation: Observation, nodes: Nodes
) -> Iterator[Finding]:
    """Yield the causes for which ranks come late at a place."""
    if len(meetings) < FEWEST_CALLS:
        return
    ranks = profiles(meetings)
    span, busy = observation.span / len(meetings), observation.busy_span / len(meetings)
    causes = (
        (Kind.MORE_WORK, _running, busy, RELEVANT), (Kind.ASLEEP, _asleep, busy, RELEVANT),
        (Kind.SHARED_CORE, _queued, span, RELEVANT_QUEUE),
    )  # fmt: skip
    explained: set[int] = set()
    for kind, pick, length, relevant in causes:
        stragglers = _outliers(ranks, pick, length, relevant)
        stragglers = [
            rank for rank in stragglers if ranks[rank].chance >= CHANCE and rank not in explained
        ]
        explained |= {*stragglers}
        if stragglers:
            yield _finding(kind, stragglers, ranks, pick, meetings, observation, nodes)
    stragglers = _outliers(ranks, _lateness, span, 2 * RELEVANT)
    stragglers = [rank for rank in stragglers if _is_unclear(ranks[rank])]
    if stragglers and not explained:
        yield _finding(Kind.UNCLEAR, stragglers, ranks, _lateness, meetings, observation, nodes)


def _is_unclear(profile: Profile) -> bool:
    """Whether a rank is late by itself, for a reason that the samples do not tell.

    On busy cores the scheduler makes one rank late and then another: the queue for a core must not
    explain most of the lateness.
    """
    if 2 * profile.last < profile.calls:
        return False
    if profile.running is None or profile.asleep is None:
        return True
    return 2 * (profile.running.mean + profile.asleep.mean) >= profile.arrival.mean


def _running(profile: Profile) -> Excess | None:
    return profile.running


def _asleep(profile: Profile) -> Excess | None:
    return profile.asleep


def _queued(profile: Profile) -> Excess | None:
    """Return the excess of the time without a core; it is consistent if the rank is always late.

    That time comes in few long pieces, so that its own score is low. On a healthy busy machine the
    scheduler makes each rank late in some batches of calls, and early in others.
    """
    if profile.queued is None:
        return None
    return profile.queued._replace(score=inf if profile.arrival.least > 0 else 0.0)


def _lateness(profile: Profile) -> Excess | None:
    return profile.arrival


def _outliers(ranks: Mapping[int, Profile], pick: Pick, span: float, relevant: float) -> list[int]:
    """Return the ranks whose excess is relevant, consistent, and unlike that of the other ranks.

    Args:
        span: nanoseconds between two calls of the place.
        relevant: the share of `span` plus the excess that the excess must reach.
    """
    values = {rank: value for rank, profile in ranks.items() if (value := pick(profile))}
    stragglers = [
        rank for rank, value in values.items()
        if value.mean >= max(SMALLEST, relevant * (span + value.mean)) and value.score >= SCORE
    ]  # fmt: skip
    normal = [value.mean for rank, value in values.items() if rank not in stragglers]
    limit = OUTLIER * max(normal, default=0.0) if len(values) > 2 else 0.0
    if 2 * len(stragglers) > len(values):  # the other ranks are early, rather
        return []
    return [rank for rank in stragglers if values[rank].mean > limit]


def _finding(
    kind: Kind, stragglers: Sequence[int], ranks: Mapping[int, Profile], pick: Pick,
    meetings: Sequence[Meeting], observation: Observation, nodes: Nodes,
) -> Finding:  # fmt: skip
    worst = max(stragglers, key=lambda rank: value.mean if (value := pick(ranks[rank])) else 0.0)
    behind = [meeting for meeting in meetings if meeting.last in stragglers]
    lateness = median([meeting.lateness(meeting.last) for meeting in behind] or [0.0])
    finding = Finding(
        kind, cost_of(behind, observation), tuple(stragglers), nodes.whole(stragglers),
        meetings[0].call.place, len(meetings), len(behind), lateness, ranks[worst],
        nodes.slowness(worst),
    )  # fmt: skip
    in_group = observation.of_group(meetings[0].call.place.group)
    return _refined(finding, in_group) if kind is Kind.MORE_WORK else finding


def cost_of(meetings: Sequence[Meeting], observation: Observation) -> float:
    """Return the share of the job's time for which ranks wait in these calls."""
    waited = (arrival.wait for meeting in meetings for arrival in meeting.arrivals.values())
    return sum(waited) / observation.total


def _refined(finding: Finding, meetings: Sequence[Meeting]) -> Finding:
    """Return the cause of a long computation: a slow node, uneven data, or the program."""
    profile, slowness = finding.profile, finding.slowness or 1.0
    running = profile.running if profile else None
    if profile and running and slowness >= SLOWER:
        explained = profile.base * (slowness - 1)
        if explained >= running.mean / 2:
            return finding._replace(kind=Kind.SLOW_NODE)
    larger = uneven_ranks(meetings)
    if {*finding.ranks} <= larger.keys():
        factor = max(larger[rank] for rank in finding.ranks)
        return finding._replace(kind=Kind.UNEVEN_DATA, detail=f"{factor:.2g}")
    return finding


def uneven_ranks(meetings: Sequence[Meeting]) -> dict[int, float]:
    """Return the ranks with more data than the others in calls with counts, and how many times."""
    for meeting in reversed(meetings):
        call = meeting.call
        signatures = (entry.call.signature for entry in call.rows.values())
        counts = next(filter(None, (counts_of(text, len(call.members)) for text in signatures)), [])
        if counts:
            middle = max(median(counts), 1)
            factors = {
                rank: count / middle for rank, count in zip(call.members, counts, strict=True)
            }
            return {rank: factor for rank, factor in factors.items() if factor >= UNEVEN}
    return {}
