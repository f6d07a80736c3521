"""The findings of a study: sentences that follow from records, with their numbers and figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mpicoll.records.lines import CaseRecord, Forced
from mpicoll.study.cells import ENOUGH, Cell, Contestant, Name, Panel, Study, counterpart
from mpicoll.study.crossovers import Crossings
from mpicoll.study.forms import forms_of, sentences
from mpicoll.study.questions import ONE_OR_TWO, QUESTIONS, Question
from mpicoll.study.sentences import (
    OPEN,
    Choose,
    Finding,
    Pair,
    launches,
    listed,
    pairs,
    place,
    place_of,
    ranges,
    said,
    said_of_places,
    times,
    without_few,
)
from mpicoll.text.numbers import counted, number
from mpicoll.text.sizes import bytes_text

SHORT = "In short"
WINNERS = "Who wins where"
OWN = "Against each environment's own strongest native"
BETWEEN = "Which environment's native calls are fastest"
OTHERS = "Where a library's choice is beaten by its own other algorithm"
SAME = "The same algorithm over the library's executor and over ours"
CROSSOVERS = "Crossovers: measured, and by the cost model"
BACKENDS = "What differs between the backends"
MEASURED = "What was measured"
_STRONGEST = "the strongest native"


def findings(study: Study, crossings: Crossings | None = None) -> list[Finding]:
    """Return every sentence that the records carry, in the order of the sections."""
    panels = study.panels()
    found: list[Finding] = []
    for panel in panels:
        found += _winners(study, panel)
    if len(study.environments()) > 1:
        for panel in panels:
            found += _winners_within(study, panel)
        for panel in panels:
            found += _between(study, panel)
    for panel in panels:
        for environment in study.environments():
            found += _beaten(study, panel, environment)
    for panel in panels:
        found += _same_algorithm(study, panel)
    for question in QUESTIONS:
        for panel in panels:
            found += _answers(study, panel, question)
    for forms in forms_of(study):
        found += [Finding(ONE_OR_TWO, text, forms.panel) for text in sentences(forms)]
    if crossings is not None:
        found += [Finding(CROSSOVERS, text, panel) for panel, text in crossings.sentences(study)]
    for panel in panels:
        found += _backends(study, panel)
    found = without_few(found)
    if all(each.section == OPEN for each in found):
        found = [*_measured(study), *found]
    found += [*_refusals(study), *_failures(study)]
    undecided = [each for each in found if each.section == OPEN]
    told = [each for each in found if each.section != OPEN]
    first = [*_unmeasured(study), *_wrong(study), *_not_compared(study)]
    return [*first, *_in_short(study, len(undecided)), *told, *undecided]


# -- sections -----------------------------------------------------------------------------


def _in_short(study: Study, undecided: int) -> Iterator[Finding]:
    """Yield how often our schedules win, and by how much at least and at most."""
    found = [each for panel in study.panels() for each in pairs(study, panel, _strongest)]
    if not found:
        return
    if all(each.ratio.has_few for each in found):
        most = max(each.ratio.launches for each in found)
        yield Finding(
            SHORT,
            f"There is no verdict yet: one takes {ENOUGH} launches, and what is compared here has "
            f"{most} at most.",
        )
        return
    of_kind = {kind: [each for each in found if each.kind == kind] for kind in
               ("faster", "slower", "tie", "open", "few")}  # fmt: skip
    counts = [counted(len(of_kind["tie"]), "tie")] if of_kind["tie"] else []
    rest = {"open": "undecided", "few": "with too few launches"}
    counts += [f"{len(of_kind[kind])} {text}" for kind, text in rest.items() if of_kind[kind]]
    cells = "1 collective and size" if len(found) == 1 else f"{len(found)} collectives and sizes"
    text = (
        f"Of {cells} the fastest schedule of this project is faster "
        f"than {_STRONGEST} in {len(of_kind['faster']) or 'none'} and slower in "
        f"{len(of_kind['slower']) or 'none'}" + "".join(f", {each}" for each in counts)
    )
    yield Finding(SHORT, f"{text}.")
    for kind, word in (("faster", "It leads"), ("slower", "It is behind")):
        if own := sorted(of_kind[kind], key=lambda each: each.ratio.ratio):
            ends = (own[0], own[-1]) if kind == "faster" else (own[-1], own[0])
            parts = [
                f"{_factor(each)} ({place([each])}: {number(each.us[0])} us against "
                f"{number(each.us[1])}{', in one launch' if each.ratio.is_single else ''})"
                for each in (ends if len(own) > 1 else ends[:1])
            ]
            text = f"{word} by {' to '.join(parts)}."
            yield Finding(SHORT, text, ends[-1].cell.panel)
    if undecided:
        text = f"{OPEN} is at the end, in {counted(undecided, 'sentence')}."
        yield Finding(SHORT, text)


def _not_compared(study: Study) -> Iterator[Finding]:
    """Yield how many cells have no winner, as a library's own choice has no time there."""
    cells = [cell for cell in study.cells.values() if cell.ours() and cell.missing]
    names = dict.fromkeys(name for cell in cells for name in cell.missing)
    by_panel = dict.fromkeys(str(cell.panel) for cell in cells)
    if cells:
        count = counted(len(cells), "cell")
        verb = "has" if len(cells) == 1 else "have"
        yield Finding(
            SHORT,
            f"{count} of {len(study.cells)} {verb} no winner: {listed([*map(str, names)])} was "
            f"not measured there ({'; '.join(by_panel)}).",
        )


