"""The sizes at which one algorithm overtakes another: as measured, and as the cost model has it.

The model is Hockney's, with the alpha and beta that pairs of ranks were measured to have in the
same environment, over the transport that ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from mpicoll.algorithms.registry import find
from mpicoll.costs import Network, price
from mpicoll.errors import ArgumentError, CollectiveError
from mpicoll.records.lines import FitRecord, LaunchRecord, Record
from mpicoll.records.reading import only
from mpicoll.study.cells import Cell, Name, Panel, Study, compared
from mpicoll.study.questions import QUESTIONS
from mpicoll.text.sizes import bytes_text, rounded_size_text

_MOST_RANKS = 64
_STEPS = 8
"""Sizes between two powers of two at which the model is asked."""


class Measured(NamedTuple):
    """Sizes with a verdict: at which `first` is faster, and at which it is slower."""

    faster: list[int]
    slower: list[int]

    @property
    def crossing(self) -> tuple[int, int] | None:
        """The sizes between which the faster one changes, None where it does so not once."""
        verdicts = sorted(
            [(size, True) for size in self.faster] + [(size, False) for size in self.slower]
        )
        changes = [(a, b) for (a, was), (b, is_) in pairwise(verdicts) if was != is_]
        return changes[0] if len(changes) == 1 else None


class Crossings:
    """Crossings of the pairs of algorithms of the classical questions.

    Args:
        records: those of a study; its fits are those of pairs of ranks.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        known = list(records)
        where = {each.run: each.environment for each in only(LaunchRecord, known)}
        self.fits = [(where.get(each.run.id, ""), each) for each in only(FitRecord, known)]

    def sentences(self, study: Study) -> Iterator[tuple[Panel, str]]:
        """Yield the sentence of each pair that crosses, measured or by the model."""
        for panel in study.panels():
            for environment in study.environments():
                for question in QUESTIONS:
                    for first, second in question.pairs.get(panel.collective, ()):
                        text = self._sentence(study, panel, environment, first, second)
                        if text:
                            yield panel, text

    def _sentence(
        self, study: Study, panel: Panel, environment: str, first: str, second: str
    ) -> str | None:
        names = Name(environment, "mpi4py", first), Name(environment, "mpi4py", second)
        cells = [
            cell for cell in study.of(panel) if all(name in cell.contestants for name in names)
        ]
        measured = _measured(cells, *names)
        if not (measured.faster or measured.slower):
            return None
        transport = _transport(cells, names[0])
        network = self._network(environment, transport, panel)
        sizes = [cell.size for cell in cells]
        model = _model(panel, network, first, second, sizes) if network else None
        where = f"{panel}" + (f" in {environment}" if environment else "")
        if measured.crossing is None and model is None:
            return None
        if measured.crossing is not None:
            low, high = measured.crossing
            winner = first if high in measured.faster else second
            loser = second if winner == first else first
            said = f"{winner} overtakes {loser} between {bytes_text(low)} and {bytes_text(high)}"
        else:
            always = first if not measured.slower else second if not measured.faster else None
            decided = sorted(measured.faster + measured.slower)
            said = (
                f"no single crossing of {first} and {second} was measured from "
                f"{bytes_text(sizes[0])} to {bytes_text(sizes[-1])}"
                + (
                    f": {always} is faster at {len(decided)} of {len(sizes)} sizes"
                    if always
                    else ""
                )
            )
        if network is None:
            return f"{where}: {said}; there is no alpha and beta of {transport} to predict it."
        by_model = f"at {rounded_size_text(model)}" if model else "nowhere in between"
        return f"{where}: {said}; the cost model has it {by_model} (alpha and beta of {transport})."

    def _network(self, environment: str, transport: str, panel: Panel) -> Network | None:
        rows = [
            each for where, each in self.fits
            if where == environment and each.transport == transport and each.backend == "mpi4py"
            and each.device == panel.device and (panel.nodes == 1 or each.nodes > 1)
        ]  # fmt: skip
        try:
            return Network.fitted(rows, "mpi4py") if rows else None
        except ArgumentError:
            return None


def _measured(cells: Sequence[Cell], one: Name, other: Name) -> Measured:
    found = Measured([], [])
    for cell in cells:
        ratio = compared(cell.contestants[one], cell.contestants[other])
        if ratio is not None and ratio.verdict != "tie" and not ratio.has_few:
            (found.faster if ratio.verdict == "faster" else found.slower).append(cell.size)
    return found


def _transport(cells: Sequence[Cell], name: Name) -> str:
    """Return the transport that ran most often."""
    ran = [text.partition("@")[2] for cell in cells for text in cell.contestants[name].ran.values()]
    return max(dict.fromkeys(ran), key=ran.count) or "point-to-point"


def _model(
    panel: Panel, network: Network, first: str, second: str, sizes: Sequence[int]
) -> float | None:
    """Return the bytes at which the prices cross between the smallest and the largest size."""
    if panel.ranks > _MOST_RANKS or panel.nodes > 1:
        return None
    low, high = max(1, sizes[0]), sizes[-1]
    grid = [low]
    while grid[-1] < high:
        grid.append(max(grid[-1] + 1, int(grid[-1] * 2 ** (1 / _STEPS))))
    try:
        signs = [(size, _difference(panel, network, first, second)(size)) for size in grid]
    except CollectiveError:
        return None
    known = [(size, value) for size, value in signs if value]
    return next((size for (_, was), (size, is_) in pairwise(known) if (was > 0) != (is_ > 0)), None)


def _difference(panel: Panel, network: Network, first: str, second: str) -> Callable[[int], float]:
    one, other = (find(panel.collective, each) for each in (first, second))

    def seconds(size: int) -> float:
        own, theirs = (
            price(each, panel.ranks, size, network, root=panel.root or 0) for each in (one, other)
        )
        # Prices that differ by rounding do not cross.
        return 0.0 if abs(own - theirs) < 1e-9 * theirs else own - theirs

    return seconds
