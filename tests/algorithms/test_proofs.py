"""Every algorithm proved: for every size, parameter and root, for uneven and empty blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

import pytest
from catalogue import CATALOGUE, label
from forms import FORMS
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoll.algorithms.registry import Algorithm, find
from mpicoll.errors import ArgumentError, Unsupported
from mpicoll.simulator import prove

ROOTED = [algorithm for algorithm in CATALOGUE if algorithm.collective.rooted]
INTEGERS = [
    (algorithm, name)
    for algorithm in CATALOGUE
    for name, value in algorithm.parameters.items()
    if isinstance(value, int)
]
"""Every algorithm with each of its parameters that is a number."""
ORDERED_FOR_EVERY_ROOT = {"naive", "in_order_binary", "rabenseifner"}
EDGES = (24, 27, 31, 32, 33)
"""Sizes beyond 17 where one more round, digit or level begins, and of many and of few factors."""
LARGE = (40, 47, 48, 49, 54, 60, 63, 64)


def beyond(algorithm: Algorithm) -> list[int]:
    """Return two sizes from 18 to 64: an edge and a large one, by turns.

    Of 863 faults planted in the generators all that show up to 64 show up to 17.
    """
    number = CATALOGUE.index(algorithm)
    return [EDGES[number % len(EDGES)], LARGE[number % len(LARGE)]]


def serves(algorithm: Algorithm, size: int) -> bool:
    """Whether an algorithm serves a size; if not, it must say so."""
    if algorithm.needs.holds(size):
        return True
    with pytest.raises(Unsupported):
        prove(algorithm, size)
    return False


@pytest.mark.parametrize(
    "sizes",
    [lambda algorithm: range(1, 18), pytest.param(beyond, marks=pytest.mark.exhaustive)],
    ids=["1-17", "beyond"],
)
@pytest.mark.parametrize("algorithm", CATALOGUE, ids=label)
def test_every_size_is_right(
    algorithm: Algorithm, sizes: Callable[[Algorithm], Iterable[int]]
) -> None:
    """Proved, and its figures are the closed forms; one rank does nothing, not even by itself."""
    form = FORMS.get((algorithm.collective.name, algorithm.name), lambda size: (None, None, None))
    short = algorithm.collective.name == "exscan"
    wrong = []
    assert algorithm.rounds(0, 1) == []
    for size in filter(lambda size: serves(algorithm, size), sizes(algorithm)):
        trace = prove(algorithm, size)
        assert (trace.ports + 1) ** trace.rounds >= size - short, "beats the latency bound"
        figures = trace.rounds, trace.sent, trace.reduced
        wanted = form(size) if size > 1 else (0, 0, 0)
        if any(
            b is not None and a != pytest.approx(b) for a, b in zip(figures, wanted, strict=True)
        ):
            wrong.append((size, figures, wanted))
    assert not wrong


def test_every_closed_form_is_of_an_algorithm() -> None:
    assert {*FORMS} <= {(algorithm.collective.name, algorithm.name) for algorithm in CATALOGUE}


def with_value(algorithm: Algorithm, name: str, value: int) -> Algorithm | None:
    """Return an algorithm with a value of a parameter; None where the value is refused."""
    try:
        variant = find(algorithm.collective.name, f"{algorithm.name}({name}={value})")
        if variant.needs.holds(8):
            variant.rounds(0, 8)
        return variant
    except ArgumentError:
        return None


@pytest.mark.exhaustive
@pytest.mark.parametrize("value", [1, 2, 3, 5, 13])
@pytest.mark.parametrize(("algorithm", "name"), INTEGERS, ids=label)
def test_every_parameter_is_right(algorithm: Algorithm, name: str, value: int) -> None:
    variant = with_value(algorithm, name, value)
    if variant is None:
        pytest.skip(f"refuses {name}={value}")
    for size in (1, 2, 3, 4, 5, 8, 9, 16, 17):
        if serves(variant, size):
            prove(variant, size)


@pytest.mark.parametrize(("algorithm", "name"), INTEGERS, ids=label)
def test_most_values_of_a_parameter_are_taken(algorithm: Algorithm, name: str) -> None:
    taken = [value for value in (2, 4, 8, 16) if with_value(algorithm, name, value)]
    assert len(taken) >= 3


@pytest.mark.parametrize("of", ["allgather", "reduce_scatter"])
@pytest.mark.parametrize(("size", "group"), [(6, 3), (12, 4), (12, 12), (7, 1), (25, 5)])
def test_k_ring_serves_multiples_of_its_group(of: str, size: int, group: int) -> None:
    assert prove(find(of, f"k_ring(group={group})"), size).rounds == size - 1
    with pytest.raises(Unsupported, match=f"a multiple of group={group + 1} ranks, not {size}"):
        prove(find(of, f"k_ring(group={group + 1})"), size)


def test_pat_needs_an_aggregation_that_is_a_power_of_two() -> None:
    with pytest.raises(ArgumentError, match="a power of two, not 3: give 2 or 4"):
        prove(find("allgather", "pat(aggregation=3)"), 8)


@pytest.mark.parametrize("algorithm", ROOTED, ids=label)
def test_every_root_is_right(algorithm: Algorithm) -> None:
    for size in filter(lambda size: serves(algorithm, size), range(2, 10)):
        proved = [prove(algorithm, size, root) for root in range(size)]
        if algorithm.collective.reduces and algorithm.name in ORDERED_FOR_EVERY_ROOT:
            assert all(trace.ordered for trace in proved)


@given(data=st.data())
@settings(max_examples=settings().max_examples * 2)
def test_uneven_and_empty_blocks_are_right(data: st.DataObject) -> None:
    algorithm = data.draw(st.sampled_from(CATALOGUE))
    size = data.draw(st.integers(1, 12).filter(algorithm.needs.holds))
    root = data.draw(st.integers(0, size - 1)) if algorithm.collective.rooted else 0
    cut = range(algorithm.blocks(size))
    names = list(product(cut, cut)) if algorithm.collective.unit == "pairs" else list(cut)
    counts = st.lists(st.sampled_from([0, 0, 1, 2, 7]), min_size=len(names), max_size=len(names))
    prove(algorithm, size, root, sizes=dict(zip(names, data.draw(counts), strict=True)))


@pytest.mark.parametrize("algorithm", CATALOGUE, ids=label)
def test_nothing_but_empty_blocks_sends_nothing(algorithm) -> None:
    size = next(size for size in (4, 3) if algorithm.needs.holds(size))
    cut = range(algorithm.blocks(size))
    empty = dict.fromkeys([*cut, *product(cut, cut)], 0)
    trace = prove(algorithm, size, sizes=empty)
    assert trace.sent == 0
    assert trace.messages == 0 or algorithm.collective.name == "barrier"
