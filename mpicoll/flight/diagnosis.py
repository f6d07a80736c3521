"""Diagnose a job by the calls of all ranks: which one is stuck, and which ranks are not in it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from mpicoll.flight.layout import Outcome, State
from mpicoll.flight.reader import Dump, Entry
from mpicoll.flight.records import Call, Group, members_of
from mpicoll.flight.stack_text import Frame, Stack, fatal_error, last_stacks, place

NO_FILE = "has left no file"
_LOST = "RankLost"
_NANO = 1e9
_OF_ONE_RANK = ("up to ", "sends ", "receives ")
_LONGER = 2
"""How many times as long as any earlier call of its group, or any message, one must last to be
stuck."""
_PATIENCE = 3
"""How many times as long as a call a message must last: on a busy machine ranks wait for cores."""


class Rank(NamedTuple):
    """One rank.

    Attributes:
        dump: what it has left; None for nothing.
        standing: how it stands, to follow "rank 1".
        is_over: it will make no further call.
        stacks: of its threads, as they were last written, the main one's last.
        at: where the thread that makes its calls was then.
        message: nanoseconds for which it has been in a message; 0 if that is not long.
    """

    number: int
    dump: Dump | None
    standing: str
    is_over: bool
    stacks: list[Stack]
    at: Frame | None
    message: int = 0


class Stuck(NamedTuple):
    """A call that does not go on.

    Attributes:
        since: nanoseconds since the epoch at which the first rank came.
        came: the ranks that are in it, or have left it by an error, each with its row.
        passed: the ranks that have completed it.
        absent: the ranks that have not come.
        signatures: the ranks by the arguments of their call; empty if all are alike.
    """

    group: Group
    sequence: int
    call: Call
    since: int
    came: dict[int, Entry]
    passed: list[int]
    absent: list[int]
    signatures: dict[str, list[int]]


class Diagnosis(NamedTuple):
    """The state of a job.

    Attributes:
        now: nanoseconds since the epoch; of a job that has ended, when it did.
        stuck: the calls that do not go on, the one that began first first.
        waits_for: the ranks that others wait for, and that wait for nobody.
        is_alive: a rank of it runs.
        threshold: seconds after which a call that is under way counts as stuck.
    """

    ranks: dict[int, Rank]
    stuck: list[Stuck]
    waits_for: list[int]
    is_alive: bool
    now: int
    threshold: float = 0.0

    @property
    def is_stuck(self) -> bool:
        """Whether a call or a message does not go on."""
        return bool(self.stuck) or any(rank.message for rank in self.ranks.values())


def diagnose(dumps: Sequence[Dump], now: int, threshold: float = 0.0) -> Diagnosis:
    """Return the state of a job by the files of all ranks.

    Args:
        now: nanoseconds since the epoch.
        threshold: seconds after which a call that is under way counts as stuck.
    """
    alive = any(dump.is_alive and dump.state is State.RUNNING for dump in dumps)
    if not alive:
        now = max(filter(None, map(last_sign, dumps)), default=now)
    ranks = {dump.rank: _rank(dump, now, threshold) for dump in dumps}
    groups: dict[str, Group] = {}
    entries: dict[str, dict[int, list[Entry]]] = {}
    for dump in dumps:
        for group in dump.groups:
            groups.setdefault(group.id, group)
            entries.setdefault(group.id, {})[dump.rank] = []
        for entry in dump.entries:
            if entry.group is not None and entry.group.id in groups:
                entries[entry.group.id].setdefault(dump.rank, []).append(entry)
    members = members_of(groups)
    for number in {*chain.from_iterable(members.values())} - ranks.keys():
        ranks[number] = Rank(number, None, NO_FILE, False, [], None)
    least = threshold if alive or any(dump.beat for dump in dumps) else 0.0
    calls = (
        _stuck(groups[key], members[key], entries[key], now, least)
        for key in members if not groups[key].messages
    )  # fmt: skip
    stuck = sorted(filter(None, calls), key=lambda call: call.since)
    waiting = {number for call in stuck for number in call.came}
    missing = {number for call in stuck for number in call.absent} - waiting
    for call in stuck:
        dead = _dead(call, ranks)
        missing |= dead if dead < call.came.keys() else set()
    ranks = dict(sorted(ranks.items()))
    return Diagnosis(ranks, stuck, sorted(missing), alive, now, least)


def _dead(stuck: Stuck, ranks: dict[int, Rank]) -> set[int]:
    """Return the ranks that ended in a call, but not those that ended after it was given up.

    A rank beats once a second: where others have not come, the last second counts as after.
    """
    errors = [
        entry.end - (_NANO if stuck.absent else 0)
        for entry in stuck.came.values() if entry.outcome is Outcome.RAISED
    ]  # fmt: skip
    return {
        number for number, entry in stuck.came.items()
        if entry.outcome in (Outcome.UNDER_WAY, Outcome.ISSUED)
        and (rank := ranks[number]).is_over and rank.dump
        and not (errors and last_sign(rank.dump) >= min(errors))
    }  # fmt: skip


def last_sign(dump: Dump) -> int:
    """Return when a rank lived for sure, in nanoseconds since the epoch; 0 if nothing tells."""
    rows = (max(entry.start, entry.end) for entry in dump.entries)
    return max(dump.ended, dump.beat, dump.ending.when, *rows, 0)


def _rank(dump: Dump, now: int, threshold: float) -> Rank:
    length = now - dump.message if dump.message and dump.state is State.RUNNING else 0
    is_long = length >= max(_PATIENCE * threshold * _NANO, _LONGER * dump.longest)
    stacks = last_stacks(dump.stacks)
    standing, is_over = _standing(dump)
    at = place(stacks, calling_thread(dump))
    return Rank(dump.rank, dump, standing, is_over, stacks, at, length if is_long else 0)


def calling_thread(dump: Dump) -> int:
    """Return the thread that made a rank's last call, as `faulthandler` names it; 0 for unknown."""
    last = next(reversed(dump.entries), None)
    return next(
        (sample.identity for sample in reversed(dump.samples)
         if last and sample.thread == last.thread), 0,
    )  # fmt: skip


