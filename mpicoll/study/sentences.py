"""Sentences of comparisons: sizes, ratio, number of launches, and times.

A sentence covers a range of sizes only if all its sizes have the same verdict. It covers several
places only if all of them have the same verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from mpicoll.study.cells import ENOUGH, Cell, Contestant, Panel, Ratio, compare_contestants
from mpicoll.study.reading import Study
from mpicoll.text.numbers import count_text, interval, number
from mpicoll.text.sizes import bytes_text

OPEN = "What could not be decided"
_TOO_FEW = "few"
"""The section of comparisons with too few launches: they are counted, not described."""
_DISTURBED = "samples were late or preempted, or native contradicts itself"
_MAX_DEVIATION = 1.2
_MOST_SIZES = 6
"""Number of sizes up to which a sentence gives all times; above, only the first and the last."""


@dataclass(frozen=True)
class Finding:
    """A sentence.

    Attributes:
        section: its heading.
        panel: of its figure, None without a figure.
    """

    section: str
    text: str
    panel: Panel | None = None


@dataclass(frozen=True)
class Pair:
    """Two contestants of a cell, and their ratio.

    Attributes:
        number: index of the cell in its panel.
    """

    number: int
    cell: Cell
    contestant: Contestant
    reference: Contestant
    ratio: Ratio

    @property
    def us(self) -> tuple[float, float]:
        """The microseconds of both, from the launches that the ratio comes from."""
        if not self.ratio.is_paired:
            return self.contestant.us, self.reference.us
        runs = self.contestant.times.keys() & self.reference.times.keys()
        return self.contestant.us_of(runs), self.reference.us_of(runs)

    @property
    def kind(self) -> str:
        """The decision, ``open`` if it is undecided, or the section for too few launches."""
        if self.ratio.has_few:
            return _TOO_FEW
        return "open" if self.ratio.decision == "undecided" else self.ratio.decision


Choose = Callable[[Cell], tuple[Contestant | None, Contestant | None]]
Called = Callable[[Sequence[Pair]], tuple[str, str]]


def _algorithms(group: Sequence[Pair]) -> tuple[str, str]:
    """Return the algorithms of both sides; a schedule of this project is called ours."""
    sides = ([pair.contestant.name for pair in group], [pair.reference.name for pair in group])
    first, second = (
        join_names(list(dict.fromkeys(name.with_owner for name in names))) for names in sides
    )
    return first, second


def pairs(study: Study, panel: Panel, choose: Choose, confidence: float = 0.95) -> list[Pair]:
    """Return the pair of contestants that `choose` selects at each size of a panel."""
    result = []
    for index, cell in enumerate(study.of(panel)):
        contestant, reference = choose(cell)
        if contestant is None or reference is None or contestant is reference:
            continue
        result.append(
            Pair(
                index,
                cell,
                contestant,
                reference,
                compare_contestants(contestant, reference, confidence),
            )
        )
    return result


def ranges(series: Iterable[Pair]) -> Iterator[tuple[str, list[Pair]]]:
    """Yield the ranges of neighbouring compared sizes with one verdict."""

    def verdict_and_run(numbered: tuple[int, Pair]) -> tuple[str, int]:
        place, pair = numbered
        return pair.kind, pair.number - place

    for (kind, _), group in groupby(enumerate(series), verdict_and_run):
        yield kind, [pair for _, pair in group]


def describe(
    series: Sequence[Pair],
    section: str,
    contestant: str = "",
    reference: str = "",
    environment: str = "",
) -> list[Finding]:
    """Return a sentence for each range of sizes with one verdict.

    Args:
        contestant, reference: texts for the two sides, by default their names. A name that the text
            lacks stands beside the times.
        environment: the environment to name in the sentence.
    """
    return [
        _finding(
            kind,
            [group],
            section,
            _Sides(contestant or _labels(group, 0), reference or _labels(group, 1), environment),
        )
        for kind, group in ranges(series)
    ]


def describe_places(
    by_place: dict[str, list[Pair]], section: str, called: Called = _algorithms
) -> Iterator[Finding]:
    """Yield a sentence for each range of sizes with one verdict; places with equal ones share it.

    Args:
        by_place: the pairs by environment and backend.
        called: returns the texts for the two sides of pairs, by default their algorithms.
    """
    shared: dict[tuple[str, tuple[int, ...], tuple[str, str]], dict[str, list[Pair]]] = {}
    for place, series in by_place.items():
        for kind, group in ranges(series):
            sizes = tuple(pair.cell.size for pair in group)
            shared.setdefault((kind, sizes, called(group)), {})[place] = group
    for (kind, _, names), groups in shared.items():
        yield _finding(kind, [*groups.values()], section, _Sides(*names, join_names(list(groups))))


def without_few(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, with one sentence for all comparisons with too few launches."""
    results = [finding for finding in findings if finding.section != _TOO_FEW]
    count = sum(int(finding.text) for finding in findings if finding.section == _TOO_FEW)
    if count:
        subject = f"{count_text(count, 'comparison')} with fewer than {ENOUGH} launches"
        text = f"{subject}: too few for a verdict."
        results.append(Finding(OPEN, text))
    return results


# -- one sentence -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sides:
    """The names of the two sides, and the places of the comparison."""

    contestant: str
    reference: str
    places: str = ""


