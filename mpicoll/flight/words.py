"""Describe the state of a job in words."""

from __future__ import annotations

from collections.abc import Iterator

from mpicoll.flight.diagnosis import Diagnosis, Rank, Stuck, last_waiting
from mpicoll.flight.layout import Outcome, State
from mpicoll.flight.reader import Dump, Entry
from mpicoll.flight.records import Call, Where
from mpicoll.flight.stack_text import Frame
from mpicoll.text.numbers import ranges

_NANO = 1e9


def sentences(found: Diagnosis) -> Iterator[str]:
    """Yield the faults, the most important first, or where there is none the present activity."""
    if not found.stuck:
        yield from _nothing(found)
        return
    yield from _who(found)
    for each in found.stuck:
        yield from _call(found, each)
    yield from _messages(found)


def _nothing(found: Diagnosis) -> Iterator[str]:
    bad = [each for each in found.ranks.values() if "error" in each.standing or _is_killed(each)]
    for each in bad:
        yield f"Rank {each.number} {each.standing}."
    waiting = list(_messages(found))
    yield from waiting
    if waiting:
        return
    if found.is_alive:
        yield "No call waits."
    elif not bad:
        yield "All ranks have ended well, as far as their files say."


def _messages(found: Diagnosis) -> Iterator[str]:
    """Yield the messages between two ranks that do not end, but not those that have just begun."""
    for rank in found.ranks.values():
        each = last_waiting(rank.dump.entries) if rank.dump else None
        if each is None or each.group is None or not each.group.messages:
            continue
        until = each.end or found.now
        seconds = max(0.0, (until - each.start) / _NANO)
        if seconds >= found.after:
            call = described(each.call.collective, each.call.signature)
            how = "has left" if each.end else "is in"
            yield f"Rank {rank.number} {how} {call}, {from_where(each)}, after {seconds:.3g} s."


def _is_killed(rank: Rank) -> bool:
    return rank.is_over and "program was over" not in rank.standing


def _who(found: Diagnosis) -> Iterator[str]:
    """Say whom the others wait for."""
    if found.waits_for:
        one = len(found.waits_for) == 1
        yield f"{named(found.waits_for)} {'keeps' if one else 'keep'} the others waiting."
    elif any(each.asked for each in found.stuck):
        yield "The ranks ask for different things in one call."
    elif any(each.absent for each in found.stuck):
        yield "Ranks wait for each other, in different groups."
    else:
        yield "All ranks have come, and the call does not end: what they are in says why."


def _call(found: Diagnosis, stuck: Stuck) -> Iterator[str]:
    size = len(stuck.came) + len(stuck.passed) + len(stuck.absent)
    how = f" by {kind}" if (kind := _algorithm(stuck.call)) else ""
    call = described(stuck.call.collective, stuck.call.signature)
    name = stuck.group.name or stuck.group.id
    yield (
        f"Call {stuck.sequence} of group {name} ({size} ranks), {call}{how}, "
        f"{_since(found, stuck)}."
    )
    for text, ranks in stuck.asked.items():
        yield f"{named(ranks)} {'asks' if len(ranks) == 1 else 'ask'} for {text}."
    if len(kinds := _kinds(stuck)) > 1 and not stuck.asked:
        (first, ranks), *others = kinds.items()
        rest = (f"{named(each).lower()} by {kind}" for kind, each in others)
        is_ = "is" if len(ranks) == 1 else "are"
        yield f"{named(ranks)} {is_} in it by {first}, {', '.join(rest)}."
    if stuck.came:
        have = "has" if len(stuck.came) == 1 else "have"
        yield f"{named(list(stuck.came))} {have} come, from {_wheres(stuck)}."
    if stuck.passed:
        have = "has" if len(stuck.passed) == 1 else "have"
        yield f"{named(stuck.passed)} {have} completed it."
    for number in stuck.absent:
        yield f"Rank {number} has not come: it {instead(found, found.ranks[number])}."
    for number, entry in stuck.came.items():
        rank = found.ranks[number]
        if entry.error:
            yield f"Rank {number} has left it: {entry.error}."
        if _is_killed(rank):
            yield f"Rank {number} {rank.standing}."


def _since(found: Diagnosis, stuck: Stuck) -> str:
    ends = [each.end for each in stuck.came.values() if each.outcome is Outcome.RAISED]
    if not found.is_alive and not ends:
        return "was under way when its ranks ended"
    until = found.now if found.is_alive else max(ends)
    return (
        f"waits for {max(0.0, (until - stuck.since) / _NANO):.3g} s"
        if found.is_alive
        else (f"was given up after {(until - stuck.since) / _NANO:.3g} s")
    )


def _kinds(stuck: Stuck) -> dict[str, list[int]]:
    """Return by which algorithm the ranks are in a call, as far as that is known."""
    found: dict[str, list[int]] = {}
    for number, entry in stuck.came.items():
        if kind := _algorithm(entry.call):
            found.setdefault(kind, []).append(number)
    return found


def _algorithm(call: Call) -> str:
    return f"{call.algorithm} over {call.transport}" if call.transport else call.algorithm


def described(collective: str, signature: str) -> str:
    """Return a call in words."""
    return f"{collective} of {signature}" if signature else collective


def instead(found: Diagnosis, rank: Rank) -> str:
    """Describe the activity of a rank that others wait for, to follow "it"."""
    if rank.dump is None or rank.dump.state is not State.RUNNING:
        before = f"; a stack from before says {rank.at}" if rank.at else ""
        return f"{rank.standing}{before}"
    stack = f", and its stack says {rank.at}" if rank.at else ""
    is_there = "was" if rank.is_over else "is"
    where = f"{is_there} {_in_which_call(found, rank.dump)}{stack}"
    return f"{where}; it {rank.standing}"


def _in_which_call(found: Diagnosis, dump: Dump) -> str:
    waiting = last_waiting(dump.entries)
    if waiting is None and not dump.entries:
        return "in no call, and has made none"
    each = waiting or dump.entries[-1]
    group = each.group.name if each.group else "unknown"
    call = described(each.call.collective, each.call.signature)
    told = f"call {each.sequence} of group {group}, {call}, {from_where(each)}"
    if waiting is not None:
        return f"in {told}"
    ago = max(0.0, (found.now - each.end) / _NANO)
    had = "was issued" if each.outcome is Outcome.ISSUED else "had ended"
    return f"in no call: its last, {told}, {had} {ago:.3g} s before"


def from_where(entry: Entry) -> str:
    """Return the line that a call comes from."""
    return f"from {line(entry.where)}" if entry.where else "from a line that is not known"


def line(where: Where) -> str:
    """Return a line of the user's source."""
    return f"{where.file}:{where.line} in {where.function}"


def _wheres(stuck: Stuck) -> str:
    found: dict[str, list[int]] = {}
    for number, entry in stuck.came.items():
        text = line(entry.where) if entry.where else "a line that is not known"
        found.setdefault(text, []).append(number)
    if len(found) == 1:
        return next(iter(found))
    return ", ".join(f"{text} ({named(ranks).lower()})" for text, ranks in found.items())


def threads(rank: Rank) -> Iterator[tuple[str, list[Frame]]]:
    """Yield the stack of the main thread, which runs the program, then those of the others."""
    for place, frames in enumerate(reversed(rank.stacks)):
        yield ("another thread" if place else "the main thread"), frames


def named(ranks: list[int]) -> str:
    """Return ranks as a sentence begins with them.

    >>> named([3]), named([0, 1, 2, 5])
    ('Rank 3', 'Ranks 0-2,5')
    """
    return f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {ranges(sorted(ranks))}"