def _standing(dump: Dump) -> tuple[str, bool]:
    """Return how a rank stands, and whether it will make no further call."""
    if dump.state is State.ENDED:
        return "has ended: its program was over", True
    if dump.state is State.FAILED:
        return f"has ended by an error: {dump.errors[-1] if dump.errors else 'unknown'}", True
    if not dump.process.pid:
        return "has left a dump of torch, which does not tell whether it runs", False
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
    marked, number, sender, _ = dump.ending
    if number:
        by = f", which process {sender} sent" if sender else ""
        names = (known.name for known in signal.Signals if known == number)
        return f"was ended ({process}) by {next(names, f'signal {number}')}{by}", True
    also = "" if marked else ", SIGTERM"
    return f"is gone ({process}) without a word, as after SIGKILL{also} or os._exit", True


def last_waiting(entries: Iterable[Entry]) -> Entry | None:
    """Return the first of the calls that a rank is in, or the last one where it lost a rank.

    A message that was started counts where there is nothing else: the rank goes on meanwhile.
    """
    last = started = None
    for entry in entries:
        if entry.outcome is not Outcome.UNDER_WAY:
            last = entry
        elif entry.call.collective in ("isend", "irecv"):
            started = started or entry
        else:
            return entry
    if started is not None:
        return started
    return (
        last if last and last.outcome is Outcome.RAISED and last.error.startswith(_LOST) else None
    )


def _stuck(
    group: Group, members: list[int], calls: dict[int, list[Entry]], now: int, threshold: float
) -> Stuck | None:
    """Return the first call of a group that does not go on; None where there is none.

    Args:
        calls: of the group, by rank, of the ranks that have left a file.
    """
    calls = {number: calls[number] for number in members if number in calls}
    waiting = [entry for entry in map(last_waiting, calls.values()) if entry]
    waiting = waiting or _issued(calls.values())
    if not waiting:
        return None
    first = min(waiting, key=lambda entry: (entry.sequence, entry.start))
    is_given_up = any(
        entry.outcome is Outcome.RAISED for entry in waiting if entry.sequence == first.sequence
    )  # the other ranks may have been killed before they gave it up
    if threshold and not is_given_up:
        # A program whose ranks wait for seconds in each call is slow, and is not stuck.
        lengths = (entry.end - entry.start for entry in chain.from_iterable(calls.values()))
        if now - first.start < max(threshold * _NANO, _LONGER * max(lengths, default=0)):
            return None
    came, passed, absent = {}, [], []
    for number in members:
        entries = calls.get(number, [])
        at = next((entry for entry in entries if entry.sequence == first.sequence), None)
        if at is not None and at.outcome is not Outcome.COMPLETED:
            came[number] = at
        elif at is not None or (entries and entries[-1].sequence > first.sequence):
            passed.append(number)
        else:
            absent.append(number)
    since = min((entry.start for entry in came.values()), default=first.start)
    return Stuck(group, first.sequence, first.call, since, came, passed, absent, _signatures(came))


def _issued(calls: Iterable[list[Entry]]) -> list[Entry]:
    """Return the calls that ranks have issued last, and some rank has not: their ranks may wait."""
    lasts = [entries[-1] if entries else None for entries in calls]
    smallest = min((entry.sequence if entry else 0 for entry in lasts), default=0)
    return [
        entry for entry in lasts
        if entry and entry.outcome is Outcome.ISSUED and entry.sequence > smallest
    ]  # fmt: skip


def _signatures(came: dict[int, Entry]) -> dict[str, list[int]]:
    """Return the arguments that differ among ranks; one that knows only a part fits any."""
    signatures: dict[str, list[int]] = {}
    for number, entry in came.items():
        signatures.setdefault(signature_of(entry.call), []).append(number)
    unknown = {
        text for text in signatures if any(whole.startswith(f"{text} ") for whole in signatures)
    }
    return signatures if len(signatures.keys() - unknown) > 1 else {}


def signature_of(call: Call) -> str:
    """Return, as text, the arguments that must be alike on all ranks."""
    signature = call.signature
    if "sends " in signature or "counts " in signature:  # a rank has more data than another one
        signature = ", ".join(
            part for part in signature.split(", ") if not part.startswith(_OF_ONE_RANK)
        )
    return f"{call.collective.replace(' ', '_')} {signature}".strip()
