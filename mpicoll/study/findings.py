"""The findings of a study: sentences that follow from records, with their numbers and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mpicoll.records.lines import CaseRecord, Forced
from mpicoll.report.overview import headline
from mpicoll.study.cells import (
    ENOUGH,
    Cell,
    Contestant,
    Name,
    Panel,
    compare_contestants,
    fastest_of,
)
from mpicoll.study.crossovers import Crossings
from mpicoll.study.forms import forms_of, sentences
from mpicoll.study.overview import overviews, two_environments
from mpicoll.study.questions import ONE_OR_TWO, QUESTIONS, Question
from mpicoll.study.reading import Study, counterpart
from mpicoll.study.sentences import (
    OPEN,
    Choose,
    Finding,
    Pair,
    describe,
    describe_places,
    join_names,
    launches,
    pairs,
    place,
    place_of,
    ranges,
    times,
    without_few,
)
from mpicoll.text.numbers import count_text, interval, number
from mpicoll.text.sizes import bytes_text

WARNINGS = "Warnings"
SHORT = "In short"
FASTEST = "The fastest of each case"
WINNERS = "Who wins where"
WITHIN = "Against each environment's own strongest native"
BETWEEN = "Which environment's native calls are fastest"
BEATEN_CHOICE = "Where a library's choice is beaten by its own other algorithm"
SAME_ALGORITHM = "The same algorithm over the library's executor and over ours"
CROSSOVERS = "Crossovers: measured, and by the cost model"
BACKENDS = "What differs between the backends"
MEASURED = "What was measured"
_STRONGEST = "the strongest native"
_GUESS = "best guess: "
_MOST_UNDECIDED = 12
"""The number of undecided findings up to which each has a sentence."""


def findings(study: Study, crossings: Crossings | None = None) -> list[Finding]:
    """Return all findings of the records, in the order of the sections."""
    panels = study.panels()
    results: list[Finding] = []
    for panel in panels:
        results += _winners(study, panel)
    if len(study.environments()) > 1:
        for panel in panels:
            results += _winners_within(study, panel)
        for panel in panels:
            results += _between(study, panel)
    for panel in panels:
        for environment in study.environments():
            results += _beaten(study, panel, environment)
    for panel in panels:
        results += _same_algorithm(study, panel)
    for question in QUESTIONS:
        for panel in panels:
            results += _answers(study, panel, question)
    for forms in forms_of(study):
        results += [Finding(ONE_OR_TWO, text, forms.panel) for text in sentences(forms)]
    if crossings is not None:
        results += [Finding(CROSSOVERS, text, panel) for panel, text in crossings.sentences(study)]
    for panel in panels:
        results += _backends(study, panel)
    results = without_few(results)
    if all(finding.section == OPEN for finding in results):
        results = [*_list_times(study), *results]
    results += [*_refusals(study), *_failures(study)]
    undecided = [finding for finding in results if finding.section == OPEN]
    decided = [finding for finding in results if finding.section != OPEN]
    first = [
        *_list_failed(study), *_wrong(study), *_not_compared(study),
        *(Finding(WARNINGS, text, panel) for panel, text in study.contradictions),
        *_disturbed(study),
    ]  # fmt: skip
    return [
        *first, *_in_short(study, len(undecided)), *_fastest_of_cases(study), *decided,
        *merge_undecided(undecided),
    ]  # fmt: skip


# -- sections -----------------------------------------------------------------------------


def _in_short(study: Study, undecided: int) -> Iterator[Finding]:
    """Yield which side is faster in each setting, with the smallest and the largest factor."""
    strongest_pairs = [
        pair for panel in study.panels() for pair in pairs(study, panel, Cell.rivals)
    ]
    if strongest_pairs and all(pair.ratio.has_few for pair in strongest_pairs):
        max_launches = max(pair.ratio.launches for pair in strongest_pairs)
        yield Finding(
            SHORT,
            f"There is no verdict yet: a verdict needs {ENOUGH} launches, and these records have "
            f"{max_launches} at most.",
        )
        return
    yield from (Finding(SHORT, headline(overview)) for overview in overviews(study))
    yield from _environments_of_best([pair for pair in strongest_pairs if pair.kind != "disturbed"])
    yield from _leads(strongest_pairs)
    if undecided:
        text = f"{OPEN} is at the end, in {count_text(undecided, 'sentence')}."
        yield Finding(SHORT, text)


def _fastest_of_cases(study: Study) -> Iterator[Finding]:
    """Yield the fastest side of each case, with both times; a guess is marked as one."""
    for panel in study.panels():
        for cell in study.of(panel):
            sides = cell.rivals()
            contestant, reference = sides if all(sides) else two_environments(cell)
            if contestant is None or reference is None:
                continue
            ratio = compare_contestants(contestant, reference)
            pair = Pair(0, cell, contestant, reference, ratio)
            factor, bounds, us = ratio.ratio, (ratio.low, ratio.high), pair.us
            if factor < 1:
                contestant, reference, us = reference, contestant, us[::-1]
                factor, bounds = 1 / factor, (1 / ratio.high, 1 / ratio.low)
            guess = "" if ratio.is_sure else "a tie: " if ratio.decision == "tie" else _GUESS
            # One sample of each side has no interval.
            shown_bounds = f" ({interval(*bounds)})" if ratio.low < ratio.high else ""
            yield Finding(
                FASTEST,
                f"{place([pair])}: {guess}{contestant.label} {number(us[0])} us; "
                f"{reference.label} {number(us[1])} us: {number(factor)} times as fast"
                f"{shown_bounds}, {launches([pair])}.",
                panel,
            )


def is_guess(text: str) -> bool:
    """Whether a sentence on the fastest side of a case is a guess."""
    return _GUESS in text


def merge_undecided(undecided: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the undecided findings; many of a panel become one sentence."""
    if len(undecided) <= _MOST_UNDECIDED:
        yield from undecided
        return
    counts = Counter(finding.panel for finding in undecided)
    for panel in counts:
        of_panel = [finding for finding in undecided if finding.panel == panel]
        if panel is None or len(of_panel) == 1:
            yield from of_panel
        else:
            text = f"{panel}: {count_text(len(of_panel), 'comparison')} are undecided."
            yield Finding(OPEN, text, panel)


