"""Compare the rates of the links between hosts, by the TCP connections of the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from statistics import median
from typing import NamedTuple

import numpy as np

from mpicoll.flight.reader import Dump, Link
from mpicoll.verdict.arrivals import Observation
from mpicoll.verdict.findings import Finding, Kind
from mpicoll.verdict.thresholds import MOVING, RELEVANT, SLOW_RATE

_COMPARABLE = 0.25
"""The share of the busiest pair's bytes from which on the rate of a pair is compared: a link with
few bytes is busy with waiting for their acknowledgement."""
_FEWEST_BYTES, _FEWEST_PAIRS = 1 << 20, 3


class Pair(NamedTuple):
    """The traffic from one host to another.

    Attributes:
        sent: bytes, and `busy` the microseconds in which there were data to send.
        estimates: the kernel's estimates of the rate, in bytes per second, of all readings.
    """

    sent: int = 0
    busy: int = 0
    estimates: tuple[int, ...] = ()

    @property
    def rate(self) -> float:
        """Bytes per second while busy."""
        return self.sent / max(self.busy, 1) * 1e6

    @property
    def estimate(self) -> float:
        """The lower quartile of the estimates: of short transfers the kernel estimates too much."""
        return float(np.quantile(self.estimates, 0.25)) if self.estimates else 0.0

    def plus(self, addend: Pair) -> Pair:
        """Return the traffic of both."""
        return Pair(
            self.sent + addend.sent, self.busy + addend.busy, self.estimates + addend.estimates
        )


def hosts_by_address(dumps: Sequence[Dump]) -> dict[str, str]:
    """Return the name of the host of each address."""
    return {address: dump.process.host for dump in dumps for address in dump.process.addresses}


def traffic(dumps: Sequence[Dump]) -> dict[tuple[str, str], Pair]:
    """Return the traffic between each two hosts, by sender and receiver."""
    host_of = hosts_by_address(dumps)
    pairs: dict[tuple[str, str], Pair] = {}
    for dump in dumps:
        connections: dict[tuple[str, int, str, int], list[Link]] = {}
        for link in dump.links:
            connections.setdefault(link.connection, []).append(link)
        for readings in connections.values():
            first, last = readings[0], readings[-1]
            ends = dump.process.host, host_of.get(last.peer, last.peer)
            if ends[0] != ends[1]:
                estimates = tuple(link.rate for link in readings[1:] if link.rate)
                pair = Pair(last.sent - first.sent, last.busy - first.busy, estimates)
                pairs[ends] = pairs.get(ends, Pair()).plus(pair)
    return pairs


def slow_links(dumps: Sequence[Dump], observation: Observation) -> Iterator[Finding]:
    """Yield the host whose links are far slower than the others, or else the slowest link."""
    shares = {place: observation.moving(place) for place in observation.meetings}
    moving = sum(shares.values())
    pairs = traffic(dumps)
    fewest = max([_FEWEST_BYTES, *(_COMPARABLE * pair.sent for pair in pairs.values())])
    pairs = {ends: pair for ends, pair in pairs.items() if pair.sent >= fewest}
    if moving < MOVING or len(pairs) < _FEWEST_PAIRS:
        return
    host, link, rates = _slow_host(pairs) or _slow_pair(pairs) or ("", ("", ""), (1.0, 1.0))
    cost = moving * (1 - rates[0] / max(rates[1], 1.0))
    if cost >= RELEVANT:
        place = max(shares, key=lambda place: shares[place])
        yield Finding(Kind.SLOW_LINK, cost, host=host, place=place, link=link, rates=rates)


Slowness = tuple[str, tuple[str, str], tuple[float, float]]
"""A host or none, a link, and the rates of the slow and of the other links."""


def _slow_host(pairs: dict[tuple[str, str], Pair]) -> Slowness | None:
    """Return the slowest host if its links are far slower than those between the other hosts."""
    totals = {}
    for host in {host for ends in pairs for host in ends}:
        local = [pair for ends, pair in pairs.items() if host in ends]
        remote = [pair for ends, pair in pairs.items() if host not in ends]
        if len(local) > 1 and len(remote) > 1:
            totals[host] = reduce(Pair.plus, local), reduce(Pair.plus, remote)
    if not totals:
        return None
    host = min(totals, key=lambda host: totals[host][0].rate / max(totals[host][1].rate, 1.0))
    slowest = min((ends for ends in pairs if host in ends), key=lambda ends: pairs[ends].rate)
    slow, normal = totals[host]
    # Both figures are noisy on a machine whose cores are busy, but not in the same way.
    is_slow = slow.rate < SLOW_RATE * normal.rate and (
        slow.estimate <= SLOW_RATE * normal.estimate or not normal.estimate
    )
    return (host, slowest, (slow.rate, normal.rate)) if is_slow else None


def _slow_pair(pairs: dict[tuple[str, str], Pair]) -> Slowness | None:
    """Return the slowest link if it is less than half as fast as the median."""
    ends = min(pairs, key=lambda ends: pairs[ends].rate)
    slow = pairs[ends].rate
    normal = median(pair.rate for pair in pairs.values())
    return ("", ends, (slow, normal)) if slow < SLOW_RATE**3 * normal else None
