"""What a reader must know before believing a number, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from mpicoll.p2p.outliers import class_lines, outlier_lines, rank_lines
from mpicoll.records.journal import Line
from mpicoll.records.lines import PairRecord
from mpicoll.report.curves import median_of, repeated, variant
from mpicoll.report.loading import Records
from mpicoll.report.setups import Setup
from mpicoll.text.sizes import bytes_text

Severity = Literal["error", "warning", "note"]

LATE = 0.1
"""A larger share of late starts is worth a warning."""

UNSURE = 0.05
"""So is an error of the clocks beyond this share of a time."""

TAIL = 5.0
"""And a 95th percentile of the samples of so many times the median."""


@dataclass(frozen=True)
class Notice:
    """Something to know.

    Attributes:
        what: in a few words; `why`: what it means for the numbers.
        where: the cases or runs that it is about.
    """

    severity: Severity
    what: str
    why: str
    where: tuple[str, ...] = ()


def notices(records: Records, found: Sequence[Setup]) -> list[Notice]:
    """Return everything to know of the records."""
    everything = [
        *_about_results(records), *_about_runs(records), *_about_times(records),
        *_about_pairs(records), *_about_mixing(records, found),
    ]  # fmt: skip
    order = ("error", "warning", "note")
    return sorted(everything, key=lambda each: order.index(each.severity))


def case_name(record: Line) -> str:
    """Return a case in words."""
    size = f", {bytes_text(record['bytes_total'])}" if record["bytes_total"] else ""
    more = variant(record)
    return (
        f"{record['collective']} {record['algorithm']} on {record['backend']}, "
        f"{record['ranks']} ranks{size}" + (f", {more}" if more else "")
    )


# -- results ------------------------------------------------------------------------------


def _about_results(records: Records) -> Iterator[Notice]:
    wrong = [each for each in records.cases if each["correct"] is False]
    if wrong:
        told = tuple(f"{case_name(each)}: {each['message']}" for each in wrong)
        yield Notice(
            "error", f"{_count(wrong, 'case')} with wrong results",
            "Their times are shown, and marked; they win nowhere.", told,
        )  # fmt: skip
    unchecked = [
        each for each in records.cases
        if each["time_us"] and each["correct"] is None and each["bytes_total"]
    ]  # fmt: skip
    if unchecked:
        yield _cases("warning", "whose results were not checked", "They may be wrong.", unchecked)
    refused = [
        each for each in records.cases if not each["time_us"] and each["correct"] is not False
    ]
    if refused:
        told = tuple(f"{case_name(each)}: {each['message']}" for each in refused)
        yield Notice("note", f"{_count(refused, 'case')} refused", "They have no time.", told)


# -- runs ---------------------------------------------------------------------------------


def _about_runs(records: Records) -> Iterator[Notice]:
    crowded = _runs(records, lambda run: bool(run.get("oversubscribed")))
    if crowded:
        yield Notice(
            "warning", "Oversubscribed: more ranks than cores",
            "These timings are those of ranks that wait for a core.", crowded,
        )  # fmt: skip
    dirty = _runs(records, lambda run: bool((run.get("git") or {}).get("dirty")))
    if dirty:
        yield Notice(
            "warning", "Run from a changed checkout",
            "The commit does not tell what ran: commit, and measure again.", dirty,
        )  # fmt: skip
    busy = _runs(records, _is_busy)
    if busy:
        yield Notice(
            "warning", "Other work on the machine when the run began",
            "Its load was above its cores; what else runs takes time from these calls.", busy,
        )  # fmt: skip


def _is_busy(run: Line) -> bool:
    cores = {core for each in run.get("cores") or () for core in each}
    return bool(cores) and float(run.get("load") or 0) > len(cores)


def _runs(records: Records, holds: Callable[[Line], bool]) -> tuple[str, ...]:
    return tuple(run_name(run) for run in records.runs.values() if holds(run))


def run_name(run: Line) -> str:
    """Return a run in words."""
    hosts = run.get("hosts") or ()
    places = ", ".join(dict.fromkeys(map(str, hosts)))
    return f"run {str(run.get('id'))[:8]} of {run.get('started')}, {len(hosts)} ranks on {places}"


# -- times --------------------------------------------------------------------------------


def _about_times(records: Records) -> Iterator[Notice]:
    timed = [each for each in records.cases if each["time_us"]]
    checks: tuple[tuple[str, str, Callable[[Line], bool]], ...] = (
        (
            "without enough undisturbed samples",
            "So few samples were not spoilt by a rank that came late or lost its core that spoilt "
            "ones count too: these times are too long by what disturbed them.",
            lambda each: each.get("undisturbed") is False,
        ),
        (
            f"in which more than {LATE:.0%} of the samples started late",
            "A rank came after the common start; such samples are left out where others suffice.",
            lambda each: (each.get("late_share") or 0) > LATE,
        ),
        (
            f"in which more than {LATE:.0%} of the samples were preempted",
            "A rank lost its core; such samples are left out where others suffice.",
            lambda each: _preempted(each) > LATE,
        ),
        (
            f"that the clocks' error could change by more than {UNSURE:.0%}",
            "The bound on the error of the common start is large beside the time itself.",
            lambda each: (each.get("sync_error_us") or 0) > UNSURE * median_of(each),
        ),
        (
            f"with outliers: one sample in 20 takes over {TAIL:g} times the median",
            "The median stands; whoever waits for the slowest call feels the tail.",
            lambda each: each["time_us"].get("p95", 0) > TAIL * median_of(each),
        ),
    )
    for what, why, holds in checks:
        if found := [each for each in timed if holds(each)]:
            yield _cases("warning", what, why, found)


def _preempted(record: Line) -> float:
    """Return the share of samples during which a rank lost its core."""
    # What was set aside is not among the samples, unless too few others were left.
    spoilt = int(record.get("preempted") or 0)
    taken = spoilt if record.get("undisturbed") is False else spoilt + record["samples"]
    return spoilt / max(taken, int(record["samples"]), 1)


def _cases(severity: Severity, what: str, why: str, rows: Sequence[Line]) -> Notice:
    return Notice(severity, f"{_count(rows, 'case')} {what}", why, tuple(map(case_name, rows)))


def _count(rows: Sequence[object], noun: str) -> str:
    return f"{len(rows)} {noun}{'' if len(rows) == 1 else 's'}"


# -- pairs, and what is mixed -------------------------------------------------------------


def _about_pairs(records: Records) -> Iterator[Notice]:
    told = [
        line for rows in _by_run(records.pairs)
        for line in (*rank_lines(rows), *outlier_lines(rows), *class_lines(rows))
    ]  # fmt: skip
    if told:
        yield Notice(
            "warning", "Pairs, ranks or classes of pairs that stand out",
            "They are far from those like them, at every visit.", tuple(told),
        )  # fmt: skip
    wrong = [each for each in records.pairs if each.correct is False]
    if wrong:
        told = [f"{each.backend} {each.transport}: {each.message}" for each in wrong]
        yield Notice("error", f"{_count(wrong, 'pair')} whose bytes were wrong", "", tuple(told))


def _by_run(pairs: Iterable[PairRecord]) -> list[list[PairRecord]]:
    found: dict[str, list[PairRecord]] = {}
    for each in pairs:
        found.setdefault(each.run.id, []).append(each)
    return list(found.values())


def _about_mixing(records: Records, found: Sequence[Setup]) -> Iterator[Notice]:
    for setup in found[1:]:
        yield Notice(
            "warning", f"Setup {setup.name} was measured under other conditions than A",
            "They are never drawn in one picture; compare them with python -m mpicoll.compare.",
            tuple(setup.differences),
        )  # fmt: skip
    commits = {
        str(git["commit"])[:12] for run in records.runs.values() if (git := run.get("git"))
    }  # fmt: skip
    if len(commits) > 1:
        yield Notice(
            "warning", f"The runs are of {len(commits)} commits",
            "What differs between them may be the code.", tuple(sorted(commits)),
        )  # fmt: skip
    if again := repeated(records, found):
        yield _cases(
            "note", "measured more than once under the same conditions",
            "The latest run is the one that is shown.", again,
        )  # fmt: skip
