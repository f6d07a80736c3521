"""Samples and links of a flight file: counters of the threads, and of the TCP connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import IPv6Address
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from mpicoll.flight.entries import LinkRow, Sample, checks_of
from mpicoll.flight.layout import LINK, LINKS, LINKS_AT, SAMPLE, SAMPLES, SAMPLES_AT

_MOST_TICKS = 1 << 63
Clock = Callable[[int], int]
"""Converts ticks of the file to nanoseconds."""


class Link(NamedTuple):
    """One reading of one TCP connection; `sent`, `busy` and `retransmitted` are cumulative.

    A connection is read once a second while it sends. The difference of two readings tells the
    traffic between them, without that of the time before the first one.

    Attributes:
        at: nanoseconds since the epoch.
        local, peer: the addresses of both ends.
        local_port, peer_port: their ports.
        sent: bytes that the peer has acknowledged.
        busy: microseconds with data to send for which the receiver had room, in ticks of the kernel
            of 1 to 10 ms.
        rate: bytes a second at which the peer has lately acknowledged data, as the kernel estimates
            it: of transfers that kept the connection busy, or the largest of others.
        retransmitted: segments.
        rtt, rtt_min: the round trip in microseconds, smoothed and the least.
    """

    at: int
    local: str
    local_port: int
    peer: str
    peer_port: int
    sent: int
    busy: int
    rate: int
    retransmitted: int
    rtt: int
    rtt_min: int

    @property
    def connection(self) -> tuple[str, int, str, int]:
        """Both ends, which identify the connection."""
        return self[1:5]


def samples(data: bytes, time: Clock, faults: list[str]) -> list[Sample]:
    """Return the samples that are whole, in order, with nanoseconds in place of ticks."""
    rows = [Sample(*fields) for fields in _whole(data, SAMPLES_AT, SAMPLES, SAMPLE, faults)]
    rows.sort(key=lambda row: row.at)  # as the threads of a rank take them, in whatever order
    return [row._replace(at=time(row.at), messages=length_of(row.messages, time)) for row in rows]


def links(data: bytes, time: Clock, faults: list[str]) -> list[Link]:
    """Return the readings of connections that are whole, in order."""
    rows = [LinkRow(*fields) for fields in _whole(data, LINKS_AT, LINKS, LINK, faults)]
    return [
        Link(
            time(row.at), _address(row.local), row.local_port, _address(row.peer), row.peer_port,
            row.sent, row.busy, row.rate, row.retransmitted, row.rtt, row.rtt_min,
        )
        for row in rows
    ]  # fmt: skip


def length_of(ticks: int, time: Clock) -> int:
    """Return the nanoseconds of a number of ticks."""
    return time(ticks) - time(0)


def _address(data: bytes) -> str:
    """Return an address as text.

    >>> _address(bytes([0] * 10 + [255, 255, 10, 0, 0, 7])), _address(bytes([0] * 15 + [1]))
    ('10.0.0.7', '::1')
    """
    address = IPv6Address(data)
    return str(address.ipv4_mapped or address)


def _whole(
    data: bytes, start: int, entries: int, kind: Struct, faults: list[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield the fields of the entries of a ring whose checks hold, by their numbers."""
    ring = np.frombuffer(data, np.uint8)[start : start + entries * kind.size]
    ring = ring[: len(ring) // kind.size * kind.size]
    words = ring.view(np.uint64).reshape(-1, kind.size // 8)
    numbers, moments, places = words[:, 0], words[:, 1], np.arange(len(words), dtype=np.uint64)
    used = words.any(axis=1)
    whole = used & (checks_of(words[:, :-1]) == words[:, -1]) & (moments < _MOST_TICKS)
    whole &= (numbers - np.uint64(1)) % np.uint64(entries) == places
    if damaged := int(used.sum() - whole.sum()):
        name = "samples" if kind is SAMPLE else "links"
        faults.append(f"{damaged} {name} are damaged or half written, and left out")
    for place in np.flatnonzero(whole)[np.argsort(numbers[whole])].tolist():
        *fields, _ = kind.unpack_from(data, start + place * kind.size)
        yield tuple(fields)