def _factor(each: Pair) -> str:
    ratio = each.ratio.ratio
    return f"{number(max(ratio, 1 / ratio))} times"


def _strongest(cell: Cell) -> tuple[Contestant | None, Contestant | None]:
    return cell.fastest_ours(), cell.strongest_native()


def _winners(study: Study, panel: Panel) -> Iterator[Finding]:
    for _, same in ranges(pairs(study, panel, _strongest)):
        ours = _one_label([each.one for each in same])
        theirs = _one_label([each.other for each in same])
        yield from said(
            same, WINNERS, ours or "the fastest schedule",
            f"{_STRONGEST} ({theirs})" if theirs else _STRONGEST,
        )  # fmt: skip


def _one_label(contestants: Sequence[Contestant]) -> str:
    """Return the label of contestants, nothing where it is not the same at every size."""
    labels = {each.label for each in contestants}
    return labels.pop() if len(labels) == 1 else ""


def _winners_within(study: Study, panel: Panel) -> Iterator[Finding]:
    for name in study.environments():
        found = pairs(study, panel, _within(name))
        yield from said(found, OWN, "the fastest schedule", _STRONGEST, name)


def _within(environment: str) -> Choose:
    def choose(cell: Cell) -> tuple[Contestant | None, Contestant | None]:
        ours = [each for each in cell.ours() if each.name.environment == environment]
        return min(ours, key=lambda each: each.us, default=None), cell.strongest_native(environment)

    return choose


def _between(study: Study, panel: Panel) -> Iterator[Finding]:
    if any(cell.ours() for cell in study.of(panel)):
        return iter(())
    found = {name: pairs(study, panel, _behind(name)) for name in study.environments()}
    return said_of_places(found, BETWEEN, _natives)


def _behind(environment: str) -> Choose:
    return lambda cell: (cell.strongest_native(), cell.strongest_native(environment))


def _natives(same: Sequence[Pair]) -> tuple[str, str]:
    label = _one_label([each.one for each in same])
    return (f"{_STRONGEST} ({label})" if label else _STRONGEST), "the strongest there"


def _measured(study: Study) -> Iterator[Finding]:
    """Yield the times of records that decide no comparison."""
    for panel in study.panels():
        cells = study.of(panel)
        for name in dict.fromkeys(name for cell in cells for name in cell.contestants):
            own = [cell for cell in cells if name in cell.contestants]
            ends = [own[0], *own[1:][-1:]]
            found = [cell.contestants[name] for cell in ends]
            times = " and ".join(
                f"{number(one.us)} us" + (f" at {bytes_text(cell.size)}" if cell.size else "")
                for cell, one in zip(ends, found, strict=True)
            )
            count = counted(found[0].launches, "launch")
            text = f"{panel}: {found[0].label} takes {times}, from {count}."
            yield Finding(MEASURED, text, panel)


def _beaten(study: Study, panel: Panel, environment: str) -> Iterator[Finding]:
    def choose(cell: Cell) -> tuple[Contestant | None, Contestant | None]:
        choice = cell.contestants.get(Name(environment, "mpi4py", "native"))
        return min(_forced(cell, environment), key=lambda each: each.us, default=None), choice

    count = len({name for cell in study.of(panel) for name in cell.contestants if name.is_native})
    for kind, same in ranges(pairs(study, panel, choose, 1 - 0.05 / max(1, count))):
        if kind not in ("tie", "slower"):
            for each in said(same, OTHERS, theirs="the library's choice"):
                unasked = _obedience(study, same) if kind == "faster" else ""
                yield replace(each, text=each.text + unasked)
        else:
            tried = {
                each.name.algorithm for pair in same for each in _forced(pair.cell, environment)
            }
            text = (
                f"none of {len(tried)} other algorithms of {environment} beats its choice; the best"
            )
            if len(tried) == 1:
                text = f"{same[0].one.name} does not beat the library's choice; it"
            yield Finding(
                OTHERS,
                f"{place(same)}: {text} is {times(same)} times as fast, {launches(same)}.",
                panel,
            )


def _forced(cell: Cell, environment: str) -> list[Contestant]:
    return [each for each in cell.natives(environment) if "(algorithm=" in each.name.algorithm]


