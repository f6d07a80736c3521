"""The sizes at which one algorithm overtakes another: measured, and by the cost model.

The model is Hockney's. Its alpha and beta come from pairs of ranks in the same environment, over
the transport that ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from mpicoll.algorithms.registry import find
from mpicoll.costs import Network, price
from mpicoll.costs.models import DEFAULT
from mpicoll.errors import ArgumentError, CollectiveError
from mpicoll.records.lines import FitRecord, Record
from mpicoll.records.reading import only
from mpicoll.study.cells import Cell, Name, Panel, compare_contestants
from mpicoll.study.questions import QUESTIONS
from mpicoll.study.reading import Study
from mpicoll.study.sentences import join_names
from mpicoll.text.numbers import number
from mpicoll.text.sizes import bytes_text, rounded_size_text

_MOST_RANKS = 64
_STEPS = 8
"""Number of sizes between two powers of two at which the model is evaluated."""


class SizeVerdicts(NamedTuple):
    """The sizes with a verdict: those where `first` is faster, and those where it is slower."""

    faster: list[int]
    slower: list[int]

    @property
    def crossing(self) -> tuple[int, int] | None:
        """The sizes between which the faster one changes, None unless it changes exactly once."""
        verdicts = sorted(
            [(size, True) for size in self.faster] + [(size, False) for size in self.slower]
        )
        changes = [(a, b) for (a, was), (b, is_) in pairwise(verdicts) if was != is_]
        return changes[0] if len(changes) == 1 else None


class Crossings:
    """Crossings of the pairs of algorithms of the classical questions.

    Args:
        records: of a study, with fits of pairs of ranks.
        environments: names by the id of a run.
    """

    def __init__(self, records: Iterable[Record], environments: Mapping[str, str]) -> None:
        fits = only(FitRecord, records)
        self.fits = [(environments.get(fit.run.id, ""), fit) for fit in fits]

    def sentences(self, study: Study) -> Iterator[tuple[Panel, str]]:
        """Yield the sentence of each pair that crosses, measured or by the model.

        Environments with the same text share a sentence.
        """
        for panel in study.panels():
            for question in QUESTIONS:
                for names in question.pairs.get(panel.collective, ()):
                    shared: dict[str, list[str]] = {}
                    for environment in study.environments():
                        if text := self._sentence(study, panel, environment, *names):
                            shared.setdefault(text, []).append(environment)
                    for text, environments in shared.items():
                        place = f", in {join_names(environments)}" if any(environments) else ""
                        yield panel, f"{panel}{place}: {text}"

    def _sentence(
        self, study: Study, panel: Panel, environment: str, first: str, second: str
    ) -> str | None:
        names = Name(environment, "mpi4py", first), Name(environment, "mpi4py", second)
        cells = [
            cell for cell in study.of(panel) if all(name in cell.contestants for name in names)
        ]
        measured = _size_verdicts(cells, *names)
        if not (measured.faster or measured.slower):
            return None
        transport = _transport(cells, names[0])
        is_priced = not any(name.startswith("native") for name in (first, second))
        network = self._network(environment, transport, panel) if is_priced else None
        sizes = [cell.size for cell in cells]
        model = _model(panel, network, first, second, sizes) if network else None
        if measured.crossing is None and (model is None or model.crossing is None):
            return None
        text = _as_measured(measured, sizes, *(name.with_owner for name in names))
        if not is_priced:
            return f"{text}; the cost model does not know what the library's call runs."
        if model is None:
            return f"{text}; there is no alpha and beta of {transport} to predict it."
        by_model = "nowhere, as it prices them alike"
        if model.crossing:
            by_model = f"at {rounded_size_text(model.crossing)}"
        elif model.ahead:
            by_model = f"nowhere, with our {model.ahead} ahead throughout"
        return (
            f"{text}; the cost model has it {by_model} (alpha and beta of {transport}, "
            f"folds at {number(1e9 * DEFAULT.gamma)} ns a byte)."
        )

    def _network(self, environment: str, transport: str, panel: Panel) -> Network | None:
        rows: dict[str, list[FitRecord]] = {}
        for fit_environment, fit in self.fits:
            is_meant = fit.transport == transport and fit.backend == "mpi4py"
            if is_meant and fit.device == panel.device and (panel.nodes == 1 or fit.nodes > 1):
                rows.setdefault(fit_environment, []).append(fit)
        fits = rows.get(environment, [])
        if not fits and rows and transport != "point-to-point":
            # The transports of this project do not depend on the MPI library.
            fits = next(iter(rows.values()))
        try:
            return Network.fitted(fits, "mpi4py", DEFAULT.gamma) if fits else None
        except ArgumentError:
            return None


def _as_measured(measured: SizeVerdicts, sizes: Sequence[int], first: str, second: str) -> str:
    """Return in words the sizes between which the faster algorithm changes."""
    if measured.crossing is not None:
        low, high = measured.crossing
        winner, loser = (first, second) if high in measured.faster else (second, first)
        return f"{winner} overtakes {loser} between {bytes_text(low)} and {bytes_text(high)}"
    text = (
        f"no single crossing of {first} and {second} was measured from "
        f"{bytes_text(sizes[0])} to {bytes_text(sizes[-1])}"
    )
    if measured.faster and measured.slower:
        return text
    always = first if measured.faster else second
    decided = len(measured.faster) + len(measured.slower)
    return f"{text}: {always} is faster at {decided} of {len(sizes)} sizes"


def _size_verdicts(cells: Sequence[Cell], first: Name, second: Name) -> SizeVerdicts:
    measured = SizeVerdicts([], [])
    for cell in cells:
        ratio = compare_contestants(cell.contestants[first], cell.contestants[second])
        if ratio.is_sure:
            (measured.faster if ratio.decision == "faster" else measured.slower).append(cell.size)
    return measured


def _transport(cells: Sequence[Cell], name: Name) -> str:
    """Return the transport that ran most often."""
    ran = [text.partition("@")[2] for cell in cells for text in cell.contestants[name].ran.values()]
    return max(dict.fromkeys(ran), key=ran.count) or "point-to-point"


class _ModelCrossing(NamedTuple):
    """The bytes at which prices cross, or else the algorithm with the lower price everywhere."""

    crossing: float | None
    ahead: str | None


def _model(
    panel: Panel, network: Network, first: str, second: str, sizes: Sequence[int]
) -> _ModelCrossing | None:
    """Return the crossing of the prices between the smallest and the largest size."""
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
    differences = [(size, value) for size, value in signs if value]
    crossings = (size for (_, was), (size, is_) in pairwise(differences) if (was > 0) != (is_ > 0))
    ahead = (first if differences[0][1] < 0 else second) if differences else None
    return _ModelCrossing(next(crossings, None), ahead)


def _difference(panel: Panel, network: Network, first: str, second: str) -> Callable[[int], float]:
    first_algorithm, second_algorithm = (find(panel.collective, name) for name in (first, second))

    def seconds(size: int) -> float:
        first_price, second_price = (
            price(algorithm, panel.ranks, size, network, root=panel.root or 0)
            for algorithm in (first_algorithm, second_algorithm)
        )
        # Prices that differ by rounding do not cross.
        return (
            0.0
            if abs(first_price - second_price) < 1e-9 * second_price
            else first_price - second_price
        )

    return seconds
