"""Which algorithm should be the fastest: prices side by side, and where the order changes.

An algorithm with parameters is tried with several values of them, and its best one is shown. An
algorithm that cannot be priced is listed with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from math import ceil, inf, log2, sqrt
from typing import NamedTuple

import numpy as np

from mpicoll.algorithms.registry import Algorithm, algorithms, aliases, find, parse
from mpicoll.costs.classes import classes_of
from mpicoll.costs.events import chain_length, simulate
from mpicoll.costs.listings import pattern_of
from mpicoll.costs.models import Model
from mpicoll.costs.patterns import OutOfTime
from mpicoll.costs.topology import Topology
from mpicoll.defaults import NAMES as LIBRARIES
from mpicoll.errors import ArgumentError, CollectiveError
from mpicoll.notation.sweep import expand

RADIXES = 2, 4, 8, 16
SEGMENTS = 1, 4, 16, 64, 256, 1024
"""The values that are tried of these parameters where none is given."""
_TOLERANCE = 0.02
_DEPTH = 5
_STEPS = 4
_EQUAL = 1e-9

Variants = list[Algorithm]
"""Algorithms that differ in their segments alone, fewest first, of which not all are tried."""
Family = list[Variants]
"""An algorithm with several values of its parameters."""


@dataclass(frozen=True)
class Scenario:
    """A collective on a network, and the limits of pricing it.

    Attributes:
        time_limit: seconds of the processor to generate the schedule of an algorithm and to
            simulate it at the sizes that were asked for.
    """

    collective: str
    model: Model
    topology: Topology
    root: int = 0
    time_limit: float = inf


@dataclass(frozen=True)
class Curve:
    """The price of an algorithm over sizes: straight lines between those that were priced.

    Attributes:
        rounds: of the longest chain; sent: the most vectors that one rank sends.
        classes: how many ranks were simulated, as all others do the same as one of them.
        points: sizes in bytes, ascending, and seconds.
        smooth: the lines between them are within 2 %; else time ran out.
    """

    algorithm: Algorithm
    rounds: int
    sent: float
    classes: int
    points: tuple[tuple[float, float], ...]
    smooth: bool = True

    def seconds(self, nbytes: float) -> float:
        """Return the price of a size between the first point and the last."""
        sizes, times = zip(*self.points, strict=True)
        return float(np.interp(nbytes, sizes, times))


class Unpriced(NamedTuple):
    """An algorithm without a price, and why; `is_late` where more time would help."""

    algorithm: Algorithm
    reason: str
    is_late: bool = False


class Range(NamedTuple):
    """Sizes in bytes, the last one included, for which an algorithm is the cheapest."""

    low: float
    high: float
    algorithm: Algorithm


def candidates(collective: str, texts: Sequence[str] = ()) -> Iterator[Family]:
    """Yield algorithms, each with the values of its parameters that are to be tried.

    Args:
        texts: names as of `find`, with ranges as of `mpicoll.notation.sweep`; without any, all
            algorithms of the collective. A radix and segments that are not given are swept.

    Raises:
        UnknownName, ArgumentError: there is no such algorithm or parameter, or the name stands
            for no schedule.

    >>> for family in candidates("broadcast", ["kary(radix=2:3)", "chain(segments=2:8:*2)"]):
    ...     print(*(f"{len(row)} from {row[0]}" for row in family), sep="; ")
    6 from kary(radix=2,segments=1); 6 from kary(radix=3,segments=1)
    1 from chain(segments=2); 1 from chain(segments=4); 1 from chain(segments=8)
    """
    for text in texts or [algorithm.name for algorithm in algorithms(collective)]:
        yield [row for name in expand(text) for row in _rows(collective, name)]


def _rows(collective: str, name: str) -> Iterator[Variants]:
    """Yield an algorithm with each radix, and in each number of segments, if none is given."""
    schedule = _schedule(collective, name)
    fixed = parse(name)[1] | parse(aliases(collective).get(parse(name)[0], ""))[1]
    free = schedule.parameters.keys() - fixed.keys()
    for variant in _with(schedule, "radix", RADIXES) if "radix" in free else [schedule]:
        yield _with(variant, "segments", SEGMENTS) if "segments" in free else [variant]


def _with(algorithm: Algorithm, key: str, values: Iterable[int]) -> list[Algorithm]:
    """Return an algorithm with each value of a parameter."""
    return [replace(algorithm, parameters=algorithm.parameters | {key: value}) for value in values]


def _schedule(collective: str, name: str) -> Algorithm:
    """Return the schedule of a name; the error says why it names none."""
    plain, at, transport = name.partition("@")
    if at:
        raise ArgumentError(
            f"prices do not depend on transports: leave out '@{transport}' of {name!r}"
        )
    if plain == "auto" or plain.startswith("native"):
        raise ArgumentError(
            f"{name!r} cannot be priced: only the machine decides which schedule runs"
        )
    if plain in LIBRARIES:
        raise ArgumentError(
            f"{name!r} stands for another schedule at each size: name one that python -m "
            f"mpicoll.defaults {collective} prints"
        )
    return find(collective, name)


Report = Callable[[Algorithm, float], None]
"""Takes the algorithm and the size, in bytes, that are about to be priced."""


def _report_nothing(algorithm: Algorithm, nbytes: float) -> None:
    """Where nobody watches."""


def curve(
    algorithm: Algorithm, scenario: Scenario, sizes: Iterable[float],
    report: Report = _report_nothing,
) -> Curve:  # fmt: skip
    """Price an algorithm at some sizes, and between them until straight lines are close enough.

    Args:
        report: is called before each size.

    Raises:
        Unsupported: it cannot serve so many ranks, or takes too long.
    """
    sizes = sorted(set(map(float, sizes)))
    report(algorithm, sizes[0])  # to generate the schedules takes a while, too
    began, topology = time.process_time(), scenario.topology
    deadline = began + scenario.time_limit
    pattern = pattern_of(
        algorithm, topology.size, scenario.root, topology.groups, scenario.time_limit
    )

    def priced(nbytes: float) -> float:
        report(algorithm, nbytes)
        remaining = max(0.0, deadline - time.process_time())
        return simulate(pattern, nbytes, scenario.model, topology, remaining)

    points = {nbytes: priced(nbytes) for nbytes in sizes}
    count = len(classes_of(pattern, topology).rank)
    smooth = _refine(points, priced, lambda: time.process_time() < deadline)
    placed = tuple(sorted(points.items()))
    rounds = chain_length(pattern, topology)
    return Curve(algorithm, rounds, pattern.sent, count, placed, smooth)


def _refine(
    points: dict[float, float], priced: Callable[[float], float], in_time: Callable[[], bool]
) -> bool:
    """Price sizes between others until lines are straight; return whether time sufficed."""
    gaps = [(*pair, 0) for pair in pairwise(sorted(points))]
    while gaps:
        if not in_time():
            return False
        low, high, depth = gaps.pop()
        middle = sqrt(max(1.0, low) * high)
        guess = points[low] + (points[high] - points[low]) * (middle - low) / (high - low)
        points[middle] = priced(middle)
        if abs(guess - points[middle]) > _TOLERANCE * points[middle] and depth < _DEPTH:
            gaps += [(low, middle, depth + 1), (middle, high, depth + 1)]
    return True


@dataclass
class Ranking:
    """All curves of a scenario, and the algorithms that have none."""

    scenario: Scenario
    families: list[list[Curve]] = field(default_factory=list)
    unpriced: list[Unpriced] = field(default_factory=list)

    @property
    def curves(self) -> list[Curve]:
        """The curves of all families."""
        return [entry for family in self.families for entry in family]

    def at(self, nbytes: float) -> list[Curve]:
        """Return the best of each family at a size, cheapest first."""

        def seconds(curve: Curve) -> float:
            return curve.seconds(nbytes)

        return sorted((min(family, key=seconds) for family in self.families if family), key=seconds)

    def ranges(self, low: float, high: float) -> list[Range]:
        """Return which algorithm is the cheapest from which size to which."""
        steps = max(1, ceil(_STEPS * log2(high / low)))
        grid = [low * (high / low) ** (step / steps) for step in range(steps + 1)]
        winner, crossovers = self._cheapest(low), []
        for smaller, larger in pairwise(grid):
            rival = self._cheapest(larger, winner)
            if rival is not winner:
                change = _crossing(winner, rival, smaller, larger)
                crossovers.append(Range(low, change, winner.algorithm))
                winner, low = rival, change
        return [*crossovers, Range(low, high, winner.algorithm)]

    def _cheapest(self, nbytes: float, incumbent: Curve | None = None) -> Curve:
        """Return the cheapest curve; of equals the incumbent."""
        best = min(self.curves, key=lambda curve: curve.seconds(nbytes))
        margin = best.seconds(nbytes) * (1 + _EQUAL)
        return incumbent if incumbent and incumbent.seconds(nbytes) <= margin else best


def _crossing(first: Curve, second: Curve, low: float, high: float) -> float:
    """Return the size from which the other curve is below, by bisection."""
    for _ in range(30):
        middle = sqrt(low * high)
        ahead = second.seconds(middle) < first.seconds(middle)
        low, high = (low, middle) if ahead else (middle, high)
    return high


def rank(
    scenario: Scenario, chosen: Iterable[Family], sizes: Sequence[float],
    report: Report = _report_nothing,
) -> Ranking:  # fmt: skip
    """Price algorithms at these sizes and between them; `report` is as in `curve`.

    The first of a row that has no price, or is the best of the row at none of the sizes, is the
    last one of it that is tried.

    >>> from mpicoll.costs import Hockney, Switch
    >>> scenario = Scenario("allreduce", Hockney(1e-6, 1e-9), Switch(8))
    >>> names = ["ring", "recursive_doubling", "rabenseifner"]
    >>> ranked = rank(scenario, candidates("allreduce", names), [8, 1 << 30])
    >>> [(round(each.high), str(each.algorithm)) for each in ranked.ranges(8, 1 << 30)]
    [(2400, 'recursive_doubling'), (1073741824, 'rabenseifner')]
    """
    ranking = Ranking(scenario)
    for family in chosen:
        rows = (_priced(row, ranking, sizes, report) for row in family)
        ranking.families.append([*chain.from_iterable(rows)])
    return ranking


def _priced(
    row: Variants, ranking: Ranking, sizes: Sequence[float], report: Report
) -> Iterator[Curve]:
    """Yield the curves of a row as far as it is tried; note the algorithms without a price."""
    curves: list[Curve] = []
    for algorithm in row:
        try:
            curves.append(curve(algorithm, ranking.scenario, sizes, report))
        except CollectiveError as reason:
            is_late = isinstance(reason, OutOfTime)
            ranking.unpriced.append(Unpriced(algorithm, str(reason), is_late))
            return
        yield curves[-1]
        if not any(_is_best(curves, size) for size in sizes):
            return


def _is_best(curves: Sequence[Curve], nbytes: float) -> bool:
    """Whether the last of these is the cheapest at a size."""
    return min(curves, key=lambda curve: curve.seconds(nbytes)) is curves[-1]
