"""Diagnose a job by the calls of all ranks: which one is stuck, and which ranks are not in it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from mpicoll.flight.layout import Outcome, State
from mpicoll.flight.reader import Dump, Entry
from mpicoll.flight.records import Call, Group, ranks_of
from mpicoll.flight.stack_text import Frame, fatal_error, last_stacks, place

_LOST = "RankLost"
_NANO = 1e9
_MOST_LISTED = 1 << 20


class Rank(NamedTuple):
    """One rank.

    Attributes:
        dump: what it has left; None for nothing.
        standing: how it stands, to follow "rank 1".
        is_over: it will make no further call.
        stacks: of its threads, as they were last written, the main one's last.
        at: where its main thread was then.
    """

    number: int
    dump: Dump | None
    standing: str
    is_over: bool
    stacks: list[list[Frame]]
    at: Frame | None


class Stuck(NamedTuple):
    """A call that does not go on.

    Attributes:
        since: nanoseconds since the epoch at which the first rank came.
        came: the ranks that are in it, or have left it by an error, each with its row.
        passed: the ranks that have completed it.
        absent: the ranks that have not come.
        asked: where ranks ask for different things: what, and the ranks.
    """

    group: Group
    sequence: int
    call: Call
    since: int
    came: dict[int, Entry]
    passed: list[int]
    absent: list[int]
    asked: dict[str, list[int]]


class Diagnosis(NamedTuple):
    """The state of a job.

    Attributes:
        now: nanoseconds since the epoch; of a job that has ended, when it did.
        stuck: the calls that do not go on, the one that began first first.
        waits_for: the ranks that others wait for, and that wait for nobody.
        is_alive: a rank of it runs.
        after: seconds for which a call has been under way that counts as stuck.
    """

    ranks: dict[int, Rank]
    stuck: list[Stuck]
    waits_for: list[int]
    is_alive: bool
    now: int
    after: float = 0.0


def diagnose(dumps: Sequence[Dump], now: int, after: float = 0.0) -> Diagnosis:
    """Return the state of a job by the files of all ranks.

    Args:
        now: nanoseconds since the epoch.
        after: seconds for which a call that still runs must have been under way.
    """
    alive = any(each.is_alive and each.state is State.RUNNING for each in dumps)
    if not alive:
        rows = (max(each.start, each.end) for dump in dumps for each in dump.entries)
        now = max(chain((each.ended for each in dumps), rows), default=now)
    ranks = {each.rank: _rank(each) for each in dumps}
    groups: dict[str, Group] = {}
    members: dict[str, dict[int, Dump]] = {}
    for dump in dumps:
        for group in dump.groups:
            groups.setdefault(group.id, group)
            members.setdefault(group.id, {})[dump.rank] = dump
    groups = _listed(groups)
    for group in groups.values():
        for number in {*ranks_of(group.ranks)} - ranks.keys():
            ranks[number] = Rank(number, None, "has left no file", False, [], None)
    alike = (each for each in groups if not groups[each].messages)
    found = (_stuck(groups[each], members[each], now, after if alive else 0.0) for each in alike)
    stuck = sorted(filter(None, found), key=lambda each: each.since)
    waiting = {number for each in stuck for number in each.came}
    missing = {number for each in stuck for number in each.absent} - waiting
    for each in stuck:
        dead = {
            number for number, entry in each.came.items()
            if ranks[number].is_over and entry.outcome in (Outcome.UNDER_WAY, Outcome.ISSUED)
        }  # fmt: skip
        missing |= dead if dead < each.came.keys() else set()
    ranks = dict(sorted(ranks.items()))
    return Diagnosis(ranks, stuck, sorted(missing), alive, now, after if alive else 0.0)


def _listed(groups: dict[str, Group]) -> dict[str, Group]:
    """Return the groups, but the first ones where they list more ranks than any job's do."""
    left, kept = _MOST_LISTED, {}
    for name, group in groups.items():
        left -= len(ranks_of(group.ranks))
        if left < 0:
            break
        kept[name] = group
    return kept


