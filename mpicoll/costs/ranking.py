"""Which algorithm should be the fastest: prices side by side, and where the order changes.

An algorithm with parameters takes part with several values of them, and its best one is shown.
What cannot be priced is told with the reason, never left out.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from math import ceil, inf, log2, sqrt
from typing import NamedTuple

from mpicoll.algorithms import Algorithm, algorithms, find
from mpicoll.costs.events import simulate
from mpicoll.costs.lockstep import holds, lockstep
from mpicoll.costs.models import Model
from mpicoll.costs.programs import compiled
from mpicoll.costs.topologies import Topology
from mpicoll.errors import ArgumentError, CollectiveError

SWEEPS = {"radix": (2, 4, 8, 16), "segments": (1, 4, 16, 64, 256, 1024)}
"""What is tried of a parameter where no value is given."""
_TOLERANCE = 0.02
_DEPTH = 5
_STEPS = 4
_EQUAL = 1e-9


Family = list[Algorithm]
"""An algorithm with several values of its parameters."""


@dataclass(frozen=True)
class Setting:
    """Where a collective runs, and how its prices are found.

    Attributes:
        events: simulate also where there is a closed form.
        patience: seconds that it may take to generate a schedule, or to simulate it at one size.
    """

    collective: str
    model: Model
    topology: Topology
    root: int = 0
    events: bool = False
    patience: float = inf


@dataclass(frozen=True)
class Curve:
    """The price of an algorithm over sizes: straight lines between those that were priced.

    Attributes:
        rounds: the most rounds of a rank; sent: the most vectors that one sends.
        how: ``closed form`` or ``events``.
        points: sizes in bytes, ascending, and seconds.
        smooth: the lines between them are within 2 %; else time ran out.
    """

    algorithm: Algorithm
    rounds: int
    sent: float
    how: str
    points: tuple[tuple[float, float], ...]
    smooth: bool = True

    def seconds(self, nbytes: float) -> float:
        """Return the price of a size between the first point and the last."""
        at = max(1, bisect_left(self.points, (nbytes, -inf)))
        (low, early), (high, late) = self.points[at - 1 : at + 1]
        return early + (late - early) * (nbytes - low) / (high - low)


class Unpriced(NamedTuple):
    """An algorithm without a price, and why."""

    algorithm: Algorithm
    reason: str


class Range(NamedTuple):
    """Sizes in bytes, the last one included, for which an algorithm is the cheapest."""

    low: float
    high: float
    algorithm: Algorithm


def candidates(collective: str, texts: Sequence[str] = ()) -> Iterator[Family]:
    """Yield algorithms, each with the values of its parameters that are to be tried, in order.

    Args:
        texts: names as of `find`, with ``low:high`` for powers of two between the two; without
            any, all algorithms of the collective. Parameters that are not given are swept.

    Raises:
        UnknownName, ArgumentError: there is no such algorithm or parameter.

    >>> for family in candidates("broadcast", ["chain(segments=2:8)", "binomial"]):
    ...     print(*family)
    chain(segments=2) chain(segments=4) chain(segments=8)
    binomial
    """
    for text in texts or [each.name for each in algorithms(collective)]:
        given = [find(collective, each) for each in _expanded(text)]
        swept = [key for key in SWEEPS if key in given[0].parameters and f"{key}=" not in text]
        values = [
            dict(zip(swept, each, strict=True)) for each in product(*(SWEEPS[key] for key in swept))
        ]
        yield [
            replace(one, parameters=one.parameters | each) for one, each in product(given, values)
        ]


def _expanded(text: str) -> Iterator[str]:
    """Yield a text for each of the values that its first ``low:high`` stands for."""
    found = re.search(r"(\d+):(\d+)", text)
    if not found:
        yield text
        return
    value, high = map(int, found.groups())
    if not 0 < value <= high:
        raise ArgumentError(f"{found[0]!r} is no range: give low:high, as segments=1:64")
    while value <= high:
        yield from _expanded(text[: found.start()] + str(value) + text[found.end() :])
        value *= 2


def curve(algorithm: Algorithm, setting: Setting, sizes: Iterable[float]) -> Curve:
    """Price an algorithm at some sizes, and between them until straight lines are near enough.

    Raises:
        Unsupported: it cannot serve so many ranks, or takes too long.
    """
    began, topology = time.monotonic(), setting.topology
    program = compiled(algorithm, topology.size, setting.root, topology.groups, setting.patience)
    closed = not setting.events and holds(program, setting.model, topology)

    def priced(nbytes: float) -> float:
        if closed:
            return lockstep(program, nbytes, setting.model)
        return simulate(program, nbytes, setting.model, topology, setting.patience)

    points = {nbytes: priced(nbytes) for nbytes in sorted(set(sizes))}
    smooth = _refine(points, priced, lambda: time.monotonic() - began < setting.patience)
    how = "closed form" if closed else "events"
    placed = tuple(sorted(points.items()))
    return Curve(algorithm, program.rounds, program.sent, how, placed, smooth)


def _refine(
    points: dict[float, float], priced: Callable[[float], float], in_time: Callable[[], bool]
) -> bool:
    """Price sizes in the middle until none is off the line; return whether time sufficed."""
    gaps = [(*pair, 0) for pair in pairwise(sorted(points))]
    while gaps:
        if not in_time():
            return False
        low, high, depth = gaps.pop()
        middle = sqrt(max(1.0, low) * high)
        guess = points[low] + (points[high] - points[low]) * (middle - low) / (high - low)
        points[middle] = priced(middle)
        if abs(guess / points[middle] - 1) > _TOLERANCE and depth < _DEPTH:
            gaps += [(low, middle, depth + 1), (middle, high, depth + 1)]
    return True


@dataclass
class Ranking:
    """All curves of a setting, and what has none."""

    setting: Setting
    families: list[list[Curve]] = field(default_factory=list)
    unpriced: list[Unpriced] = field(default_factory=list)

    @property
    def curves(self) -> list[Curve]:
        """The curves of all families."""
        return [each for family in self.families for each in family]

    def at(self, nbytes: float) -> list[Curve]:
        """Return the best of each family at a size, cheapest first."""

        def seconds(curve: Curve) -> float:
            return curve.seconds(nbytes)

        return sorted((min(each, key=seconds) for each in self.families if each), key=seconds)

    def ranges(self, low: float, high: float) -> list[Range]:
        """Return which algorithm is the cheapest from which size to which."""
        steps = ceil(_STEPS * log2(high / low))
        grid = [low * (high / low) ** (step / steps) for step in range(steps + 1)]
        winner, found = self._cheapest(low), []
        for before, after in pairwise(grid):
            other = self._cheapest(after, winner)
            if other is not winner:
                change = _crossing(winner, other, before, after)
                found.append(Range(low, change, winner.algorithm))
                winner, low = other, change
        return [*found, Range(low, high, winner.algorithm)]

    def _cheapest(self, nbytes: float, incumbent: Curve | None = None) -> Curve:
        """Return the cheapest curve; of equals the incumbent."""
        best = min(self.curves, key=lambda curve: curve.seconds(nbytes))
        margin = best.seconds(nbytes) * (1 + _EQUAL)
        return incumbent if incumbent and incumbent.seconds(nbytes) <= margin else best


def _crossing(one: Curve, other: Curve, low: float, high: float) -> float:
    """Return from where on the other curve is below, by bisection."""
    for _ in range(30):
        middle = sqrt(low * high)
        ahead = other.seconds(middle) < one.seconds(middle)
        low, high = (low, middle) if ahead else (middle, high)
    return high


def rank(setting: Setting, chosen: Iterable[Family], sizes: Sequence[float]) -> Ranking:
    """Price algorithms at these sizes and between them.

    The first value of a family's parameters that has no price, or is the best of the family at
    none of the sizes, is the last one that is tried.

    >>> from mpicoll.costs import Hockney, Switch
    >>> setting = Setting("allreduce", Hockney(1e-6, 1e-9), Switch(8))
    >>> names = ["ring", "recursive_doubling", "rabenseifner"]
    >>> ranked = rank(setting, candidates("allreduce", names), [8, 1 << 30])
    >>> [(round(each.high), str(each.algorithm)) for each in ranked.ranges(8, 1 << 30)]
    [(2400, 'recursive_doubling'), (1073741824, 'rabenseifner')]
    """
    found = Ranking(setting)
    for family in chosen:
        curves: list[Curve] = []
        for each in family:
            try:
                curves.append(curve(each, setting, sizes))
            except CollectiveError as reason:
                found.unpriced.append(Unpriced(each, str(reason)))
                break
            if not any(_is_best(curves, size) for size in sizes):
                break
        found.families.append(curves)
    return found


def _is_best(curves: Sequence[Curve], nbytes: float) -> bool:
    """Whether the last of these is the cheapest at a size."""
    return min(curves, key=lambda curve: curve.seconds(nbytes)) is curves[-1]