def _finding(kind: str, groups: Sequence[Sequence[Pair]], section: str, sides: _Sides) -> Finding:
    """Return the sentence of pairs with one verdict, a group for each place."""
    every = [pair for group in groups for pair in group]
    panel, contestant, reference = every[0].cell.panel, sides.contestant, sides.reference
    if kind == _TOO_FEW:
        return Finding(_TOO_FEW, str(len(every)), panel)
    place_text = place(groups[0]) + (f", in {sides.places}" if sides.places else "")
    if kind == "disturbed":
        text = f"{place_text}: whether {contestant} is faster than {reference}: {_DISTURBED}"
        return Finding(OPEN, f"{text}, from {_launches(every)}.", panel)
    if kind == "open":
        low = min(pair.ratio.low for pair in every)
        high = max(pair.ratio.high for pair in every)
        bounds = interval(low, high, " and ")
        text = (
            f"{place_text}: whether {contestant} is faster than {reference}: the ratio is "
            f"{'between ' if ' and ' in bounds else ''}{bounds}, from {_launches(every)}"
        )
        if not any(pair.ratio.is_enough for pair in every):
            text += ": too few samples for a verdict"
        return Finding(OPEN, f"{text}.", panel)
    is_slower = kind == "slower"
    if kind == "tie":
        text = f"{contestant} ties with {reference}: {times(every)} times as fast"
    elif is_slower:
        text = f"{reference} is {times(every, upside_down=True)} times as fast as {contestant}"
    else:
        text = f"{contestant} is {times(every)} times as fast as {reference}"
    text = f"{place_text}: {text}, {launches(every)}"
    if len(groups) == 1:
        text += f": {_times_of(groups[0], sides, is_slower)}"
    return Finding(section, f"{text}.", panel)


def _times_of(group: Sequence[Pair], sides: _Sides, is_slower: bool) -> str:
    """Return the microseconds of both sides at each size, in the order of the sentence."""
    shown = group if len(group) <= _MOST_SIZES else (group[0], group[-1])
    parts = []
    for pair in shown:
        texts = [
            f"{number(us)} us{_name_beside_time(contestant, called, sides)}"
            for us, contestant, called in zip(
                pair.us,
                (pair.contestant, pair.reference),
                (sides.contestant, sides.reference),
                strict=True,
            )
        ]
        first, second = reversed(texts) if is_slower else texts
        size = f" at {bytes_text(pair.cell.size)}" if len(group) > 1 else ""
        parts.append(f"{first} against {second}{size}{_bimodal_bounds(pair, is_slower)}")
    return "; ".join(parts)


def _bimodal_bounds(pair: Pair, is_slower: bool) -> str:
    """Return the bounds of a ratio that differs from the ratio of the medians, else "".

    If the times of one side are bimodal, its median can belong to the other mode than the ratio.
    """
    (us, reference_us), ratio = pair.us, pair.ratio
    if 1 / _MAX_DEVIATION <= reference_us / us / ratio.ratio <= _MAX_DEVIATION:
        return ""
    low, high = (1 / ratio.high, 1 / ratio.low) if is_slower else (ratio.low, ratio.high)
    return f" (launches differ: {interval(low, high)} times)"


def _name_beside_time(contestant: Contestant, called: str, sides: _Sides) -> str:
    """Return the name of a contestant, "" if the sentence already has it."""
    algorithm = contestant.name.algorithm
    if f"({contestant.label})" in called or called in (
        contestant.label,
        algorithm,
        contestant.name.with_owner,
    ):
        return ""
    name = contestant.name
    is_told = sides.places in (name.environment, place_of(name.environment, name.backend))
    return f" ({contestant.short if is_told else contestant.label})"


def place(group: Sequence[Pair]) -> str:
    """Return the panel and the sizes of pairs."""
    panel, sizes = group[0].cell.panel, [pair.cell.size for pair in group]
    if not sizes[-1]:
        return str(panel)
    if len(sizes) == 1:
        return f"{panel}, {bytes_text(sizes[0])}"
    return f"{panel}, {bytes_text(sizes[0])} to {bytes_text(sizes[-1])}"


def _labels(group: Sequence[Pair], side: int) -> str:
    """Return the contestants in the order of sizes, each once."""
    labels = [(pair.contestant, pair.reference)[side].label for pair in group]
    return ", then ".join(dict.fromkeys(labels))


def times(group: Sequence[Pair], upside_down: bool = False) -> str:
    """Return the smallest and the largest ratio of pairs."""
    ratios = [1 / pair.ratio.ratio if upside_down else pair.ratio.ratio for pair in group]
    return interval(min(ratios), max(ratios))


def launches(group: Sequence[Pair]) -> str:
    """Return the number of launches with the same direction as the ratio."""
    every = sum(pair.ratio.launches for pair in group)
    if every == len(group):
        return "in one launch"
    per_size = f" ({_count(group)} at each size)" if len(group) > 1 else ""
    if any(pair.kind == "tie" for pair in group):
        return f"from {every} launches{per_size}"
    agreeing = sum(pair.ratio.agreeing for pair in group)
    return f"in {agreeing} of {every} launches{per_size}"


def _launches(group: Sequence[Pair]) -> str:
    return "one launch" if (count := _count(group)) == "1" else f"{count} launches"


def _count(group: Sequence[Pair]) -> str:
    counts = sorted({pair.ratio.launches for pair in group})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def place_of(environment: str, backend: str) -> str:
    """Return a place: an environment, with its backend unless that is MPI.

    >>> place_of("mpich", "mpi4py"), place_of("mpich", "torch"), place_of("", "torch")
    ('mpich', 'mpich (torch)', 'torch')
    """
    if not environment:
        return backend
    return environment if backend == "mpi4py" else f"{environment} ({backend})"


def join_names(names: Sequence[str]) -> str:
    """Return names as a list in a sentence.

    >>> join_names(["a"]), join_names(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
