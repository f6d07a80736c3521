"""One page of HTML: the faults, the ranks, and the timeline of their calls."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from mpicoll.flight import words
from mpicoll.flight.diagnosis import Diagnosis, Rank
from mpicoll.flight.layout import Outcome
from mpicoll.flight.reader import Dump, Entry
from mpicoll.flight.summary import last_call, lasting
from mpicoll.text.numbers import duration, ranges
from mpicoll.text.pages import templates
from mpicoll.verdict.judging import Verdict
from mpicoll.verdict.sentences import sentences
from mpicoll.verdict.summary import COLUMNS
from mpicoll.verdict.summary import rows as table_rows

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Nothing may be fetched or run, whatever a file holds."""
_MOST_CALLS, _MOST_WITHOUT_FILE = 20_000, 32
_WIDTH, _ROW, _LABEL, _HEIGHT = 1000.0, 18, 11, 360
_SECTIONS = (
    ("ranks", "Ranks"), ("lost-time", "Lost time"), ("stacks", "Stacks"), ("machine", "Machine"),
)  # fmt: skip
_HUES = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#9c755f", "#76b7b2", "#edc948", "#ff9da7")
_RED = "#d62728"


class Bar(NamedTuple):
    """One call on the timeline; `x` and `width` in its units."""

    x: float
    width: float
    y: int
    colour: str
    title: str


def page(
    directory: Path, diagnosis: Diagnosis, dumps: Sequence[Dump], faults: list[str],
    verdict: Verdict,
) -> str:  # fmt: skip
    """Return the page."""
    damaged = [f"rank {dump.rank}: {fault}" for dump in dumps for fault in dump.faults]
    ranks = _shown(diagnosis)
    rows = {rank.number: place for place, rank in enumerate(ranks)}
    begin, end = _span(diagnosis, dumps)
    answer, details = _answer(diagnosis, verdict)
    row = _row_height(len(rows))
    text = templates(__package__).get_template("page.html").render(
        policy=_POLICY, title=f"Post-mortem of {directory}", sections=_SECTIONS, answer=answer,
        details=details, diagnosis=diagnosis, ranks=ranks, last_call=last_call, lasting=lasting,
        line=words.line, bars=list(_bars(diagnosis, dumps, rows, begin, end)),
        width=_WIDTH, row=row, labels=_labels(list(rows), row), threads=words.threads,
        span=_described_span(diagnosis, begin, end), hues=_hues(dumps), faults=[*faults, *damaged],
        verdict=list(sentences(verdict)), columns=COLUMNS, places=list(table_rows(verdict)),
        directory=str(directory), hosts=_hosts(dumps),
    )  # fmt: skip
    return text.encode(errors="backslashreplace").decode()  # names of files are any bytes


def _shown(diagnosis: Diagnosis) -> list[Rank]:
    """Return the ranks that have left a file, and the first others."""
    without_file = (rank for rank in diagnosis.ranks.values() if rank.dump is None)
    first = {rank.number for rank in islice(without_file, _MOST_WITHOUT_FILE)}
    return [
        rank for rank in diagnosis.ranks.values() if rank.dump is not None or rank.number in first
    ]


def _answer(diagnosis: Diagnosis, verdict: Verdict) -> tuple[str, list[str]]:
    """Return the most important sentence, and the others on the state of the job.

    If nothing is wrong with the job, the most important sentence is on its lost time.
    """
    first, *details = words.sentences(diagnosis)
    if verdict.findings and first in (words.ENDED_WELL, words.NO_CALL_WAITS):
        return next(sentences(verdict)), [first, *details]
    return first, details


def _row_height(ranks: int) -> int:
    """Return the pixels of a rank: a job of many ranks fits a screen, too."""
    return max(3, min(_ROW, _HEIGHT // max(1, ranks)))


def _labels(ranks: Sequence[int], row: int) -> list[str]:
    """Return a label for each rank; it is empty where there is no room."""
    step = -(-_LABEL // row)
    return [f"rank {rank}" if place % step == 0 else "" for place, rank in enumerate(ranks)]


def _hosts(dumps: Sequence[Dump]) -> dict[str, str]:
    """Return the ranks of each host in words."""
    by_host: dict[str, list[int]] = {}
    for dump in dumps:
        by_host.setdefault(dump.process.host, []).append(dump.rank)
    return {host: f"ranks {ranges(sorted(ranks))}" for host, ranks in by_host.items()}


def _span(diagnosis: Diagnosis, dumps: Sequence[Dump]) -> tuple[int, int]:
    """Return the first and the last moment to show: from where no rank has lost rows."""
    firsts = [dump.entries[0] for dump in dumps if dump.entries]
    lost = [entry.start for entry in firsts if entry.number > 1]
    begin = max(lost) if lost else min((entry.start for entry in firsts), default=diagnosis.now)
    end = diagnosis.now
    stuck = min((call.since for call in diagnosis.stuck), default=end)
    # What came before a long wait must not shrink to nothing beside it.
    running = min(stuck, end) - begin
    return begin, max(begin + 1, min(end, stuck + max(running, 1_000_000)))


def _described_span(diagnosis: Diagnosis, begin: int, end: int) -> str:
    """Return which time the timeline shows, and how much of a long wait it leaves out."""
    remaining = diagnosis.now - end
    text = f"{duration(end - begin)}, a line for each rank"
    return (
        text
        if remaining <= 0
        else f"{text}, and not the {duration(remaining)} of waiting that followed"
    )


def _hues(dumps: Sequence[Dump]) -> dict[str, str]:
    names = sorted({entry.call.collective for dump in dumps for entry in dump.entries})
    return {name: _HUES[place % len(_HUES)] for place, name in enumerate(names)}


def _bars(
    diagnosis: Diagnosis, dumps: Sequence[Dump], rows: dict[int, int], begin: int, end: int
) -> list[Bar]:
    hues, scale = _hues(dumps), _WIDTH / (end - begin)
    each_most = _MOST_CALLS // max(1, len(dumps))
    bars = []
    for dump in dumps:
        for entry in dump.entries[-each_most:]:
            is_open = entry.outcome is Outcome.UNDER_WAY
            stop = end if is_open else min(entry.end, end)
            if stop < begin or entry.start > end:
                continue
            start = max(entry.start, begin)
            bad = is_open or entry.outcome is Outcome.RAISED
            bars.append(Bar(
                round((start - begin) * scale, 2), round(max(0.5, (stop - start) * scale), 2),
                rows[dump.rank], _RED if bad else hues[entry.call.collective],
                _title(dump, entry, diagnosis.now),
            ))  # fmt: skip
    return bars


def _title(dump: Dump, entry: Entry, now: int) -> str:
    call = entry.call
    took = duration(entry.end - entry.start)
    if entry.outcome is Outcome.UNDER_WAY:
        took = f"under way for {duration(now - entry.start)}"
    elif entry.outcome is Outcome.ISSUED:
        took = "issued"
    location = words.line(entry.location) if entry.location else ""
    description = words.described(call.collective, call.signature)
    parts = (
        f"rank {dump.rank}", f"{entry.sequence}", description, call.algorithm, call.transport, took,
        location, entry.error,
    )  # fmt: skip
    return ", ".join(filter(None, parts))
