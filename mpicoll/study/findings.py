"""What a study found, in sentences: each has its numbers and its figure, and follows from records.

A sentence about a range of sizes is said only where the verdict is the same at every size in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from mpicoll.records.lines import Forced
from mpicoll.study.cells import (
    ENOUGH,
    Cell,
    Contestant,
    Name,
    Panel,
    Ratio,
    Study,
    compared,
    counterpart,
)
from mpicoll.study.crossovers import Crossings
from mpicoll.study.questions import QUESTIONS, Question
from mpicoll.text.numbers import number
from mpicoll.text.sizes import bytes_text

WINNERS = "Who wins where"
OTHERS = "Where a library's choice is beaten by its own other algorithm"
SAME = "The same algorithm over the library's executor and over ours"
CROSSOVERS = "Crossovers: measured, and by the cost model"
BACKENDS = "What differs between the backends"
OPEN = "What could not be decided"
_FEW = "few"
"""The section of comparisons that have too few launches: they are counted, and not told."""


@dataclass(frozen=True)
class Finding:
    """A sentence.

    Attributes:
        section: the heading it stands under.
        panel: that of its figure, None where no figure shows it.
    """

    section: str
    text: str
    panel: Panel | None = None


@dataclass(frozen=True)
class Pair:
    """Two contestants of a cell, and their ratio."""

    cell: Cell
    one: Contestant
    other: Contestant
    ratio: Ratio


Choose = Callable[[Cell], tuple[Contestant | None, Contestant | None]]


def findings(study: Study, crossings: Crossings | None = None) -> list[Finding]:
    """Return every sentence that the records carry, in the order of the sections."""
    found: list[Finding] = []
    for panel in study.panels():
        found += _winners(study, panel)
    for panel in study.panels():
        found += _own_others(study, panel)
    for panel in study.panels():
        found += _same_algorithm(study, panel)
    for question in QUESTIONS:
        for panel in study.panels():
            found += _answers(study, panel, question)
    if crossings is not None:
        found += [Finding(CROSSOVERS, text, panel) for panel, text in crossings.sentences(study)]
    for panel in study.panels():
        found += _backends(study, panel)
    found = [*_without_few(found), *_failures(study)]
    return [each for each in found if each.section != OPEN] + [
        each for each in found if each.section == OPEN
    ]


# -- sections -----------------------------------------------------------------------------


def _winners(study: Study, panel: Panel) -> Iterator[Finding]:
    def choose(cell: Cell) -> tuple[Contestant | None, Contestant | None]:
        return cell.fastest_ours(), cell.strongest_native()

    yield from _said(study, panel, choose, WINNERS, "the strongest native")
    if len(study.environments()) > 1:
        for name in study.environments():
            yield from _said(
                study, panel, _within(name), WINNERS, f"the strongest native of {name}"
            )


def _within(environment: str) -> Choose:
    def choose(cell: Cell) -> tuple[Contestant | None, Contestant | None]:
        ours = [each for each in cell.ours() if each.name.environment == environment]
        return min(ours, key=lambda each: each.us, default=None), cell.strongest_native(environment)

    return choose


def _own_others(study: Study, panel: Panel) -> Iterator[Finding]:
    for environment in study.environments():
        yield from _beaten(study, panel, environment)


def _beaten(study: Study, panel: Panel, environment: str) -> Iterator[Finding]:
    def choose(cell: Cell) -> tuple[Contestant | None, Contestant | None]:
        choice = cell.contestants.get(Name(environment, "mpi4py", "native"))
        others = [each for each in cell.natives(environment) if "(algorithm=" in str(each.name)]
        return min(others, key=lambda each: each.us, default=None), choice

    count = len({name for cell in study.of(panel) for name in cell.contestants if name.is_native})
    pairs = _pairs(study, panel, choose, 1 - 0.05 / max(1, count))
    for kind, group in groupby(pairs, key=_kind):
        if kind == "faster":
            same = list(group)
            yield Finding(
                OTHERS,
                f"{_where(same)}: {_names(same, 0)} is {_times(same)} times as fast as the "
                f"library's choice, {_launches(same)}{_obedience(study, same)}.",
                panel,
            )


def _obedience(study: Study, pairs: Sequence[Pair]) -> str:
    hows = [
        how for each in pairs for how in _hows(study, each.one.name, each.cell.panel.collective)
    ]
    if hows and all(how.obeyed for how in hows):
        return ""
    return " (it cannot be asked whether it ran that)"


def _hows(study: Study, name: Name, collective: str) -> list[Forced]:
    algorithm = name.algorithm.removeprefix("native(algorithm=").removesuffix(")")
    return study.forced.get((name.environment, collective, algorithm), [])


def _same_algorithm(study: Study, panel: Panel) -> Iterator[Finding]:
    names = {name for cell in study.of(panel) for name in cell.contestants}
    for native in sorted(names, key=str):
        ours = counterpart(study.forced, native, panel.collective)
        if ours is None:
            continue
        choose = _named(Name(native.environment, native.backend, ours), native)
        yield from _said(study, panel, choose, SAME, subject=f"our {ours}")


def _named(one: Name, other: Name) -> Choose:
    return lambda cell: (cell.contestants.get(one), cell.contestants.get(other))


def _answers(study: Study, panel: Panel, question: Question) -> Iterator[Finding]:
    for first, second in question.pairs.get(panel.collective, ()):
        for environment in study.environments():
            for backend in ("mpi4py", "torch"):
                names = (Name(environment, backend, each) for each in (first, second))
                yield from _said(study, panel, _named(*names), question.title)


def _backends(study: Study, panel: Panel) -> Iterator[Finding]:
    for environment in study.environments():
        for algorithm in ("native", "auto"):
            names = (Name(environment, backend, algorithm) for backend in ("mpi4py", "torch"))
            yield from _said(study, panel, _named(*names), BACKENDS)


def _failures(study: Study) -> Iterator[Finding]:
    failed: dict[tuple[str, str], int] = {}
    count: dict[str, int] = {}
    for each in study.launches:
        count[each.configuration] = count.get(each.configuration, 0) + 1
        if each.message:
            key = each.configuration, each.message
            failed[key] = failed.get(key, 0) + 1
    for (name, message), times in failed.items():
        yield Finding(OPEN, f"{times} of {count[name]} launches of {name} failed: {message}")
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


def _without_few(found: Sequence[Finding]) -> list[Finding]:
    """Return the findings with one sentence for all comparisons that have too few launches."""
    told = [each for each in found if each.section != _FEW]
    count = sum(int(each.text) for each in found if each.section == _FEW)
    if count:
        text = f"{count} comparisons have fewer than {ENOUGH} launches: too few for a verdict."
        told.append(Finding(OPEN, text))
    return told


# -- sentences ----------------------------------------------------------------------------


def _said(
    study: Study, panel: Panel, choose: Choose, section: str, against: str = "", subject: str = ""
) -> Iterator[Finding]:
    """Yield a sentence for each range of sizes with one verdict."""
    pairs = _pairs(study, panel, choose)
    for kind, group in groupby(pairs, key=_kind):
        same = list(group)
        ours = subject or _names(same, 0)
        theirs = f"{against} ({_names(same, 1)})" if against else _names(same, 1)
        if kind == _FEW:
            yield Finding(_FEW, str(len(same)), panel)
        elif kind == "open":
            low = min(each.ratio.low for each in same)
            high = max(each.ratio.high for each in same)
            text = (
                f"{_where(same)}: whether {ours} is faster than {theirs}: the ratio is between "
                f"{number(low)} and {number(high)}, from {_count(same)} launches."
            )
            yield Finding(OPEN, text, panel)
        elif kind == "tie":
            text = f"{_where(same)}: {ours} ties with {theirs}: {_times(same)} times as fast."
            yield Finding(section, text, panel)
        else:
            text = f"{_where(same)}: {ours} is {_times(same)} times as fast as {theirs}"
            if kind == "slower":
                text = (
                    f"{_where(same)}: {theirs} is {_times(same, upside_down=True)} times as fast "
                    f"as {ours}"
                )
            yield Finding(section, f"{text}, {_launches(same)}.", panel)


def _kind(each: Pair) -> str:
    if each.ratio.has_few:
        return _FEW
    return "open" if each.ratio.is_undecided else each.ratio.verdict


def _pairs(study: Study, panel: Panel, choose: Choose, confidence: float = 0.95) -> list[Pair]:
    found = []
    for cell in study.of(panel):
        one, other = choose(cell)
        if one is None or other is None or one is other:
            continue
        ratio = compared(one, other, confidence)
        if ratio is not None:
            found.append(Pair(cell, one, other, ratio))
    return found


def _where(pairs: Sequence[Pair]) -> str:
    panel, sizes = pairs[0].cell.panel, [each.cell.size for each in pairs]
    if not sizes[-1]:
        return str(panel)
    if len(sizes) == 1:
        return f"{panel}, {bytes_text(sizes[0])}"
    return f"{panel}, {bytes_text(sizes[0])} to {bytes_text(sizes[-1])}"


def _names(pairs: Sequence[Pair], place: int) -> str:
    """Return the contestants in the order of sizes, each once."""
    found = [(each.one, each.other)[place].label for each in pairs]
    return ", then ".join(dict.fromkeys(found))


def _times(pairs: Sequence[Pair], upside_down: bool = False) -> str:
    ratios = [1 / each.ratio.ratio if upside_down else each.ratio.ratio for each in pairs]
    low, high = number(min(ratios)), number(max(ratios))
    return low if low == high else f"{low} to {high}"


def _launches(pairs: Sequence[Pair]) -> str:
    """Return in how many launches the direction was that of the ratio."""
    agreeing = sum(each.ratio.agreeing for each in pairs)
    every = sum(each.ratio.launches for each in pairs)
    if every == len(pairs):
        return "in one launch"
    each = f" ({_count(pairs)} at each size)" if len(pairs) > 1 else ""
    return f"in {agreeing} of {every} launches{each}"


def _count(pairs: Sequence[Pair]) -> str:
    counts = sorted({each.ratio.launches for each in pairs})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
