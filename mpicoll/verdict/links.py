"""Compare the links between hosts, by the TCP connections of the ranks.

Data wait before a slow link: a round trip takes longer with as many bytes in flight, and a byte
takes longer to send. Two directions of links are peers if their senders send to as many hosts, and
their receivers receive from as many, and as many bytes: a host in the middle of a chain shares its
port.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import exp
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from mpicoll.flight.reader import Dump, Link
from mpicoll.measurement.peers import compare
from mpicoll.verdict.arrivals import Observation
from mpicoll.verdict.findings import Finding, Kind
from mpicoll.verdict.thresholds import FULL_LINK, MOVING, RELEVANT, SLOW_LINK, SLOW_LINKS

_COMPARABLE = 0.25
"""The share of the busiest pair's bytes from which on a pair is compared: a link with few bytes is
busy with waiting for their acknowledgement."""
_FEWEST_BYTES = 1 << 20
_ALIKE = 1.5
"""The ratio of the bytes of two peers, at most: with more bytes in flight, data wait longer."""
_OF_HOST = 1.4
"""The weight of a host's links against a single one of them, in logarithms."""
Ends = tuple[str, str]
"""The sender and the receiver."""


class Pair(NamedTuple):
    """The traffic from one host to another, over the connection that sends most.

    Attributes:
        sent: bytes.
        delays: by reading, the microseconds of the round trip beyond the least one.
        times: by reading, the microseconds for a byte, of those with data to send.
        least_trip: the least round trip, in microseconds.
    """

    sent: int
    delays: tuple[float, ...]
    times: tuple[float, ...]
    least_trip: int

    @classmethod
    def of(cls, readings: Sequence[Link]) -> Pair:
        """Return the traffic of one connection."""
        sending = [
            (max(1.0, link.rtt - link.rtt_min), (link.busy - earlier.busy) / sent)
            for earlier, link in pairwise(readings)
            if (sent := link.sent - earlier.sent) > 0 and link.busy > earlier.busy
        ]
        delays, times = zip(*sending, strict=True) if sending else ((), ())
        return cls(readings[-1].sent - readings[0].sent, delays, times, readings[-1].rtt_min)


def hosts_by_address(dumps: Sequence[Dump]) -> dict[str, str]:
    """Return the name of the host of each address that has a connection to another one."""
    return {
        link.local: dump.process.host
        for dump in dumps for link in dump.links if link.local != link.peer
    }  # fmt: skip


def traffic(dumps: Sequence[Dump]) -> dict[Ends, Pair]:
    """Return the traffic between each two hosts that sends enough bytes to be compared."""
    host_of = hosts_by_address(dumps)
    pairs: dict[Ends, Pair] = {}
    for dump in dumps:
        connections: dict[tuple[str, int, str, int], list[Link]] = {}
        for link in (link for link in dump.links if link.local != link.peer):
            connections.setdefault(link.connection, []).append(link)
        for readings in connections.values():
            peer, pair = readings[-1].peer, Pair.of(readings)
            ends = dump.process.host, host_of.get(peer, peer)
            if ends[0] != ends[1] and pair.delays:
                pairs[ends] = max(pair, pairs.get(ends, pair))
    fewest = max([_FEWEST_BYTES, *(_COMPARABLE * pair.sent for pair in pairs.values())])
    return {ends: pair for ends, pair in pairs.items() if pair.sent >= fewest}


def slow_links(dumps: Sequence[Dump], observation: Observation) -> Iterator[Finding]:
    """Yield the host whose links are slower than their peers, or the link."""
    moving, pairs = sum(observation.moving.values()), traffic(dumps)
    if moving < MOVING or not pairs:
        return
    suspects = [(host, links, _times_slower(links, pairs)) for host, links in _suspects(pairs)]
    host, links, score = max(suspects, key=lambda row: row[2] ** (_OF_HOST if row[0] else 1))
    if score >= (SLOW_LINKS if host else SLOW_LINK) and moving * (1 - 1 / score) >= RELEVANT:
        finding = Finding(Kind.SLOW_LINK, moving * (1 - 1 / score), host=host)
        local = {ends: pair for ends, pair in pairs.items() if {*ends} in links}
        remote = [pair for ends, pair in pairs.items() if ends not in local]
        finding = _with_figures(finding, local, (_rate(remote), _delay(remote)))
        yield finding._replace(place=max(observation.moving, key=observation.moving.__getitem__))


