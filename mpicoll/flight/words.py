"""Describe the state of a job in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from linecache import getline
from os.path import isfile

from mpicoll.flight.diagnosis import Diagnosis, Rank, Stuck, last_waiting
from mpicoll.flight.layout import Outcome, State
from mpicoll.flight.reader import Dump, Entry
from mpicoll.flight.records import Call, Location
from mpicoll.flight.stack_text import Frame
from mpicoll.text.numbers import duration, ranges

_NANO = 1e9
_MOST_SENTENCES = 32
"""Of one kind, one for each rank."""
_DISAGREEMENT = "Disagreement: "
_IN_CALL = re.compile(r"\brank (\d{1,8}) in (\w+)")
ENDED_WELL = "All ranks have ended well, as far as their files say."
NO_CALL_WAITS = "No call waits."


def sentences(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the faults, the most important first, or where there is none the present activity."""
    if not diagnosis.stuck:
        yield from _nothing(diagnosis)
        return
    yield from _causes(diagnosis)
    for call in diagnosis.stuck:
        yield from _call(diagnosis, call)
    yield from _few(list(_messages(diagnosis)))


def _few(sentences: list[str]) -> list[str]:
    """Return the first sentences, one for each rank, and how many ranks they leave out."""
    more = len(sentences) - _MOST_SENTENCES
    if more <= 1:
        return sentences
    return [*sentences[:_MOST_SENTENCES], f"The page of -o has the {more} other ranks."]


def _nothing(diagnosis: Diagnosis) -> Iterator[str]:
    errors = [rank for rank in diagnosis.ranks.values() if "error" in rank.standing]
    killed = [rank for rank in diagnosis.ranks.values() if rank not in errors and _is_killed(rank)]
    bad, waiting = [*errors, *killed], _few(list(_messages(diagnosis)))
    if killed and not errors and not waiting and not diagnosis.is_alive:
        numbers = [rank.number for rank in killed]
        were, they = ("was", "it") if len(numbers) == 1 else ("were", "they")
        ranks = named(numbers)
        yield (
            f"The job did not hang: {ranks[0].lower()}{ranks[1:]} {were} killed while {they} worked"
            f"{_last_calls(diagnosis, killed)}."
        )
    yield from _mismatch(diagnosis)
    yield from _few([f"Rank {rank.number} {rank.standing}." for rank in bad])
    yield from waiting
    if waiting:
        return
    if not bad and all(_has_ended_well(rank) for rank in diagnosis.ranks.values()):
        yield ENDED_WELL
    elif diagnosis.is_alive or not bad:
        yield NO_CALL_WAITS