def _environments_of_best(strongest_pairs: Sequence[Pair]) -> Iterator[Finding]:
    """Yield how often the fastest of both sides is in each environment."""
    fastest = (pair.cell.fastest_ours() for pair in strongest_pairs)
    sides = (
        ("the fastest schedule is in", [schedule for schedule in fastest if schedule is not None]),
        ("the best library call is of", [pair.reference for pair in strongest_pairs]),
    )
    for text, contestants in sides:
        counts = Counter(contestant.name.environment for contestant in contestants)
        if len(counts) > 1:
            parts = [f"{name} in {count}" for name, count in counts.most_common()]
            yield Finding(
                SHORT, f"By medians over {len(contestants)} cases: {text} {join_names(parts)}."
            )


def _leads(strongest_pairs: Sequence[Pair]) -> Iterator[Finding]:
    """Yield the smallest and the largest factor by which schedules are faster, and slower."""
    for kind, verb in (("faster", "leads"), ("slower", "is behind")):
        matches = [pair for pair in strongest_pairs if pair.kind == kind]
        if ordered := sorted(matches, key=lambda pair: pair.ratio.ratio, reverse=kind == "slower"):
            ends = [ordered[0], ordered[-1]]
            ends = ends if _factor(ends[0]) != _factor(ends[1]) else ends[-1:]
            parts = [
                f"{_factor(pair)} ({place([pair])}: {number(pair.us[0])} us against "
                f"{number(pair.us[1])}{', in one launch' if pair.ratio.is_single else ''})"
                for pair in ends
            ]
            text = f"The fastest schedule {verb} by {' to '.join(parts)}."
            yield Finding(SHORT, text, ends[-1].cell.panel)


def _not_compared(study: Study) -> Iterator[Finding]:
    """Yield the number of cases without a winner, because a library's own choice has no time."""
    cells = [cell for cell in study.cells.values() if cell.schedules() and cell.missing]
    names = dict.fromkeys(name for cell in cells for name in cell.missing)
    by_panel = dict.fromkeys(str(cell.panel) for cell in cells)
    if cells:
        count = count_text(len(cells), "case")
        verb = "has" if len(cells) == 1 else "have"
        yield Finding(
            WARNINGS,
            f"{count} of {len(study.cells)} {verb} no winner: {join_names([*map(str, names)])} was "
            f"not measured there ({'; '.join(by_panel)}).",
        )


def _disturbed(study: Study) -> Iterator[Finding]:
    """Yield the number of cases that were disturbed, and of runs whose ranks shared cores."""
    if crowded := sum(run.oversubscribed for run in study.runs):
        yield Finding(
            WARNINGS,
            f"In {crowded} of {count_text(len(study.runs), 'run')} ranks shared cores: their times "
            "include waits for a core.",
        )
    cells = [
        cell for cell in study.cells.values()
        if any(contestant.is_disturbed for contestant in cell.contestants.values())
    ]  # fmt: skip
    if cells:
        yield Finding(
            WARNINGS,
            f"In {len(cells)} of {count_text(len(study.cells), 'case')} half of a "
            "contestant's launches or more were disturbed: ranks were late or lost their core.",
        )


