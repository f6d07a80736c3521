"""The whole catalogue: every algorithm proved for every size, its figures against closed forms."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from forms import FORMS

from mpicoll.algorithms import Algorithm, algorithms, find
from mpicoll.contract import COLLECTIVES
from mpicoll.errors import Unsupported
from mpicoll.simulator import Trace, prove

SIZES = range(1, 65)
CATALOGUE = [each for name in COLLECTIVES for each in algorithms(name)]


def label(value: object) -> str:
    return f"{value.collective.name}-{value}" if isinstance(value, Algorithm) else str(value)


def traces(each: Algorithm) -> Iterator[tuple[int, Trace]]:
    """Prove an algorithm for every size that it serves; others it must refuse."""
    for size in SIZES:
        if each.needs.holds(size):
            yield size, prove(each, size)
        else:
            with pytest.raises(Unsupported):
                prove(each, size)


@pytest.mark.parametrize("each", CATALOGUE, ids=label)
def test_every_algorithm_is_right_for_every_size(each: Algorithm) -> None:
    """Proved, and its figures are the closed forms; one rank does nothing."""
    form = FORMS[each.collective.name, each.name]
    short = each.collective.name == "exscan"
    wrong = []
    for size, trace in traces(each):
        assert (trace.ports + 1) ** trace.rounds >= size - short, "beats the latency bound"
        found = trace.rounds, trace.sent, trace.reduced
        wanted = form(size) if size > 1 else (0, 0, 0)
        if any(b is not None and a != pytest.approx(b) for a, b in zip(found, wanted, strict=True)):
            wrong.append((size, found, wanted))
    assert not wrong


def test_every_closed_form_is_of_an_algorithm() -> None:
    assert {*FORMS} == {(each.collective.name, each.name) for each in CATALOGUE}


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("recursive_doubling", (8, 7, 7)),
        ("cyclic", (7, 7, 10)),
        ("rabenseifner", (15, 3.47, 1.48)),
        ("binary_blocks", (26, 2.0, 1.0)),
        ("circulant", (14, 1.98, 0.99)),
        ("swing", (14, 1.98, 0.99)),
    ],
)
def test_allreduce_of_a_hundred_ranks(name: str, figures: tuple[float, ...]) -> None:
    """The figures that the catalogue states, to its precision.

    It has 13 m of folds for the cyclic one, which folds into its second value to the end; ours
    drops that value when no later round needs it.
    """
    trace = prove(find("allreduce", name), 100)
    assert (trace.rounds, round(trace.sent, 2), round(trace.reduced, 2)) == figures
    assert trace.ports == 1


@pytest.mark.parametrize("name", ["rabenseifner", "circulant", "swing"])
def test_allreduce_of_sixty_four_ranks(name: str) -> None:
    trace = prove(find("allreduce", name), 64)
    assert (trace.rounds, round(trace.sent, 2), round(trace.reduced, 2)) == (12, 1.97, 0.98)
