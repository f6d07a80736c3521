"""Draw the last calls of a job as text: a line for each rank."""

from __future__ import annotations

from collections.abc import Iterator

from mpicoll.text.numbers import duration
from mpicoll.verdict.arrivals import Meeting
from mpicoll.verdict.judging import Verdict

_WIDTH, _CALLS, _RANKS = 72, 6, 8
_BETWEEN, _WAITS, _MOVES = ".", "-", "#"


def timeline(verdict: Verdict) -> Iterator[str]:
    """Yield the lines of a drawing; none without calls."""
    meetings = _last_calls(verdict)
    if not meetings:
        return
    begin = min(entry.start for entry in meetings[0].call.rows.values())
    end = max(entry.end for entry in meetings[-1].call.rows.values())
    # What came before the first of these calls belongs to it.
    begin -= (end - begin) // (2 * len(meetings))
    yield (
        f"the last {len(meetings)} calls, {duration(end - begin)}: {_BETWEEN} between calls, "
        f"{_WAITS} waits for a later rank, {_MOVES} moves data"
    )
    for rank in _shown_ranks(verdict, meetings):
        yield f"rank {rank:<5} {_line(rank, meetings, begin, max(1, end - begin))}"


def _last_calls(verdict: Verdict) -> list[Meeting]:
    """Return the last calls of the group of the first finding, else of the most frequent call."""
    places = verdict.observation.meetings
    default = max(places, key=lambda place: len(places[place]), default=None)
    place = next((finding.place for finding in verdict.findings if finding.place), default)
    meetings = verdict.observation.of_group(place.group) if place else []
    return sorted(meetings, key=lambda meeting: meeting.call.sequence)[-_CALLS:]


def _shown_ranks(verdict: Verdict, meetings: list[Meeting]) -> list[int]:
    """Return the ranks of the findings and the first others, but not too many."""
    members = list(meetings[0].arrivals)
    blamed = [rank for finding in verdict.findings for rank in finding.ranks if rank in members]
    return sorted([*dict.fromkeys([*blamed, *members])][:_RANKS])


def _line(rank: int, meetings: list[Meeting], begin: int, length: int) -> str:
    cells = [_BETWEEN] * _WIDTH
    for meeting in meetings:
        entry, arrival = meeting.call.rows[rank], meeting.arrivals[rank]
        first, middle, last = (
            max(0, min(_WIDTH, (time - begin) * _WIDTH // length))
            for time in (entry.start, entry.start + arrival.wait, entry.end)
        )
        cells[first:middle] = _WAITS * (middle - first)
        cells[middle : last + 1] = _MOVES * max(1, last - middle)
    return "".join(cells)[:_WIDTH]
