"""Sizes and sweeps in plain text."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mpicoll.errors import ArgumentError
from mpicoll.notation.sweep import expand
from mpicoll.text.sizes import parse_size, rounded_size_text, size_steps, size_text


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("4", 4), ("1k", 1024), ("3M", 3 << 20), ("2G", 2 << 30), ("8KiB", 8192), ("9B", 9)],
)
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "1.5M", "1T", "K", "ten"])
def test_nonsense_is_no_size(text: str) -> None:
    with pytest.raises(ArgumentError, match="not a size"):
        parse_size(text)


@given(some.integers(1, 10**6), some.integers(0, 10**6), some.floats(1.01, 10))
def test_steps_grow_within_bounds(smallest: int, more: int, factor: float) -> None:
    sizes = size_steps(smallest, smallest + more, factor, None)
    assert sizes[0] == smallest and sizes[-1] <= smallest + more
    assert all(a < b for a, b in pairwise(sizes))


@pytest.mark.parametrize(
    "arguments", [(8, 4, None, None), (4, 8, 1.0, None), (4, 8, None, 0), (0, 8, 2.0, None)]
)
def test_steps_that_do_not_grow_are_refused(arguments: Any) -> None:
    with pytest.raises(ArgumentError):
        size_steps(*arguments)


@given(some.integers(0, 60), some.integers(0, 60), some.integers(1, 9))
def test_a_range_holds_what_it_says(first: int, more: int, step: int) -> None:
    names = expand(f"chain(segments={first}:{first + more}:+{step})@cma")
    every = range(first, first + more + 1, step)
    assert names == [f"chain(segments={number})@cma" for number in every]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ring", ["ring"]),
        ("knomial(radix=2)", ["knomial(radix=2)"]),
        ("a(x=3:3)", ["a(x=3)"]),
        ("a(x=1|4|16)", ["a(x=1)", "a(x=4)", "a(x=16)"]),
        ("a(x=1|2:4|4)", ["a(x=1)", "a(x=2)", "a(x=3)", "a(x=4)"]),
        ("a(x=3:100:*5)", ["a(x=3)", "a(x=15)", "a(x=75)"]),
        ("a(x=1:2, y=b|c)", ["a(x=1,y=b)", "a(x=1,y=c)", "a(x=2,y=b)", "a(x=2,y=c)"]),
        ("a(x=b(z=1:2)|c,y=1)@d", ["a(x=b(z=1),y=1)@d", "a(x=b(z=2),y=1)@d", "a(x=c,y=1)@d"]),
        ("a(x=1:16,y=1:16)", [f"a(x={x},y={y})" for x in range(1, 17) for y in range(1, 17)]),
    ],
)  # fmt: skip
def test_sweeps_are_expanded(text: str, names: list[str]) -> None:
    assert expand(text) == names


@given(some.integers(0, 1 << 45))
def test_a_size_is_read_as_it_was_written(count: int) -> None:
    assert parse_size(size_text(count)) == count


@given(some.integers(1, 1 << 45))
def test_a_rounded_size_is_near(count: int) -> None:
    text = rounded_size_text(count)
    value = float(text.rstrip("KMG")) * parse_size("1" + text.lstrip("0123456789."))
    assert value == pytest.approx(count, rel=0.006)
