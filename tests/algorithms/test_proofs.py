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

ROOTED = [each for each in CATALOGUE if each.collective.rooted]
INTEGERS = [
    (each, name)
    for each in CATALOGUE
    for name, value in each.parameters.items()
    if isinstance(value, int)
]
"""Every algorithm with each of its parameters that is a number."""
ORDERED_FOR_EVERY_ROOT = {"naive", "in_order_binary", "rabenseifner"}
EDGES = (24, 27, 31, 32, 33)
"""Sizes beyond 17 where one more round, digit or level begins, and of many and of few factors."""
LARGE = (40, 47, 48, 49, 54, 60, 63, 64)


def beyond(each: Algorithm) -> list[int]:
    """Return sizes from 18 to 64: the edges, and of large ones one by turns.

    Of 863 faults planted in the generators all that show up to 64 show up to 17.
    """
    return [*EDGES, LARGE[CATALOGUE.index(each) % len(LARGE)]]


def serves(each: Algorithm, size: int) -> bool:
    """Whether an algorithm serves a size; if not, it must say so."""
    if each.needs.holds(size):
        return True
    with pytest.raises(Unsupported):
        prove(each, size)
    return False


@pytest.mark.parametrize(
    "sizes",
    [lambda each: range(1, 18), pytest.param(beyond, marks=pytest.mark.exhaustive)],
    ids=["1-17", "beyond"],
)
@pytest.mark.parametrize("each", CATALOGUE, ids=label)
def test_every_size_is_right(each: Algorithm, sizes: Callable[[Algorithm], Iterable[int]]) -> None:
    """Proved, and its figures are the closed forms; one rank does nothing, not even by itself."""
    form = FORMS.get((each.collective.name, each.name), lambda size: (None, None, None))
    short = each.collective.name == "exscan"
    wrong = []
    assert each.rounds(0, 1) == []
    for size in filter(lambda size: serves(each, size), sizes(each)):
        trace = prove(each, size)
        assert (trace.ports + 1) ** trace.rounds >= size - short, "beats the latency bound"
        found = trace.rounds, trace.sent, trace.reduced
        wanted = form(size) if size > 1 else (0, 0, 0)
        if any(b is not None and a != pytest.approx(b) for a, b in zip(found, wanted, strict=True)):
            wrong.append((size, found, wanted))
    assert not wrong


def test_every_closed_form_is_of_an_algorithm() -> None:
    assert {*FORMS} <= {(each.collective.name, each.name) for each in CATALOGUE}


def with_value(each: Algorithm, name: str, value: int) -> Algorithm | None:
    """Return an algorithm with a value of a parameter; None where the value is refused."""
    try:
        found = find(each.collective.name, f"{each.name}({name}={value})")
        if found.needs.holds(8):
            found.rounds(0, 8)
        return found
    except ArgumentError:
        return None


@pytest.mark.exhaustive
@pytest.mark.parametrize("value", [1, 2, 3, 5, 13])
@pytest.mark.parametrize(("each", "name"), INTEGERS, ids=label)
def test_every_parameter_is_right(each: Algorithm, name: str, value: int) -> None:
    found = with_value(each, name, value)
    if found is None:
        pytest.skip(f"refuses {name}={value}")
    for size in (1, 2, 3, 4, 5, 8, 9, 16, 17, 27):
        if serves(found, size):
            prove(found, size)


@pytest.mark.parametrize(("each", "name"), INTEGERS, ids=label)
def test_most_values_of_a_parameter_are_taken(each: Algorithm, name: str) -> None:
    taken = [value for value in (2, 4, 8, 16) if with_value(each, name, value)]
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


@pytest.mark.parametrize("each", ROOTED, ids=label)
def test_every_root_is_right(each: Algorithm) -> None:
    for size in filter(lambda size: serves(each, size), range(2, 10)):
        proved = [prove(each, size, root) for root in range(size)]
        if each.collective.reduces and each.name in ORDERED_FOR_EVERY_ROOT:
            assert all(trace.ordered for trace in proved)


@given(data=st.data())
@settings(max_examples=settings().max_examples * 2)
def test_uneven_and_empty_blocks_are_right(data: st.DataObject) -> None:
    each = data.draw(st.sampled_from(CATALOGUE))
    size = data.draw(st.integers(1, 12).filter(each.needs.holds))
    root = data.draw(st.integers(0, size - 1)) if each.collective.rooted else 0
    cut = range(each.blocks(size))
    names = list(product(cut, cut)) if each.collective.unit == "pairs" else list(cut)
    counts = st.lists(st.sampled_from([0, 0, 1, 2, 7]), min_size=len(names), max_size=len(names))
    prove(each, size, root, sizes=dict(zip(names, data.draw(counts), strict=True)))


@pytest.mark.parametrize("each", CATALOGUE, ids=label)
def test_nothing_but_empty_blocks_sends_nothing(each) -> None:
    size = next(size for size in (4, 3) if each.needs.holds(size))
    cut = range(each.blocks(size))
    empty = dict.fromkeys([*cut, *product(cut, cut)], 0)
    trace = prove(each, size, sizes=empty)
    assert trace.sent == 0
    assert trace.messages == 0 or each.collective.name == "barrier"