def with_full_link(finding: Finding, dumps: Sequence[Dump]) -> Finding:
    """Return a finding on moving data with the full link, or the port of a host, if it is full.

    Only one that no other link can be compared with: equal links tell whether it is slow.
    """
    pairs = traffic(dumps)
    hubs = frozenset.intersection(*map(frozenset, pairs)) if pairs else frozenset[str]()
    least_trip = max((pair.least_trip for pair in pairs.values()), default=0)
    limit = max(FULL_LINK, 100 * least_trip)
    if not hubs or any(_delay([pair]) < limit for pair in pairs.values()):
        return finding
    host = next(iter(hubs)) if len(hubs) == 1 else ""
    return _with_figures(finding._replace(host=host), pairs, (0.0, least_trip))


def _with_figures(
    finding: Finding, pairs: Mapping[Ends, Pair], normal: tuple[float, float]
) -> Finding:
    return finding._replace(
        link=max(pairs, key=lambda ends: _delay([pairs[ends]])),
        rates=(_rate(pairs.values()), normal[0]), delays=(_delay(pairs.values()), normal[1]),
    )  # fmt: skip


def _suspects(pairs: Mapping[Ends, Pair]) -> Iterator[tuple[str, set[frozenset[str]]]]:
    """Yield the links, and the hosts before whose links data wait alike, with these links."""
    delays: dict[frozenset[str], float] = {}
    for ends, pair in pairs.items():
        link = frozenset(ends)
        delays[link] = max(_delay([pair]), delays.get(link, 0.0))
    for link in delays:
        yield "", {link}
    for host in {host for ends in pairs for host in ends}:
        waits = {link: delay for link, delay in delays.items() if host in link}
        if len(waits) > 1 and max(waits.values()) <= 2 * min(waits.values()):
            yield host, {*waits}


def _rate(pairs: Iterable[Pair]) -> float:
    """Return the median of the rates, in bytes a second; 0 without pairs."""
    times = [time for pair in pairs for time in pair.times]
    return 1e6 / median(times) if times else 0.0


def _delay(pairs: Iterable[Pair]) -> float:
    """Return the median of the delays, in microseconds; 0 without pairs."""
    return median([delay for pair in pairs for delay in pair.delays] or [0.0])


def _times_slower(suspect: Collection[frozenset[str]], pairs: Mapping[Ends, Pair]) -> float:
    """Return how many times slower some links are than their peers; 0 if they have none."""
    senders, receivers = (Counter(ends[side] for ends in pairs) for side in (0, 1))
    degrees = {ends: (senders[ends[0]], receivers[ends[1]]) for ends in pairs}
    excesses: dict[frozenset[str], float] = {}
    for ends, pair in pairs.items():
        peers = [
            peer for remote_ends, peer in pairs.items()
            if {*remote_ends} not in suspect and degrees[remote_ends] == degrees[ends]
            and 1 / _ALIKE < peer.sent / pair.sent < _ALIKE
        ]  # fmt: skip
        if {*ends} in suspect and peers:
            excess = max(
                _excess([pair.delays, *(peer.delays for peer in peers)]),
                _excess([pair.times, *(peer.times for peer in peers)]),
            )
            link = frozenset(ends)
            excesses[link] = max(excess, excesses.get(link, 0.0))
    return exp(fmean(excesses.values())) if excesses else 0.0


def _excess(series: Sequence[Sequence[float]]) -> float:
    """Return the logarithm of the ratio of the first series to the others; 0 if it varies."""
    count = min(map(len, series))
    first, *_ = compare(np.log([values[-count:] for values in series]).T)
    return first.mean if first.least > 0 else 0.0
