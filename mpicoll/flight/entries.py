"""The entries of a flight file's rings, and their checksums, as a reader needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD = (1 << 64) - 1
_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5,
            0x85EBCA77C2B2AE63)  # fmt: skip


class Row(NamedTuple):
    """One call.

    Attributes:
        number: counts the rows of this file, from 1.
        sequence: counts the calls on the group, from 1, the same on all its ranks.
        start, end: ticks of a clock that `CLOCK` relates to the host's monotonic one.
        group, call, location, text: places in the table; 0 for none. `text` is that of an error.
        thread: the system's number of it.
    """

    number: int
    sequence: int
    start: int
    end: int
    group: int
    call: int
    location: int
    thread: int
    outcome: int
    text: int


def check_of(row: Row) -> int:
    """Return the checksum of a row as its call begins; as in ``flight.c``."""
    words = (row.number, row.sequence, row.start, row.group | row.call << 32,
             row.location | row.thread << 32)  # fmt: skip
    total = sum(word * factor for word, factor in zip(words, _FACTORS, strict=True)) & _WORD
    return total ^ total >> 29


class Sample(NamedTuple):
    """The counters of one thread at one moment, in nanoseconds.

    All but `number`, `at`, `identity`, `thread`, `probe` and `location` are cumulative.

    Attributes:
        number: counts the samples of this file, from 1.
        at: since the epoch; in a file ticks, as `Row.start`.
        running, queued: the thread has run, and was ready without a core.
        process, children, main: all threads of the process have run, its ended children, and the
            thread that it began with.
        identity: the number of the thread by which `faulthandler` names it.
        messages: it was in messages outside of recorded calls; in a file in ticks.
        thread: the system's number of it.
        preempted, faults: involuntary context switches and major page faults of the thread.
        continued: SIGCONT that the process has received.
        probe: a fixed loop of arithmetic took so long, once a second; 0 in other samples.
        location: the place in the table of the line of a message that ends here, or 0.
    """

    number: int = 0
    at: int = 0
    running: int = 0
    queued: int = 0
    process: int = 0
    children: int = 0
    main: int = 0
    identity: int = 0
    messages: int = 0
    thread: int = 0
    preempted: int = 0
    faults: int = 0
    continued: int = 0
    probe: int = 0
    location: int = 0


class Link(NamedTuple):
    """One reading of one TCP connection; `sent`, `busy` and `retransmitted` are cumulative.

    A connection is read once a second while it has data. The difference of two readings tells the
    traffic between them, without that of the time before the first one.

    Attributes:
        number: counts the readings of this file, from 1.
        at: nanoseconds since the epoch; in a file ticks, as `Row.start`.
        local, peer: the addresses of both ends; in a file 16 bytes of IPv6.
        sent: bytes that the peer has acknowledged.
        busy: microseconds with data to send for which the receiver had room, in ticks of the kernel
            of 1 to 10 ms.
        rate: bytes a second at which the peer has lately acknowledged data, as the kernel estimates
            it: of transfers that kept the connection busy, or the largest of others.
        retransmitted: segments.
        rtt, rtt_min: the round trip in microseconds, smoothed and the least.
        local_port, peer_port: the ports of both ends.
    """

    number: int
    at: int
    local: str
    peer: str
    sent: int
    busy: int
    rate: int
    retransmitted: int
    rtt: int
    rtt_min: int
    local_port: int
    peer_port: int

    @property
    def connection(self) -> tuple[str, int, str, int]:
        """Both ends, which identify the connection."""
        return self.local, self.local_port, self.peer, self.peer_port


class TotalRow(NamedTuple):
    """The calls of one group, kind and line whose rows may be overwritten.

    Attributes:
        group, call, location: as of `Row`.
        mark: as `mark_of` says; 0 in the first total.
        timed: of the calls; the ends of the others are not recorded.
        ticks: of the timed calls.
        shortest: ticks of the shortest one.
    """

    group: int
    call: int
    location: int
    mark: int
    calls: int
    timed: int
    ticks: int
    shortest: int


def mark_of(row: TotalRow) -> int:
    """Return the mark of a total; as in ``flight.c``."""
    key = row.group * 0x9E3779B1 + row.call * 0x85EBCA77 + row.location * 0xC2B2AE3D
    return key % (1 << 32) | 1


def checks_of(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the checksums of samples or links; as in ``counters.c``.

    Args:
        words: those of an entry in each row, without its checksum.
    """
    powers = [pow(_FACTORS[0], power, 1 << 64) for power in reversed(range(words.shape[1]))]
    total: NDArray[np.uint64] = (words * np.array(powers, np.uint64)).sum(axis=1, dtype=np.uint64)
    checks: NDArray[np.uint64] = total ^ total >> np.uint64(29)
    return checks