def _factor(pair: Pair) -> str:
    ratio = pair.ratio.ratio
    return f"{number(max(ratio, 1 / ratio))} times"


def _winners(study: Study, panel: Panel) -> Iterator[Finding]:
    for _, group in ranges(pairs(study, panel, Cell.rivals)):
        schedule_label = _one_label([pair.contestant for pair in group])
        native_label = _one_label([pair.reference for pair in group])
        yield from describe(
            group, WINNERS, schedule_label or "the fastest schedule",
            f"{_STRONGEST} ({native_label})" if native_label else _STRONGEST,
        )  # fmt: skip


def _one_label(contestants: Sequence[Contestant]) -> str:
    """Return the label of contestants, "" if it differs between sizes."""
    labels = {contestant.label for contestant in contestants}
    return labels.pop() if len(labels) == 1 else ""


def _winners_within(study: Study, panel: Panel) -> Iterator[Finding]:
    for name in study.environments():
        series = pairs(study, panel, _within(name))
        yield from describe(series, WITHIN, "the fastest schedule", _STRONGEST, name)


def _within(environment: str) -> Choose:
    def choose(cell: Cell) -> tuple[Contestant | None, Contestant | None]:
        return cell.fastest_ours(environment), cell.strongest_native(environment)

    return choose


def _between(study: Study, panel: Panel) -> Iterator[Finding]:
    if any(cell.schedules() for cell in study.of(panel)):
        return iter(())
    by_environment = {name: pairs(study, panel, _behind(name)) for name in study.environments()}
    return describe_places(by_environment, BETWEEN, _natives)


def _behind(environment: str) -> Choose:
    return lambda cell: (cell.strongest_native(), cell.strongest_native(environment))


def _natives(group: Sequence[Pair]) -> tuple[str, str]:
    label = _one_label([pair.contestant for pair in group])
    return (f"{_STRONGEST} ({label})" if label else _STRONGEST), "the strongest there"


def _list_times(study: Study) -> Iterator[Finding]:
    """Yield the times of records, for records without any comparison."""
    for panel in study.panels():
        cells = study.of(panel)
        for name in dict.fromkeys(name for cell in cells for name in cell.contestants):
            cells_of_name = [cell for cell in cells if name in cell.contestants]
            ends = [cells_of_name[0], *cells_of_name[1:][-1:]]
            contestants = [cell.contestants[name] for cell in ends]
            times = " and ".join(
                f"{number(contestant.us)} us"
                + (f" at {bytes_text(cell.size)}" if cell.size else "")
                for cell, contestant in zip(ends, contestants, strict=True)
            )
            count = count_text(contestants[0].launches, "launch")
            text = f"{panel}: {contestants[0].label} takes {times}, from {count}."
            yield Finding(MEASURED, text, panel)


def _beaten(study: Study, panel: Panel, environment: str) -> Iterator[Finding]:
    def choose(cell: Cell) -> tuple[Contestant | None, Contestant | None]:
        choice = cell.contestants.get(Name(environment, "mpi4py", "native"))
        return fastest_of(_forced_natives(cell, environment)), choice

    count = len({name for cell in study.of(panel) for name in cell.contestants if name.is_native})
    for kind, group in ranges(pairs(study, panel, choose, 1 - 0.05 / max(1, count))):
        if kind not in ("tie", "slower"):
            for finding in describe(group, BEATEN_CHOICE, reference="the library's choice"):
                unasked = _obedience(study, group) if kind == "faster" else ""
                yield replace(finding, text=finding.text + unasked)
        else:
            names = {
                contestant.name.algorithm
                for pair in group
                for contestant in _forced_natives(pair.cell, environment)
            }
            text = (
                f"none of {len(names)} other algorithms of {environment} beats its choice; the best"
            )
            if len(names) == 1:
                text = f"{group[0].contestant.name} does not beat the library's choice; it"
            yield Finding(
                BEATEN_CHOICE,
                f"{place(group)}: {text} is {times(group)} times as fast, {launches(group)}.",
                panel,
            )


def _forced_natives(cell: Cell, environment: str) -> list[Contestant]:
    return [
        contestant
        for contestant in cell.natives(environment)
        if "(algorithm=" in contestant.name.algorithm
    ]


def _obedience(study: Study, group: Sequence[Pair]) -> str:
    hows = [
        how
        for pair in group
        for how in _hows(study, pair.contestant.name, pair.cell.panel.collective)
    ]
    if hows and all(how.obeyed for how in hows):
        return ""
    return " It cannot be asked whether it ran that."


def _hows(study: Study, name: Name, collective: str) -> list[Forced]:
    algorithm = name.algorithm.removeprefix("native(algorithm=").removesuffix(")")
    return study.forced.get((name.environment, collective, algorithm), [])


