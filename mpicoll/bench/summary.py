"""The first lines of a benchmark: what is fastest here, what is not sure, and what disturbs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from mpicoll.measurement.judgement import Match, contest, is_disturbed, match
from mpicoll.records.identity import PROJECTS, grouped, place
from mpicoll.records.lines import CaseRecord
from mpicoll.text.numbers import count_text, interval, number
from mpicoll.text.sizes import size_text


def first_lines(records: Sequence[CaseRecord]) -> list[str]:
    """Return five lines for people."""
    timed = [record for record in records if record.time_us]
    matches = list(_matches(timed))
    return [
        f"# fastest here: {_fastest(timed, matches)}",
        f"# largest lead: {_largest(matches)}",
        f"# not sure: {_not_sure(matches)}",
        f"# disturbed: {_disturbed(timed)}",
        f"# right: {_right(records)}",
    ]


def _matches(records: Sequence[CaseRecord]) -> Iterator[Match]:
    """Yield the fastest schedule and the strongest native call of each case."""
    for _, group in grouped(records, place):
        if sides := match(contest(group, group[0].call)):
            yield sides


def _fastest(records: Sequence[CaseRecord], matches: Sequence[Match]) -> str:
    if records and records[0].ranks == 1:
        return "nothing: one rank sends no messages, so start several"
    if not matches:
        return "not known: no case has both a library call and an algorithm"
    kinds = Counter(sides.judgement.decision for sides in matches)
    if not kinds["faster"] + kinds["slower"]:
        return f"nothing is decided, in {count_text(len(matches), 'case')}"
    ratios = [s.judgement.ratio for s in matches if s.judgement.decision == "faster"]
    projects = dict.fromkeys(PROJECTS[sides.schedule.backend] for sides in matches)
    name, cases = " or ".join(projects), count_text(len(matches), "case")
    factor = f", {interval(min(ratios), max(ratios))} times as fast" if ratios else ""
    slower = f"; the library in {kinds['slower']}" if kinds["slower"] else ""
    return f"{name} in {kinds['faster']} of {cases}{factor}{slower}"


def _largest(matches: Sequence[Match]) -> str:
    """Return the decided case in which an algorithm leads most, with both times."""
    decided = [sides for sides in matches if sides.judgement.decision == "faster"]
    if not decided:
        return "none is decided"
    schedule, native, judgement = max(decided, key=lambda sides: sides.judgement.ratio)
    size = f" {size_text(schedule.bytes_total)}" if schedule.count else ""
    return (
        f"{schedule.collective}{size}: {schedule.executed or schedule.algorithm} on "
        f"{schedule.backend} takes {_us(schedule)} us, {native.algorithm} on {native.backend} "
        f"{_us(native)} us ({number(judgement.ratio)} times)"
    )


def _us(record: CaseRecord) -> str:
    return number(record.time_us.median if record.time_us else None)


def _not_sure(matches: Sequence[Match]) -> str:
    kinds = Counter(sides.judgement.decision for sides in matches)
    is_open = kinds["undecided"] or kinds["disturbed"]
    advice = "; a longer --time on an idle machine decides more" if is_open else ""
    return (
        f"{kinds['undecided']} of {count_text(len(matches), 'case')} undecided, "
        f"{kinds['disturbed']} disturbed, {kinds['tie']} ties{advice}"
    )


def _disturbed(records: Sequence[CaseRecord]) -> str:
    if not records:
        return "nothing was timed"
    run = records[0].run
    rows = sum(map(is_disturbed, records))
    parts = [f"{rows} of {count_text(len(records), 'row')}"]
    if run.oversubscribed:
        parts.append("ranks share cores")
    if run.load is not None:
        parts.append(f"the load before was {number(run.load, 2)}")
    return "; ".join(parts)


def _right(records: Sequence[CaseRecord]) -> str:
    checked = [record for record in records if record.correct is not None]
    wrong = sum(record.correct is False for record in checked)
    return f"{len(checked) - wrong} of {count_text(len(checked), 'checked result')}"
