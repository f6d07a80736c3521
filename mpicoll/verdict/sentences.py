"""Describe the verdict in words: a sentence for each cause, the most expensive first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePath

from mpicoll.flight.words import named
from mpicoll.text.numbers import duration, number
from mpicoll.verdict.findings import Finding, Kind
from mpicoll.verdict.judging import Verdict
from mpicoll.verdict.matching import IN_MESSAGES, Place
from mpicoll.verdict.thresholds import FEWEST_CALLS, RELEVANT, RELEVANT_QUEUE


def sentences(verdict: Verdict) -> Iterator[str]:
    """Yield the verdict, the most important sentence first."""
    for finding in verdict.findings:
        yield _TEXTS[finding.kind](finding)
        if doubt := _doubt(finding, verdict):
            yield doubt
    yield from _no_cause(verdict)
    yield from _busy_cores(verdict)
    yield from verdict.alignment.faults


def percent(share: float) -> str:
    """Return a share in percent.

    >>> percent(0.914), percent(0.0312)
    ('91 %', '3.1 %')
    """
    return f"{number(100 * share, 2)} %"


def place_text(place: Place | None) -> str:
    """Return the call and its line, as ``allreduce at train.py:40``."""
    if place is None:
        return "a call"
    if place.location is None:
        return f"{place.collective} at an unknown line"
    return f"{place.collective} at {PurePath(place.location.file).name}:{place.location.line}"


def subject(finding: Finding) -> str:
    """Return the ranks of a finding, as a sentence begins with them."""
    ranks = named(list(finding.ranks))
    return f"{ranks} (all of node {finding.host})" if finding.host else ranks


def _is_of_messages(finding: Finding) -> bool:
    return finding.place is not None and finding.place.collective == IN_MESSAGES


def _arrives(finding: Finding) -> str:
    is_single = len(finding.ranks) == 1
    if _is_of_messages(finding):
        return (
            f"{subject(finding)} {'keeps' if is_single else 'keep'} the other ranks waiting in "
            f"{place_text(finding.place)} for {percent(finding.cost)} of the time of all ranks"
        )
    return (
        f"{subject(finding)} {'arrives' if is_single else 'arrive'} "
        f"{duration(finding.lateness)} late in {percent(finding.frequency)} of "
        f"{finding.calls:,} calls of {place_text(finding.place)}"
    )


def _longer(finding: Finding) -> str:
    """Say what the rank that a finding shows most at does for longer, and why."""
    activity, names, reason = _REASONS[finding.kind]
    profile = finding.profile
    assert profile is not None
    excess = max(profile.excesses[name].mean for name in names)
    length, when = duration(excess), " longer before the call"
    if _is_of_messages(finding):
        share = excess / max(1.0, profile.total.outside + profile.total.messages)
        length, when = f"for {percent(share)}", " more of the time between its messages"
    rank = "it" if len(finding.ranks) == 1 else f"rank {profile.rank}"
    rare = " on average" if finding.frequency < 0.5 and not _is_of_messages(finding) else ""
    owner = f" of node {finding.host}" if finding.host else ""
    if finding.kind is Kind.ASLEEP and 2 * profile.total.reading > profile.total.asleep:
        reason = "it reads memory from a disk (major page faults)"
    return (
        f"{_arrives(finding)}; {rank} {activity} {length}{when}{rare}: "
        f"{reason.format(owner=owner)}."
    )


_REASONS = {
    Kind.MORE_WORK: ("runs", ("running",), "the program gives it more work"),
    Kind.SHARED_CORE: (
        "waits for a core", ("queued",),
        "the cores{owner} are shared with other processes or threads",
    ),
    Kind.ASLEEP: ("sleeps", ("asleep",), "it waits for something outside of the calls"),
    Kind.OWN_THREAD: (
        "waits", ("asleep", "queued"),
        "other threads of its own process do work that it waits for, or hold the interpreter (GIL) "
        "or its core",
    ),
    Kind.CHILD_PROCESS: (
        "waits", ("asleep", "queued"), "a child process that it has started runs meanwhile",
    ),
}  # fmt: skip
"""By kind: an activity of the rank, the excesses that measure it, and its reason."""


def _uneven_data(finding: Finding) -> str:
    amount = f"{finding.detail} times as much data as the median rank"
    if finding.profile is None:
        has = "has" if len(finding.ranks) == 1 else "have"
        return (
            f"{subject(finding)} {has} up to {amount} in {finding.calls:,} calls of "
            f"{place_text(finding.place)}: the data is uneven, and moving it takes longer."
        )
    return f"{_arrives(finding)}; it has {amount}: the data is uneven."


def _slow_node(finding: Finding) -> str:
    return (
        f"{_arrives(finding)}; the same arithmetic takes {finding.detail} times as long there as "
        "on the other nodes: the node is slow as a whole."
    )


def _stopped(finding: Finding) -> str:
    times = "once" if finding.late_calls == 1 else f"{finding.late_calls:,} times"
    was, its = ("was", "its") if len(finding.ranks) == 1 else ("were", "their")
    waits = f"; the other ranks wait for it, most at {place_text(finding.place)}"
    return (
        f"{subject(finding)} {was} stopped {times} (by SIGSTOP or a debugger) for "
        f"{duration(finding.lateness)}{' on average' if finding.late_calls > 1 else ''}, "
        f"{finding.detail} % of {its} time{waits if finding.place else ''}."
    )


def _turns(finding: Finding) -> str:
    return (
        f"{subject(finding)} take turns: in {finding.calls:,} calls of "
        f"{place_text(finding.place)} one of them arrives {duration(finding.lateness)} late, in a "
        "fixed order, and all wait for it."
    )


def _unclear(finding: Finding) -> str:
    return f"{_arrives(finding)}."


def _slow_link(finding: Finding) -> str:
    return (
        f"{_moves(finding)} while it has data to send, and data wait "
        f"{duration(1e3 * finding.delays[0])} for it; the other links move "
        f"{_speed(finding.rates[1])}, with a wait of {duration(1e3 * finding.delays[1])}. It slows "
        f"down the calls that move data between nodes, most of all {place_text(finding.place)}."
    )


def _moves(finding: Finding) -> str:
    """Return the begin of a sentence: which link moves how much."""
    sender, receiver = finding.link
    ends = f"of node {finding.host}" if finding.host else f"from node {sender} to node {receiver}"
    return f"The link {ends} moves {_speed(finding.rates[0])}"


def _speed(rate: float) -> str:
    return f"{number(rate / 1e6, 2)} MB/s"


def _unneeded_call(finding: Finding) -> str:
    neighbour = place_text(finding.neighbour)
    return (
        f"The {place_text(finding.place)} directly {finding.detail} {neighbour} in "
        f"{percent(finding.frequency)} of {finding.calls:,} calls, which "
        f"synchronises the same ranks: it takes {percent(finding.cost)} of the time, and nobody "
        "needs it unless it orders something else, such as files."
    )


def _in_calls(finding: Finding) -> str:
    pickles = (
        ", which pickles and unpickles objects of Python: arrays, in a method such as Allreduce, "
        "need neither"
    )
    return (
        f"No rank is late: {percent(finding.cost)} of the time is spent in calls that all ranks "
        f"have entered, {finding.detail} % in {place_text(finding.place)}"
        f"{pickles if finding.kind is Kind.OBJECTS else ''}.{_full_link(finding)}"
    )


def _full_link(finding: Finding) -> str:
    if not finding.link[0]:
        return ""
    return (
        f" {_moves(finding)} and is full: data wait {duration(1e3 * finding.delays[0])} for it, "
        f"where the least round trip takes {duration(1e3 * finding.delays[1])}. Whether it is slow "
        "is unknown, as no equal link can be compared."
    )


_TEXTS: dict[Kind, Callable[[Finding], str]] = {
    **dict.fromkeys(_REASONS, _longer),
    Kind.UNEVEN_DATA: _uneven_data, Kind.SLOW_NODE: _slow_node, Kind.STOPPED: _stopped,
    Kind.UNCLEAR: _unclear, Kind.TURNS: _turns, Kind.SLOW_LINK: _slow_link,
    Kind.UNNEEDED_CALL: _unneeded_call, Kind.DATA_MOVEMENT: _in_calls, Kind.OBJECTS: _in_calls,
}  # fmt: skip


def _doubt(finding: Finding, verdict: Verdict) -> str:
    """Return which causes the data does not tell apart, and what would; empty for none."""
    if finding.kind is Kind.UNCLEAR:
        return (
            "The files have no samples of its thread before these calls, so more work, a shared "
            "core and sleep look alike; the stacks that `python -m mpicoll.doctor --job` takes of "
            "a running job, or `perf sched timehist`, tell them apart."
        )
    if finding.kind is Kind.ASLEEP:
        return (
            "A file, a lock, another thread and another process look alike; its stacks, which "
            "`python -m mpicoll.doctor --job` takes while the job runs, tell them apart."
        )
    meetings = verdict.observation.meetings.get(finding.place) if finding.place else None
    if finding.kind is Kind.MORE_WORK and meetings and meetings[-1].call.is_of_objects:
        return (
            "The objects of these calls are pickled before them, which counts as work: arrays, in "
            "a method such as Bcast, need no pickling."
        )
    hosts = {dump.process.host for dump in verdict.alignment.dumps}
    if finding.kind is Kind.MORE_WORK and finding.host and len(hosts) > 1:
        return (
            f"Slow memory of node {finding.host} would look the same; `python -m mpicoll.p2p` "
            "compares the nodes."
        )
    return ""


def _no_cause(verdict: Verdict) -> Iterator[str]:
    if verdict.findings:
        return
    observation = verdict.observation
    messages = sum(activity.messages for activity in observation.activity.values())
    share = messages / observation.total
    is_in_messages = share >= RELEVANT
    if verdict.calls < FEWEST_CALLS and not is_in_messages:
        yield (
            f"Calls that all ranks have recorded: {verdict.calls}, too few for a verdict on lost "
            "time."
        )
        return
    waiting, moving = (
        sum(share for place, share in shares.items() if place.collective != IN_MESSAGES)
        for shares in (observation.waiting, observation.moving)
    )
    shares = (
        f"ranks wait for each other {percent(waiting)} of the time, and data moves "
        f"{percent(moving)} of it"
    )
    if is_in_messages:
        shares += f"; ranks are in messages {percent(share)} of it"
    yield f"No rank, node or link stands out in {verdict.calls:,} calls: {shares}."


def _busy_cores(verdict: Verdict) -> Iterator[str]:
    observation = verdict.observation
    outside = sum(activity.queued for activity in observation.activity.values())
    inside = sum(observation.coreless.values())
    share = outside / observation.total + inside
    if share >= RELEVANT_QUEUE:
        yield (
            f"The ranks have no core for {percent(share)} of the time, {percent(inside)} while "
            "data moves: the cores run more threads than they can, of this job or of others."
        )
