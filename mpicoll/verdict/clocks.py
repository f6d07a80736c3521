"""Compare the clocks of hosts by the calls themselves.

No rank leaves a synchronising call before the last rank has entered it (Lamport 1978). So the end
of a call on one host is never before its begin on another. Such a call therefore bounds the
difference of two clocks from both sides, and many calls bound it closely (Duda et al. 1987).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from statistics import median
from typing import NamedTuple, TypeVar

from mpicoll.flight.reader import Dump, Entry, Link, Sample
from mpicoll.text.numbers import count_text
from mpicoll.verdict.matching import MatchedCall, match

_JUMP, _DRIFT = 1_000_000, 0.001
"""Nanoseconds by which a clock must step to be reported, and the largest drift: NTP corrects at
most half of it."""

R = TypeVar("R", Sample, Link)


class Bound(NamedTuple):
    """The bounds that one call sets, in nanoseconds.

    Attributes:
        at: when the call began, by the clock that is compared.
        low, high: the least and the largest difference that the call allows.
        ends: the difference if both hosts left the call at the same moment.
    """

    at: int
    low: int
    high: int
    ends: int


class Piece(NamedTuple):
    """The difference of a clock from the reference, from one moment on.

    Attributes:
        since: nanoseconds by the clock that is compared.
        offset: nanoseconds to add to a time of this clock.
        error: nanoseconds by which the offset may be wrong.
    """

    since: int
    offset: int
    error: int


class Alignment(NamedTuple):
    """The files of all ranks with the times of one clock.

    Attributes:
        dumps: with all times corrected.
        pieces: by host; a host whose clock is the reference has one piece with an offset of 0.
        faults: sentences on clocks that jump, and on those that cannot be compared.
    """

    dumps: list[Dump]
    pieces: dict[str, list[Piece]]
    faults: list[str]

    @property
    def error(self) -> int:
        """The largest error of any clock, in nanoseconds."""
        return max((piece.error for pieces in self.pieces.values() for piece in pieces), default=0)


def align(dumps: Sequence[Dump]) -> Alignment:
    """Return the files of all ranks with times of the clock of the first rank's host."""
    clocks: dict[str, list[Dump]] = {}
    for dump in sorted(dumps, key=lambda dump: dump.rank):
        clocks.setdefault(_clock_of(dump), []).append(dump)
    pieces = _pieces(clocks) if len(clocks) > 1 else {clock: [Piece(0, 0, 0)] for clock in clocks}
    faults = [
        fault
        for clock, members in clocks.items()
        for fault in _faults(members[0].process.host, pieces[clock])
    ]
    aligned = [_shifted(dump, pieces[_clock_of(dump)]) for dump in dumps]
    by_host = {dump.process.host: pieces[_clock_of(dump)] for dump in dumps}
    return Alignment(aligned, by_host, faults)


def _clock_of(dump: Dump) -> str:
    """Return the identity of the clock of a rank: hosts with one kernel share their clock."""
    return dump.process.boot or dump.process.host


def _pieces(clocks: dict[str, list[Dump]]) -> dict[str, list[Piece]]:
    """Return the pieces of all clocks; none for a clock without a call in common."""
    clock_of_rank = {dump.rank: clock for clock, dumps in clocks.items() for dump in dumps}
    calls = [
        call for call in match([*chain.from_iterable(clocks.values())]) if _is_comparable(call)
    ]
    reference, *remaining = clocks
    pieces = {reference: [Piece(0, 0, 0)]}
    has_changed = True
    while has_changed:
        has_changed = False
        for clock in remaining:
            bounds = [] if clock in pieces else _bounds(calls, clock, clock_of_rank, pieces)
            if bounds:
                pieces[clock] = _intersections(bounds)
                has_changed = True
    return {clock: pieces.get(clock, []) for clock in clocks}


def _is_comparable(call: MatchedCall) -> bool:
    """Whether a call bounds clocks: with counts of zero, a rank need not wait for the others."""
    return call.is_synchronising and not any(
        "counts" in entry.call.signature for entry in call.rows.values()
    )


