"""Sentences of a comparison: sizes, by how much, in how many launches, and the times.

A sentence about a range of sizes is said only where the verdict is the same at every size in it,
and one about several places only where it is the same in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from mpicoll.study.cells import ENOUGH, Cell, Contestant, Panel, Ratio, Study, compared
from mpicoll.text.numbers import counted, number
from mpicoll.text.sizes import bytes_text

OPEN = "What could not be decided"
_FEW = "few"
"""The section of comparisons that have too few launches: they are counted, and not told."""
_APART = 1.2
_MOST_SIZES = 6
"""Sizes whose times a sentence gives; of more the first and the last."""


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
    """Two contestants of a cell, and their ratio.

    Attributes:
        number: that of the cell among those of its panel.
    """

    number: int
    cell: Cell
    one: Contestant
    other: Contestant
    ratio: Ratio

    @property
    def us(self) -> tuple[float, float]:
        """The microseconds of both, of the launches that have both where these carry the ratio."""
        if not self.ratio.is_paired:
            return self.one.us, self.other.us
        runs = self.one.times.keys() & self.other.times.keys()
        return self.one.us_of(runs), self.other.us_of(runs)

    @property
    def kind(self) -> str:
        """The verdict, ``open`` where there is none, or that there are too few launches."""
        if self.ratio.has_few:
            return _FEW
        return "open" if self.ratio.is_undecided else self.ratio.verdict


Choose = Callable[[Cell], tuple[Contestant | None, Contestant | None]]
Called = Callable[[Sequence[Pair]], tuple[str, str]]


def _algorithms(same: Sequence[Pair]) -> tuple[str, str]:
    """Return the algorithms of both sides; those of this project are called ours."""
    sides = ([pair.one.name for pair in same], [pair.other.name for pair in same])
    one, other = (listed(list(dict.fromkeys(name.owned for name in names))) for names in sides)
    return one, other


def pairs(study: Study, panel: Panel, choose: Choose, confidence: float = 0.95) -> list[Pair]:
    """Return the pairs that a choice compares at each size of a panel."""
    found = []
    for index, cell in enumerate(study.of(panel)):
        one, other = choose(cell)
        if one is None or other is None or one is other:
            continue
        found.append(Pair(index, cell, one, other, compared(one, other, confidence)))
    return found


def ranges(found: Iterable[Pair]) -> Iterator[tuple[str, list[Pair]]]:
    """Yield the ranges of sizes with one verdict, without a size between that is not compared."""

    def verdict_and_run(numbered: tuple[int, Pair]) -> tuple[str, int]:
        place, pair = numbered
        return pair.kind, pair.number - place

    for (kind, _), group in groupby(enumerate(found), verdict_and_run):
        yield kind, [pair for _, pair in group]


def said(
    found: Sequence[Pair], section: str, ours: str = "", theirs: str = "", where: str = ""
) -> list[Finding]:
    """Return a sentence for each range of sizes with one verdict.

    Args:
        ours, theirs: what the sides are called, by default by their names; a name that is not in
            it stands beside its times.
        where: the environment, if the sentence is to name it.
    """
    return [
        _finding(
            kind, [same], section, _Sides(ours or _named(same, 0), theirs or _named(same, 1), where)
        )
        for kind, same in ranges(found)
    ]


def said_of_places(
    by_place: dict[str, list[Pair]], section: str, called: Called = _algorithms
) -> Iterator[Finding]:
    """Yield a sentence for each range of sizes with one verdict, once for all places that share it.

    Args:
        by_place: what is compared in several environments and backends.
        called: returns what the two sides of pairs are called, by default by their algorithms.
    """
    shared: dict[tuple[str, tuple[int, ...], tuple[str, str]], dict[str, list[Pair]]] = {}
    for place, found in by_place.items():
        for kind, same in ranges(found):
            sizes = tuple(each.cell.size for each in same)
            shared.setdefault((kind, sizes, called(same)), {})[place] = same
    for (kind, _, names), own in shared.items():
        yield _finding(kind, [*own.values()], section, _Sides(*names, listed(list(own))))


def without_few(found: Sequence[Finding]) -> list[Finding]:
    """Return the findings with one sentence for all comparisons that have too few launches."""
    told = [each for each in found if each.section != _FEW]
    count = sum(int(each.text) for each in found if each.section == _FEW)
    if count:
        few = f"{counted(count, 'comparison')} with fewer than {ENOUGH} launches"
        text = f"{few}: too few for a verdict."
        told.append(Finding(OPEN, text))
    return told


# -- one sentence -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sides:
    """The names of the two sides, and the places where they were compared."""

    ours: str
    theirs: str
    places: str = ""


def _finding(kind: str, groups: Sequence[Sequence[Pair]], section: str, sides: _Sides) -> Finding:
    """Return the sentence of pairs with one verdict, a group for each place."""
    every = [each for same in groups for each in same]
    panel, ours, theirs = every[0].cell.panel, sides.ours, sides.theirs
    if kind == _FEW:
        return Finding(_FEW, str(len(every)), panel)
    where = place(groups[0]) + (f", in {sides.places}" if sides.places else "")
    if kind == "open":
        low = min(each.ratio.low for each in every)
        high = max(each.ratio.high for each in every)
        text = (
            f"{where}: whether {ours} is faster than {theirs}: the ratio is between "
            f"{number(low)} and {number(high)}, from {_launches(every)}"
        )
        if not any(each.ratio.is_enough for each in every):
            text += ": too few samples for a verdict"
        return Finding(OPEN, f"{text}.", panel)
    is_slower = kind == "slower"
    if kind == "tie":
        text = f"{ours} ties with {theirs}: {times(every)} times as fast"
    elif is_slower:
        text = f"{theirs} is {times(every, upside_down=True)} times as fast as {ours}"
    else:
        text = f"{ours} is {times(every)} times as fast as {theirs}"
    text = f"{where}: {text}, {launches(every)}"
    if len(groups) == 1:
        text += f": {_times_of(groups[0], sides, is_slower)}"
    return Finding(section, f"{text}.", panel)


def _times_of(same: Sequence[Pair], sides: _Sides, is_slower: bool) -> str:
    """Return the microseconds of both sides at each size, the one first that is named first."""
    kept = same if len(same) <= _MOST_SIZES else (same[0], same[-1])
    parts = []
    for each in kept:
        texts = [
            f"{number(us)} us{_called(one, called, sides)}"
            for us, one, called in zip(
                each.us, (each.one, each.other), (sides.ours, sides.theirs), strict=True
            )
        ]
        first, second = reversed(texts) if is_slower else texts
        size = f" at {bytes_text(each.cell.size)}" if len(same) > 1 else ""
        parts.append(f"{first} against {second}{size}{_apart(each, is_slower)}")
    return "; ".join(parts)


def _apart(each: Pair, is_slower: bool) -> str:
    """Return the bounds of a ratio that the medians of both sides do not have.

    So it is where one side has two speeds: in the launch in the middle it may be the other one.
    """
    (one, other), ratio = each.us, each.ratio
    if 1 / _APART <= other / one / ratio.ratio <= _APART:
        return ""
    low, high = (1 / ratio.high, 1 / ratio.low) if is_slower else (ratio.low, ratio.high)
    return f" (launches differ: {number(low)} to {number(high)} times)"


def _called(one: Contestant, called: str, sides: _Sides) -> str:
    """Return the name of a contestant, nothing where the sentence has told it."""
    algorithm = one.name.algorithm
    if f"({one.label})" in called or called in (one.label, algorithm, one.name.owned):
        return ""
    name = one.name
    is_told = sides.places in (name.environment, place_of(name.environment, name.backend))
    return f" ({one.short if is_told else one.label})"


def place(same: Sequence[Pair]) -> str:
    """Return the panel and the sizes of pairs."""
    panel, sizes = same[0].cell.panel, [each.cell.size for each in same]
    if not sizes[-1]:
        return str(panel)
    if len(sizes) == 1:
        return f"{panel}, {bytes_text(sizes[0])}"
    return f"{panel}, {bytes_text(sizes[0])} to {bytes_text(sizes[-1])}"


def _named(same: Sequence[Pair], side: int) -> str:
    """Return the contestants in the order of sizes, each once."""
    found = [(each.one, each.other)[side].label for each in same]
    return ", then ".join(dict.fromkeys(found))


def times(same: Sequence[Pair], upside_down: bool = False) -> str:
    """Return the ratios of pairs, the least and the largest."""
    ratios = [1 / each.ratio.ratio if upside_down else each.ratio.ratio for each in same]
    low, high = number(min(ratios)), number(max(ratios))
    return low if low == high else f"{low} to {high}"


def launches(same: Sequence[Pair]) -> str:
    """Return in how many launches the direction was that of the ratio."""
    every = sum(each.ratio.launches for each in same)
    if every == len(same):
        return "in one launch"
    each = f" ({_count(same)} at each size)" if len(same) > 1 else ""
    if any(one.kind == "tie" for one in same):
        return f"from {every} launches{each}"
    agreeing = sum(each.ratio.agreeing for each in same)
    return f"in {agreeing} of {every} launches{each}"


def _launches(same: Sequence[Pair]) -> str:
    return "one launch" if (count := _count(same)) == "1" else f"{count} launches"


def _count(same: Sequence[Pair]) -> str:
    counts = sorted({each.ratio.launches for each in same})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def place_of(environment: str, backend: str) -> str:
    """Return a place: an environment with its backend, which goes without saying with MPI.

    >>> place_of("mpich", "mpi4py"), place_of("mpich", "torch"), place_of("", "torch")
    ('mpich', 'mpich (torch)', 'torch')
    """
    if not environment:
        return backend
    return environment if backend == "mpi4py" else f"{environment} ({backend})"


def listed(names: Sequence[str]) -> str:
    """Return names in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
