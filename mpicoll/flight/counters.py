"""Samples and links of a flight file: counters of the threads, and of the TCP connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import IPv6Address
from struct import Struct
from typing import Any

import numpy as np

from mpicoll.flight.entries import Link, Sample, checks_of
from mpicoll.flight.layout import LINK, LINKS, LINKS_AT, SAMPLE, SAMPLES, SAMPLES_AT

_MOST_TICKS = 1 << 63
Clock = Callable[[int], int]
"""Converts ticks of the file to nanoseconds."""


def samples(data: bytes, time: Clock, faults: list[str]) -> list[Sample]:
    """Return the samples that are whole, in order, with nanoseconds in place of ticks."""
    rows = [Sample(*fields) for fields in _whole(data, SAMPLES_AT, SAMPLES, SAMPLE, faults)]
    rows.sort(key=lambda row: row.at)  # as the threads of a rank take them, in whatever order
    return [row._replace(at=time(row.at), messages=length_of(row.messages, time)) for row in rows]


def links(data: bytes, time: Clock, faults: list[str]) -> list[Link]:
    """Return the readings of connections that are whole, in order."""
    rows = (Link(*fields) for fields in _whole(data, LINKS_AT, LINKS, LINK, faults))
    return [
        row._replace(at=time(row.at), local=_address(row.local), peer=_address(row.peer))
        for row in rows
    ]


def length_of(ticks: int, time: Clock) -> int:
    """Return the nanoseconds of a number of ticks."""
    return time(ticks) - time(0)


def _address(data: Any) -> str:
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
    words = np.frombuffer(data, np.uint64, entries * kind.size // 8, start).reshape(entries, -1)
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