def _same_algorithm(study: Study, panel: Panel) -> Iterator[Finding]:
    names = {name for cell in study.of(panel) for name in cell.contestants}
    for native in sorted(names, key=str):
        algorithm = counterpart(study.forced, native, panel.collective)
        if algorithm is None:
            continue
        choose = choose_pair(Name(native.environment, native.backend, algorithm), native)
        yield from describe(pairs(study, panel, choose), SAME_ALGORITHM, f"our {algorithm}")


def choose_pair(name: Name, reference: Name) -> Choose:
    """Return the choice of two contestants of a cell by their names."""
    return lambda cell: (cell.contestants.get(name), cell.contestants.get(reference))


def _answers(study: Study, panel: Panel, question: Question) -> Iterator[Finding]:
    for names in question.pairs.get(panel.collective, ()):
        by_place: dict[str, list[Pair]] = {}
        for environment in study.environments():
            for backend in ("mpi4py", "torch"):
                name, reference = (Name(environment, backend, algorithm) for algorithm in names)
                by_place[place_of(environment, backend)] = pairs(
                    study, panel, choose_pair(name, reference)
                )
        yield from describe_places(by_place, question.title)


def _backends(study: Study, panel: Panel) -> Iterator[Finding]:
    for environment in study.environments():
        for algorithm in ("native", "auto"):
            names = (Name(environment, backend, algorithm) for backend in ("mpi4py", "torch"))
            yield from describe(pairs(study, panel, choose_pair(*names)), BACKENDS)


def _wrong(study: Study) -> Iterator[Finding]:
    """Yield the contestants with wrong results, which no other sentence mentions."""
    for (panel, name), records in study.left_out.items():
        if wrong := [record for record in records if record.correct is False]:
            text = f"{name} gave wrong results {_share(study, panel, name, wrong)}"
            sentence = f"{panel}{_sizes(wrong)}: {text}: they are left out."
            yield Finding(WARNINGS, sentence, panel if panel in study.panels() else None)


def _refusals(study: Study) -> Iterator[Finding]:
    """Yield the refused cases, except algorithms that the library does not run."""
    for (panel, name), records in study.left_out.items():
        if any(how.refused for how in _hows(study, name, panel.collective)):
            continue
        refused: dict[str, list[CaseRecord]] = {}
        for record in records:
            if record.correct is not False and record.message:
                refused.setdefault(record.message, []).append(record)
        for message, group in refused.items():
            text = f"{name} was not measured {_share(study, panel, name, group)}: {message}"
            yield Finding(OPEN, f"{panel}{_sizes(group)}: {text}")


def _share(study: Study, panel: Panel, name: Name, records: Sequence[CaseRecord]) -> str:
    launch_count = len(study.measured[panel, name])
    return (
        f"in {len({record.run.id for record in records})} of {count_text(launch_count, 'launch')}"
    )


def _sizes(records: Sequence[CaseRecord]) -> str:
    sizes = sorted({record.bytes_total for record in records})
    return f", {', '.join(map(bytes_text, sizes))}" if sizes != [0] else ""


def _list_failed(study: Study) -> Iterator[Finding]:
    """Yield the configurations without a successful launch, one sentence for each reason."""
    by_reason: dict[str, list[str]] = {}
    for name, records in study.configurations().items():
        if all(launch.message for launch in records):
            reasons = dict.fromkeys(str(launch.message) for launch in records)
            by_reason.setdefault("; ".join(reasons), []).append(name)
    for reason, names in by_reason.items():
        yield Finding(WARNINGS, f"Every launch of {join_names(names)} failed: {reason}")


def _failures(study: Study) -> Iterator[Finding]:
    for name, records in study.configurations().items():
        messages = [launch.message for launch in records if launch.message]
        if len(messages) == len(records):
            continue  # another sentence reports these
        for message in dict.fromkeys(messages):
            share = f"{messages.count(message)} of {count_text(len(records), 'launch')}"
            yield Finding(OPEN, f"{share} of {name} failed: {message}")
    for (environment, collective, algorithm), hows in study.forced.items():
        if hows[0].refused:
            sizes = ", ".join(map(bytes_text, hows[0].refused))
            sizes_text = "" if hows[0].obeyed is False else f" at {sizes}"
            yield Finding(
                OPEN,
                f"{environment} does not run {collective} by {algorithm}{sizes_text}: it says "
                f"“{hows[0].said}”",
            )
    for environment in dict.fromkeys(name for name, _, _ in study.forced):
        hows = [how for (name, _, _), forced in study.forced.items() if name == environment
                for how in forced]  # fmt: skip
        if all(how.obeyed is None for how in hows):
            yield Finding(
                OPEN,
                f"{environment} cannot be asked whether it ran the algorithms that its variables "
                f"asked for ({hows[0].said}).",
            )