def _mismatch(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield what the ranks disagree on that have left a call by such an error, with their lines."""
    errors = {
        rank.number: rank.dump.entries[-1].error.partition(_DISAGREEMENT)[2].rstrip(".")
        for rank in diagnosis.ranks.values() if rank.dump and rank.dump.entries
    }  # fmt: skip
    text = next(filter(None, errors.values()), "")
    rows = {}
    for number, collective in _IN_CALL.findall(text):
        rank = diagnosis.ranks.get(int(number))
        # A root may have left the call when the ranks notice that they differ.
        for entry in rank.dump.entries if rank and rank.dump else ():
            if entry.call.collective == collective:
                rows[int(number)] = entry
    if text:
        lines = f"; from {_wheres(rows)}" if rows else ""
        yield f"{text[:1].upper()}{text[1:]}{lines}."


def _last_calls(diagnosis: Diagnosis, killed: list[Rank]) -> str:
    """Return when the last call of killed ranks began, to end a sentence; empty without calls."""
    starts = [rank.dump.entries[-1].start for rank in killed if rank.dump and rank.dump.entries]
    if not starts:
        return ""
    length = diagnosis.now - max(starts)
    return f"; the last call began {duration(length)} before"


def _has_ended_well(rank: Rank) -> bool:
    return rank.dump is not None and rank.dump.state is State.ENDED


def _messages(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the messages between two ranks that do not end, but not those that have just begun."""
    for rank in diagnosis.ranks.values():
        entry = last_waiting(rank.dump.entries) if rank.dump else None
        if entry is None or entry.group is None or not entry.group.messages:
            continue
        length = (entry.end or diagnosis.now) - entry.start
        if length >= diagnosis.threshold * _NANO:
            call = described(entry.call.collective, entry.call.signature)
            how = "has left" if entry.end else "is in"
            yield (
                f"Rank {rank.number} {how} {call}, {from_where(entry)}, after {duration(length)}."
            )
    waiting = {rank.number: rank for rank in diagnosis.ranks.values() if rank.message}
    if waiting:
        frames = {number: rank.at for number, rank in waiting.items()}
        how = f"in a message for {duration(max(rank.message for rank in waiting.values()))}"
        yield from whereabouts(frames, f"waits {how}", f"wait {how}")
    if waiting and not diagnosis.stuck:
        remaining = [rank for rank in diagnosis.ranks.values() if rank.number not in waiting]
        yield from whereabouts({rank.number: rank.at for rank in remaining if not rank.is_over})
        yield from (f"Rank {rank.number} {rank.standing}." for rank in remaining if rank.is_over)


def whereabouts(
    frames: Mapping[int, Frame | None], single: str = "is", several: str = "are"
) -> Iterator[str]:
    """Yield for each line the ranks that are there, with its source.

    Args:
        single, several: the verb for one rank, and for more.
    """
    ranks_at: dict[Frame | None, list[int]] = {}
    for rank, frame in frames.items():
        ranks_at.setdefault(frame, []).append(rank)
    for frame, ranks in ranks_at.items():
        source = getline(frame.file, frame.line).strip() if frame and isfile(frame.file) else ""
        place = f"at {frame}{source and f': {source}'}" if frame else "at an unknown line"
        yield f"{named(ranks)} {single if len(ranks) == 1 else several} {place}."


def _is_killed(rank: Rank) -> bool:
    return rank.is_over and "program was over" not in rank.standing


def _causes(diagnosis: Diagnosis) -> Iterator[str]:
    """Say whom the others wait for."""
    if diagnosis.waits_for:
        is_single = len(diagnosis.waits_for) == 1
        yield f"{named(diagnosis.waits_for)} {'keeps' if is_single else 'keep'} the others waiting."
    elif any(call.signatures for call in diagnosis.stuck):
        yield "The ranks ask for different things in one call."
    elif any(call.absent for call in diagnosis.stuck):
        yield "Ranks wait for each other, in different groups."
    else:
        yield "All ranks have come, and the call does not end: what they are in says why."


def _call(diagnosis: Diagnosis, stuck: Stuck) -> Iterator[str]:
    size = len(stuck.came) + len(stuck.passed) + len(stuck.absent)
    how = f" by {kind}" if (kind := _algorithm(stuck.call)) else ""
    call = described(stuck.call.collective, stuck.call.signature)
    name = stuck.group.name or stuck.group.id
    yield (
        f"Call {stuck.sequence} of group {name} ({size} ranks), {call}{how}, "
        f"{_since(diagnosis, stuck)}."
    )
    for text, ranks in stuck.signatures.items():
        yield f"{named(ranks)} {'asks' if len(ranks) == 1 else 'ask'} for {text}."
    if len(kinds := _kinds(stuck)) > 1 and not stuck.signatures:
        (first, ranks), *more = kinds.items()
        clauses = (f"{named(numbers).lower()} by {kind}" for kind, numbers in more)
        is_ = "is" if len(ranks) == 1 else "are"
        yield f"{named(ranks)} {is_} in it by {first}, {', '.join(clauses)}."
    if stuck.came:
        have = "has" if len(stuck.came) == 1 else "have"
        yield f"{named(list(stuck.came))} {have} come, from {_wheres(stuck.came)}."
    if stuck.passed:
        have = "has" if len(stuck.passed) == 1 else "have"
        yield f"{named(stuck.passed)} {have} completed it."
    absent = [diagnosis.ranks[number] for number in stuck.absent]
    nothing = [rank.number for rank in absent if rank.dump is None]
    if len(nothing) > 1:
        yield f"{named(nothing)} have not come: they have left no file in this directory."
        absent = [rank for rank in absent if rank.dump is not None]
    yield from _few(
        [f"Rank {rank.number} has not come: it {instead(diagnosis, rank)}." for rank in absent]
    )
    errors = [(number, entry.error) for number, entry in stuck.came.items() if entry.error]
    yield from _few([f"Rank {number} has left it: {error}." for number, error in errors])
    texts = dict(errors)
    killed = [
        rank for rank in map(diagnosis.ranks.__getitem__, stuck.came)
        if _is_killed(rank) and not rank.standing.endswith(f": {texts.get(rank.number)}")
    ]  # fmt: skip
    yield from _few([f"Rank {rank.number} {rank.standing}." for rank in killed])


def _since(diagnosis: Diagnosis, stuck: Stuck) -> str:
    ends = [entry.end for entry in stuck.came.values() if entry.outcome is Outcome.RAISED]
    length = duration(diagnosis.now - stuck.since)
    if diagnosis.is_alive:
        return f"waits for {length}"
    if ends:
        return f"was given up after {duration(max(ends) - stuck.since)}"
    waited = f", for {length}" if diagnosis.threshold else ""
    return f"was under way when its ranks ended{waited}"


def _kinds(stuck: Stuck) -> dict[str, list[int]]:
    """Return by which algorithm the ranks are in a call, as far as that is known."""
    ranks_of: dict[str, list[int]] = {}
    for number, entry in stuck.came.items():
        if kind := _algorithm(entry.call):
            ranks_of.setdefault(kind, []).append(number)
    return ranks_of


def _algorithm(call: Call) -> str:
    return f"{call.algorithm} over {call.transport}" if call.transport else call.algorithm


def described(collective: str, signature: str) -> str:
    """Return a call in words."""
    return f"{collective} of {signature}" if signature else collective


def instead(diagnosis: Diagnosis, rank: Rank) -> str:
    """Describe the activity of a rank that others wait for, to follow "it"."""
    if rank.dump is None or rank.dump.state is not State.RUNNING:
        earlier = f"; a stack from before says {rank.at}" if rank.at else ""
        return f"{rank.standing}{earlier}"
    stack = f", and its stack says {rank.at}" if rank.at else ""
    is_there = "was" if rank.is_over else "is"
    activity = f"{is_there} {_in_which_call(diagnosis, rank.dump)}{stack}"
    return f"{activity}; it {rank.standing}"


def _in_which_call(diagnosis: Diagnosis, dump: Dump) -> str:
    waiting = last_waiting(dump.entries)
    if waiting is None and not dump.entries:
        return "in no call, and has made none"
    entry = waiting or dump.entries[-1]
    group = entry.group.name if entry.group else "unknown"
    call = described(entry.call.collective, entry.call.signature)
    text = f"call {entry.sequence} of group {group}, {call}, {from_where(entry)}"
    if waiting is not None:
        return f"in {text}"
    had = "was issued" if entry.outcome is Outcome.ISSUED else "had ended"
    return f"in no call: its last, {text}, {had} {duration(diagnosis.now - entry.end)} before"


def from_where(entry: Entry) -> str:
    """Return the line that a call comes from."""
    return f"from {line(entry.location)}" if entry.location else "from a line that is not known"


def line(location: Location) -> str:
    """Return a line of the user's source."""
    return f"{location.file}:{location.line} in {location.function}"


def _wheres(rows: Mapping[int, Entry]) -> str:
    sources: dict[str, list[int]] = {}
    for number, entry in rows.items():
        text = line(entry.location) if entry.location else "a line that is not known"
        sources.setdefault(text, []).append(number)
    if len(sources) == 1:
        return next(iter(sources))
    return ", ".join(f"{text} ({named(ranks).lower()})" for text, ranks in sources.items())


def threads(rank: Rank) -> Iterator[tuple[str, list[Frame]]]:
    """Yield the stack of the main thread, which runs the program, then those of the others."""
    for place, stack in enumerate(reversed(rank.stacks)):
        yield ("another thread" if place else "the main thread"), stack.frames


def named(ranks: list[int]) -> str:
    """Return ranks as a sentence begins with them.

    >>> named([3]), named([0, 1, 2, 5])
    ('Rank 3', 'Ranks 0-2,5')
    """
    return f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {ranges(sorted(ranks))}"