def _rank(dump: Dump) -> Rank:
    stacks = last_stacks(dump.stacks)
    standing, is_over = _standing(dump)
    return Rank(dump.rank, dump, standing, is_over, stacks, place(stacks))


def _standing(dump: Dump) -> tuple[str, bool]:
    """Return how a rank stands, and whether it will make no further call."""
    if dump.state is State.ENDED:
        return "has ended: its program was over", True
    if dump.state is State.FAILED:
        return f"has ended by an error: {dump.errors[-1] if dump.errors else 'unknown'}", True
    process = f"process {dump.process.pid}"
    if dump.is_alive:
        return f"runs ({process})", False
    if fatal := fatal_error(dump.stacks):
        return f"was killed ({process}): {fatal}", True
    if dump.process.host not in ("", os.uname().nodename):
        return (
            f"was {process} on {dump.process.host}: only there it is known whether it runs",
            False,
        )
    marked, number, sender = dump.ending
    if number:
        by = f", which process {sender} sent" if sender else ""
        return f"was ended ({process}) by {_named(number)}{by}", True
    others = "" if marked else ", SIGTERM"
    return f"is gone ({process}) without a word, as after SIGKILL{others} or os._exit", True


def _named(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_waiting(entries: Iterable[Entry]) -> Entry | None:
    """Return the first of the calls that a rank is in, or the last one where it lost a rank.

    A message that was started counts where there is nothing else: the rank goes on meanwhile.
    """
    last = started = None
    for each in entries:
        if each.outcome is not Outcome.UNDER_WAY:
            last = each
        elif each.call.collective in ("isend", "irecv"):
            started = started or each
        else:
            return each
    if started is not None:
        return started
    return (
        last if last and last.outcome is Outcome.RAISED and last.error.startswith(_LOST) else None
    )


def _stuck(group: Group, members: dict[int, Dump], now: int, after: float) -> Stuck | None:
    """Return the first call of a group that does not go on; None where there is none."""
    calls = {
        number: [each for each in dump.entries if each.group and each.group.id == group.id]
        for number, dump in members.items()
    }
    waiting = [each for each in map(last_waiting, calls.values()) if each]
    waiting = waiting or _issued(calls.values())
    if not waiting:
        return None
    first = min(waiting, key=lambda each: (each.sequence, each.start))
    if now - first.start < after * _NANO:
        return None
    came, passed, absent = {}, [], []
    for number in ranks_of(group.ranks):
        entries = calls.get(number, [])
        at = next((each for each in entries if each.sequence == first.sequence), None)
        if at is not None and at.outcome is not Outcome.DONE:
            came[number] = at
        elif at is not None or (entries and entries[-1].sequence > first.sequence):
            passed.append(number)
        else:
            absent.append(number)
    since = min((each.start for each in came.values()), default=first.start)
    return Stuck(group, first.sequence, first.call, since, came, passed, absent, _asked(came))


def _issued(calls: Iterable[list[Entry]]) -> list[Entry]:
    """Return the calls that ranks have issued last, and some rank has not: their ranks may wait."""
    lasts = [entries[-1] if entries else None for entries in calls]
    least = min((each.sequence if each else 0 for each in lasts), default=0)
    return [
        each for each in lasts
        if each and each.outcome is Outcome.ISSUED and each.sequence > least
    ]  # fmt: skip


def _asked(came: dict[int, Entry]) -> dict[str, list[int]]:
    """Return the arguments that differ among ranks; one that knows only a part fits any."""
    found: dict[str, list[int]] = {}
    for number, each in came.items():
        found.setdefault(what(each.call), []).append(number)
    whole = {text for text in found if " " in text}
    unknown = {text for text in found if any(one.startswith(f"{text} ") for one in whole)}
    return found if len(found.keys() - unknown) > 1 else {}


def what(call: Call) -> str:
    """Return, as text, the arguments that must be alike on all ranks."""
    return f"{call.collective.replace(' ', '_')} {call.signature}".strip()