def _bounds(
    calls: list[MatchedCall], clock: str, clock_of_rank: dict[int, str],
    pieces: dict[str, list[Piece]],
) -> list[Bound]:  # fmt: skip
    """Return the bounds between a clock and the clocks that have been compared."""
    bounds = []
    for call in calls:
        local, remote = [], []
        for rank, entry in call.rows.items():
            if clock_of_rank[rank] == clock:
                local.append(entry)
            elif remote_pieces := pieces.get(clock_of_rank[rank]):
                remote.append(_moved(entry, _piece(remote_pieces, entry.start).offset))
        ends = [entry.end for entry in local if entry.end > entry.start]
        remote_ends = [entry.end for entry in remote if entry.end > entry.start]
        if ends and remote_ends:
            low = max(entry.start for entry in remote) - min(ends)
            high = min(remote_ends) - max(entry.start for entry in local)
            at = min(entry.start for entry in local)
            bounds.append(Bound(at, low, high, min(remote_ends) - min(ends)))
    return bounds


def _intersections(bounds: list[Bound]) -> list[Piece]:
    """Return the offsets of a clock: a new piece begins where the bounds contradict each other."""
    pieces, members = [], list[Bound]()
    low, high = -(1 << 63), 1 << 63
    for bound in sorted(bounds):
        if max(low, bound.low) > min(high, bound.high) and members:
            pieces.append(_intersection(members, low, high))
            members, low, high = [], -(1 << 63), 1 << 63
        members.append(bound)
        low, high = max(low, bound.low), min(high, bound.high)
    return [*pieces, _intersection(members, low, high)]


def _intersection(bounds: list[Bound], low: int, high: int) -> Piece:
    """Return one piece: the ranks leave most calls together, so the ends name the likely offset."""
    middle = int(median(bound.ends for bound in bounds))
    offset = min(max(middle, low), high)
    return Piece(bounds[0].at, offset, max(high - offset, offset - low, 0))


def _piece(pieces: list[Piece], at: int) -> Piece:
    """Return the piece that a time belongs to; the first one covers all that came before it."""
    place = bisect_right(pieces, at, key=lambda piece: piece.since)
    return pieces[max(0, place - 1)]


def _moved(entry: Entry, offset: int) -> Entry:
    end = entry.end + offset if entry.end else 0
    return entry._replace(start=entry.start + offset, end=end)


def _shifted(dump: Dump, pieces: list[Piece]) -> Dump:
    """Return the file of a rank with the times of the reference."""
    if not any(piece.offset for piece in pieces):
        return dump
    entries = [_moved(entry, _piece(pieces, entry.start).offset) for entry in dump.entries]
    samples = [_moment(sample, pieces) for sample in dump.samples]
    links = [_moment(link, pieces) for link in dump.links]
    ended, beat = (
        moment + pieces[-1].offset if moment else 0 for moment in (dump.ended, dump.beat)
    )
    return dump._replace(entries=entries, samples=samples, links=links, ended=ended, beat=beat)


def _moment(reading: R, pieces: list[Piece]) -> R:
    return reading._replace(at=reading.at + _piece(pieces, reading.at).offset)


def _faults(host: str, pieces: list[Piece]) -> Iterator[str]:
    if not pieces:
        yield (
            f"The clock of {host} cannot be compared: its ranks share no call with the other "
            "hosts, so their times are those of its own clock."
        )
    else:
        jumps = [
            piece.offset - previous.offset
            for previous, piece in pairwise(pieces)
            if abs(piece.offset - previous.offset) > _JUMP + (piece.since - previous.since) * _DRIFT
        ]
        if jumps:
            seconds = max(map(abs, jumps)) / 1e9
            yield (
                f"The clock of {host} jumps {count_text(len(jumps), 'time')}, by up to "
                f"{seconds:.3g} s: times before and after are compared separately."
            )
