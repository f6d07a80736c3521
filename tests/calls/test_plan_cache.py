"""Cached plans of methods: what one serves, and what it does not."""

from __future__ import annotations

from functools import wraps
from typing import Any

import numpy as np
import pytest
from run_collective import compare, device

from mpicoll import Collectives
from mpicoll.calls import plan_cache

pytestmark = pytest.mark.ranks(2, 3)


def cached(c: Collectives) -> int:
    return len(c.plans.plans)


def without_plans(test: Any) -> Any:
    """Run a test on a group that has no plans yet: the tests of a launch share `c`."""

    @wraps(test)
    def run(c: Collectives, **arguments: Any) -> None:
        with c.split(0) as group:
            test(group, **arguments)

    return run


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"dtype": "int64"}, {"dtype": "float64"}),
        ({"shape": (6,)}, {"shape": (4,)}),
        ({"shape": (6,)}, {"shape": (2, 3)}),
        ({"op": "sum"}, {"op": "max"}),
        ({"algorithm": "ring"}, {"algorithm": "one_shot"}),
    ],
    ids=lambda given: " ".join(map(str, given.values())),
)
@without_plans
def test_calls_that_differ_have_plans_of_their_own(
    c: Collectives, first: dict[str, Any], second: dict[str, Any]
) -> None:
    for given in (first, second, first, second):
        options = {"dtype": "int64", "shape": (6,), "op": "sum", "algorithm": "ring", **given}
        shape, dtype = options.pop("shape"), options.pop("dtype")
        got = c.allreduce(device(c, np.full(shape, c.rank + 1), dtype), **options)
        most = c.size if options["op"] == "max" else c.size * (c.size + 1) // 2
        compare(c, got, np.full(shape, most), dtype)
    assert cached(c) == 2


@without_plans
def test_calls_that_differ_in_root_have_plans_of_their_own(c: Collectives) -> None:
    for root in (0, 1, 0, 1):
        got = c.broadcast(device(c, np.full(3, c.rank), "int64"), root)
        compare(c, got, np.full(3, root), "int64")
    assert cached(c) == 2


def test_results_are_arrays_of_their_own(c: Collectives) -> None:
    """A later call does not write into what an earlier one returned."""
    first = c.allreduce(device(c, np.ones(3), "int64"))
    c.allreduce(device(c, np.full(3, 5), "int64"))
    compare(c, first, np.full(3, c.size), "int64")


@without_plans
def test_the_oldest_plan_goes(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "MOST_PLANS", 2)
    for count in (1, 2, 1, 3, 1, 2):
        compare(c, c.allreduce(device(c, np.ones(count), "int64")), np.full(count, c.size), "int64")
        assert cached(c) <= 2


def test_counts_that_change_in_place_are_read_again(c: Collectives) -> None:
    """A tuple of lists is the same object with other numbers."""
    counts = tuple([1] * c.size for _ in range(c.size))
    for rows in (1, 2):
        for each in counts:
            each[:] = [rows] * c.size
        x = device(c, np.full(rows * c.size, c.rank), "int64")
        got = c.alltoall(x, counts=counts)
        compare(c, got, np.repeat(np.arange(c.size), rows), "int64")


@without_plans
def test_a_rank_without_an_array_costs_other_calls_nothing(c: Collectives) -> None:
    """It may need the others' arguments; what they call besides is still known."""
    x = device(c, np.ones(3), "int64")
    for _ in range(2):
        c.allreduce(x)
        compare(c, c.broadcast(x if c.rank == 0 else None), np.ones(3), "int64")
    kept = [each.plan for each in c.plans.plans.values()]
    assert len(kept) == 2
