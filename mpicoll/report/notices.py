"""Warnings and notes about the records, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from mpicoll.measurement.judgement import contradictions, has_enough, is_disturbed
from mpicoll.p2p.outliers import class_lines, outlier_lines, rank_lines
from mpicoll.records.description import FullRun
from mpicoll.records.identity import grouped, place, variant
from mpicoll.records.lines import CaseRecord
from mpicoll.report.curves import find_repeated, median_of, times_of
from mpicoll.report.loading import MOST_MAPPED, Records
from mpicoll.report.setups import Setup, by_run
from mpicoll.text.numbers import count_text
from mpicoll.text.sizes import bytes_text

Severity = Literal["error", "warning", "note"]

LATE_SHARE = 0.1
"""The share of late or preempted samples above which there is a warning."""

UNSURE = 0.05
"""The error of the clocks, as a share of a time, above which there is a warning."""

TAIL = 5.0
"""The ratio of the 95th percentile to the median above which there is a warning."""


PAIRS = "pairs"
"""The subject of places that are pairs of ranks."""


class Place(NamedTuple):
    """A case, a run or a pair that a notice concerns.

    Attributes:
        subject: the collective of a case, `PAIRS`, or an empty text.
    """

    text: str
    subject: str = ""


@dataclass(frozen=True)
class Notice:
    """A warning or a note.

    Attributes:
        title: what is wrong, in a few words.
        why: the consequence for the numbers.
        places: the cases, runs or pairs concerned.
        noun: the kind of the places, if the title begins with their number.
    """

    severity: Severity
    title: str
    why: str
    places: tuple[Place, ...] = ()
    noun: str = ""

    @property
    def heading(self) -> str:
        """The title with the number of places."""
        return (
            f"{count_text(len(self.places), self.noun)} {self.title}" if self.noun else self.title
        )

    def about(self, holds: Callable[[str], bool]) -> Notice | None:
        """Return the notice on the places whose subject fulfils a condition, None without any."""
        places = tuple(place for place in self.places or (Place(""),) if holds(place.subject))
        if not places:
            return None
        return replace(self, places=places) if self.places else self


def notices(records: Records, setups: Sequence[Setup]) -> list[Notice]:
    """Return all notices about the records."""
    everything = [
        *_about_launches(records), *_about_results(records), *_about_runs(records),
        *_about_times(records), *_about_natives(records, setups),
        *_about_pairs(records), *_about_mixing(records, setups),
    ]  # fmt: skip
    order = ("error", "warning", "note")
    return sorted(everything, key=lambda notice: order.index(notice.severity))


def case_name(record: CaseRecord) -> str:
    """Return a case in words."""
    parts = (
        f"{record.collective} {record.algorithm} on {record.backend}", f"{record.ranks} ranks",
        bytes_text(record.bytes_total) if record.bytes_total else "", *variant(record),
    )  # fmt: skip
    return ", ".join(filter(None, parts))


# -- results ------------------------------------------------------------------------------


def _about_launches(records: Records) -> Iterator[Notice]:
    if records.failed:
        yield Notice(
            "error", f"{count_text(len(records.failed), 'launch')} of a study failed",
            "Their measurements may be missing, so the fastest rival of a winner may be missing.",
            _places(dict.fromkeys(f"{run.configuration}: {run.message}" for run in records.failed)),
        )  # fmt: skip


def _about_results(records: Records) -> Iterator[Notice]:
    wrong = [record for record in records.cases if record.correct is False]
    if wrong:
        yield Notice(
            "error", "with wrong results",
            "Their times are shown, and marked, but they are never winners.",
            _with_messages(wrong), "case",
        )  # fmt: skip
    unchecked = [
        record
        for record in records.cases
        if record.time_us and record.correct is None and record.bytes_total
    ]
    if unchecked:
        yield _cases("warning", "whose results were not checked", "They may be wrong.", unchecked)
    refused = [
        record for record in records.cases if not record.time_us and record.correct is not False
    ]
    if refused:
        yield Notice("note", "refused", "They have no time.", _with_messages(refused), "case")


def _with_messages(rows: Iterable[CaseRecord]) -> tuple[Place, ...]:
    return tuple(
        Place(f"{case_name(record)}: {record.message}", record.collective) for record in rows
    )


def _places(texts: Iterable[str], subject: str = "") -> tuple[Place, ...]:
    return tuple(Place(text, subject) for text in texts)


# -- runs ---------------------------------------------------------------------------------


def _about_runs(records: Records) -> Iterator[Notice]:
    checks: tuple[tuple[str, str, Callable[[FullRun], bool]], ...] = (
        (
            "Oversubscribed: more ranks than cores",
            "The times include the wait of ranks for a core.",
            lambda run: run.oversubscribed,
        ),
        (
            "Run on a single rank",
            "No data moves between ranks: the times are the costs of making a call.",
            lambda run: len(run.hosts) == 1,
        ),
        (
            "Run from a changed checkout",
            "The commit does not identify the code that ran: commit, and measure again.",
            lambda run: run.git is not None and run.git.dirty,
        ),
        (
            "Other work on the machine when the run began",
            "The load exceeded the number of cores, so other processes took time from these calls.",
            lambda run: (run.load or 0) > run.cores_of_load > 0,
        ),
    )
    for title, why, holds in checks:
        if names := [run_name(run) for run in records.runs.values() if holds(run)]:
            yield Notice("warning", title, why, _places(names))


def run_name(run: FullRun) -> str:
    """Return a run in words."""
    places = ", ".join(dict.fromkeys(run.hosts))
    return f"run {run.id[:8]} of {run.started}, {len(run.hosts)} ranks on {places}"


# -- times --------------------------------------------------------------------------------


def _about_times(records: Records) -> Iterator[Notice]:
    timed = [record for record in records.cases if record.time_us]
    checks: tuple[tuple[str, str, Callable[[CaseRecord], bool]], ...] = (
        (
            "with too few samples for an interval",
            "An interval needs six. These cases never win, and their ratios are no verdicts.",
            lambda record: not has_enough(record),
        ),
        (
            "disturbed in most samples",
            "A rank was late or lost its core. The times are too long, and no winner is named by "
            "them.",
            is_disturbed,
        ),
        (
            f"in which more than {LATE_SHARE:.0%} of the samples started late",
            "A rank came after the common start. Such samples are left out if others suffice.",
            lambda record: (record.late_share or 0) > LATE_SHARE,
        ),
        (
            f"in which more than {LATE_SHARE:.0%} of the samples were preempted",
            "A rank lost its core. Such samples are left out if others suffice.",
            lambda record: _preempted_share(record) > LATE_SHARE,
        ),
        (
            f"that the clocks' error could change by more than {UNSURE:.0%}",
            "The error of the common start may be large compared with the time itself.",
            lambda record: record.sync_error_us > UNSURE * median_of(record),
        ),
        (
            f"with outliers: one sample in 20 takes over {TAIL:g} times the median",
            "The median is unaffected, but a program that waits for the slowest call is affected.",
            lambda record: (times_of(record).p95 or 0) > TAIL * median_of(record),
        ),
    )
    for title, why, holds in checks:
        if matches := [record for record in timed if holds(record)]:
            yield _cases("warning", title, why, matches)


def _about_natives(records: Records, setups: Sequence[Setup]) -> Iterator[Notice]:
    """Yield the native calls whose plan and method exclude each other."""
    setup_of = by_run(setups)
    timed = [record for record in records.cases if record.time_us]
    groups = grouped(timed, lambda record: (setup_of[record.run.id].name, *place(record)))
    places = [
        Place(f"{case_name(contradiction.plan)}: {contradiction.times}", group[0].collective)
        for _, group in groups for contradiction in contradictions(group)
    ]  # fmt: skip
    if places:
        yield Notice(
            "error", "in which native's plan and method contradict each other",
            "Both make the same call, so one time is wrong. No winner is named there.",
            tuple(places), "case",
        )  # fmt: skip


def _preempted_share(record: CaseRecord) -> float:
    """Return the share of samples during which a rank lost its core."""
    # Preempted samples do not count, unless there are too few other samples.
    taken = record.samples + (record.preempted if record.undisturbed else 0)
    return record.preempted / max(taken, record.samples, 1)


def _cases(severity: Severity, title: str, why: str, rows: Sequence[CaseRecord]) -> Notice:
    places = tuple(Place(case_name(record), record.collective) for record in rows)
    return Notice(severity, title, why, places, "case")


# -- pairs, and mixed conditions ----------------------------------------------------------


def _about_pairs(records: Records) -> Iterator[Notice]:
    lines = [
        line for rows in records.pairs_by_run().values()
        for line in (*rank_lines(rows), *outlier_lines(rows), *class_lines(rows))
    ]  # fmt: skip
    if lines:
        yield Notice(
            "warning", "Pairs, ranks or classes of pairs that stand out",
            "They are far from the others of their class, at every visit.", _places(lines, PAIRS),
        )  # fmt: skip
    mapped = {name for name, _, _ in records.mapped_pairs()}
    if unmapped := [
        run_name(records.runs[name]) for name in records.pairs_by_run().keys() - mapped
    ]:
        yield Notice(
            "note", f"Pairs of more than {MOST_MAPPED} ranks",
            "The tables contain them, without a map.", _places(sorted(unmapped), PAIRS),
        )  # fmt: skip
    wrong = [record for record in records.pairs if record.correct is False]
    if wrong:
        lines = [f"{record.backend} {record.transport}: {record.message}" for record in wrong]
        yield Notice("error", "whose bytes were wrong", "", _places(lines, PAIRS), "pair")


def _about_mixing(records: Records, setups: Sequence[Setup]) -> Iterator[Notice]:
    for setup in setups[1:]:
        yield Notice(
            "warning", f"Setup {setup.name} was measured under other conditions than A",
            "No picture contains both. Compare them with python -m mpicoll.compare.",
            _places(setup.differences),
        )  # fmt: skip
    commits = {run.git.commit[:12] for run in records.runs.values() if run.git}
    if len(commits) > 1:
        yield Notice(
            "warning", f"The runs are of {len(commits)} commits",
            "The code may cause differences between them.", _places(sorted(commits)),
        )  # fmt: skip
    if again := find_repeated(records, setups):
        yield _cases(
            "note", "measured more than once under the same conditions",
            "The latest run is shown.", again,
        )  # fmt: skip