def _obedience(study: Study, same: Sequence[Pair]) -> str:
    hows = [how for each in same for how in _hows(study, each.one.name, each.cell.panel.collective)]
    if hows and all(how.obeyed for how in hows):
        return ""
    return " It cannot be asked whether it ran that."


def _hows(study: Study, name: Name, collective: str) -> list[Forced]:
    algorithm = name.algorithm.removeprefix("native(algorithm=").removesuffix(")")
    return study.forced.get((name.environment, collective, algorithm), [])


def _same_algorithm(study: Study, panel: Panel) -> Iterator[Finding]:
    names = {name for cell in study.of(panel) for name in cell.contestants}
    for native in sorted(names, key=str):
        ours = counterpart(study.forced, native, panel.collective)
        if ours is None:
            continue
        choose = _both(Name(native.environment, native.backend, ours), native)
        yield from said(pairs(study, panel, choose), SAME, f"our {ours}")


def _both(one: Name, other: Name) -> Choose:
    return lambda cell: (cell.contestants.get(one), cell.contestants.get(other))


def _answers(study: Study, panel: Panel, question: Question) -> Iterator[Finding]:
    for names in question.pairs.get(panel.collective, ()):
        found: dict[str, list[Pair]] = {}
        for environment in study.environments():
            for backend in ("mpi4py", "torch"):
                one, other = (Name(environment, backend, each) for each in names)
                found[place_of(environment, backend)] = pairs(study, panel, _both(one, other))
        yield from said_of_places(found, question.title)


def _backends(study: Study, panel: Panel) -> Iterator[Finding]:
    for environment in study.environments():
        for algorithm in ("native", "auto"):
            names = (Name(environment, backend, algorithm) for backend in ("mpi4py", "torch"))
            yield from said(pairs(study, panel, _both(*names)), BACKENDS)


def _wrong(study: Study) -> Iterator[Finding]:
    """Yield who gave wrong results: they are in no other sentence."""
    for (panel, name), records in study.left_out.items():
        if wrong := [each for each in records if each.correct is False]:
            text = f"{name} gave wrong results {_share(study, panel, name, wrong)}"
            yield Finding(SHORT, f"{panel}{_sizes(wrong)}: {text}: they are left out.")


def _refusals(study: Study) -> Iterator[Finding]:
    """Yield what was not measured, but for what the library does not run."""
    for (panel, name), records in study.left_out.items():
        if any(how.refused for how in _hows(study, name, panel.collective)):
            continue
        refused: dict[str, list[CaseRecord]] = {}
        for each in records:
            if each.correct is not False and each.message:
                refused.setdefault(each.message, []).append(each)
        for message, own in refused.items():
            text = f"{name} was not measured {_share(study, panel, name, own)}: {message}"
            yield Finding(OPEN, f"{panel}{_sizes(own)}: {text}")


def _share(study: Study, panel: Panel, name: Name, records: Sequence[CaseRecord]) -> str:
    tried = len(study.measured[panel, name])
    return f"in {len({each.run.id for each in records})} of {counted(tried, 'launch')}"


def _sizes(records: Sequence[CaseRecord]) -> str:
    sizes = sorted({each.bytes_total for each in records})
    return f", {', '.join(map(bytes_text, sizes))}" if sizes != [0] else ""


def _unmeasured(study: Study) -> Iterator[Finding]:
    """Yield the configurations without a launch that succeeded, once for each reason."""
    by_reason: dict[str, list[str]] = {}
    for name, records in study.configurations().items():
        if all(launch.message for launch in records):
            reasons = dict.fromkeys(str(launch.message) for launch in records)
            by_reason.setdefault("; ".join(reasons), []).append(name)
    for reason, names in by_reason.items():
        yield Finding(SHORT, f"Every launch of {listed(names)} failed: {reason}")


def _failures(study: Study) -> Iterator[Finding]:
    for name, records in study.configurations().items():
        messages = [launch.message for launch in records if launch.message]
        if len(messages) == len(records):
            continue  # `_unmeasured` tells these
        for message in dict.fromkeys(messages):
            share = f"{messages.count(message)} of {counted(len(records), 'launch')}"
            yield Finding(OPEN, f"{share} of {name} failed: {message}")
    for (environment, collective, algorithm), hows in study.forced.items():
        if hows[0].refused:
            sizes = ", ".join(map(bytes_text, hows[0].refused))
            where = "" if hows[0].obeyed is False else f" at {sizes}"
            yield Finding(
                OPEN,
                f"{environment} does not run {collective} by {algorithm}{where}: it says "
                f"“{hows[0].said}”",
            )
    for environment in dict.fromkeys(name for name, _, _ in study.forced):
        hows = [how for (name, _, _), own in study.forced.items() if name == environment
                for how in own]  # fmt: skip
        if all(how.obeyed is None for how in hows):
            yield Finding(
                OPEN,
                f"{environment} cannot be asked whether it ran the algorithms that its variables "
                f"asked for ({hows[0].said}).",
            )
