"""Calls of methods that are found by their arguments, without the checks of a first call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from run_collective import compare, device

from mpicoll import Collectives, user_op

pytestmark = pytest.mark.ranks(2, 3)


@contextmanager
def checked(c: Collectives) -> Iterator[list[tuple[Any, ...]]]:
    """The calls that are left to the checks from here on."""
    slow, found = c.plans.known.slow, []

    def note(*given: Any) -> Any:
        found.append(given)
        return slow(*given)

    c.plans.known.slow = note
    yield found
    c.plans.known.slow = slow


@pytest.mark.parametrize("length", [60, 1 << 17])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("algorithm", ["auto", "native", "ring"])
def test_such_calls_are_checked_once(
    c: Collectives, algorithm: str, in_place: bool, length: int
) -> None:
    with checked(c) as calls:
        for turn in range(3):
            x = device(c, np.full(length, c.rank + turn), "int32")
            out = x if in_place else device(c, np.zeros(length), "int32")
            c.allreduce(x, out=out, algorithm=algorithm)
            compare(c, out, np.full(length, sum(range(c.size)) + c.size * turn), "int32")
    assert len(calls) == 1


def test_a_users_operator_is_known_again(c: Collectives) -> None:
    with checked(c) as calls:
        for operator in (add, add, user_op(add), user_op(add), subtract):
            found = c.allreduce(device(c, np.ones(7), "float64"), operator)
            if operator is not subtract:
                compare(c, found, np.full(7, c.size), "float64")
    assert len(calls) == 3, [each[3] for each in calls]


def add(left: Any, right: Any) -> Any:
    return left + right


def subtract(left: Any, right: Any) -> Any:
    return left - right


def test_arrays_that_share_memory_in_another_way_are_checked(c: Collectives) -> None:
    want = np.arange(c.size * 4).reshape(c.size, 4)
    whole, other = device(c, want, "int32"), device(c, np.zeros(want.shape), "int32")
    with checked(c) as calls:
        for out in (whole, whole, other, other):
            c.allgather(whole[c.rank], out=out, algorithm="native")
    assert [each[2] is whole for each in calls] == [True, False]
    compare(c, other, want, "int32")


@pytest.mark.parametrize("kind", [tuple, list])
def test_counts_that_may_change_are_checked(c: Collectives, kind: type) -> None:
    counts = kind(kind(target for target in range(c.size)) for _ in range(c.size))
    x = device(c, np.full((sum(range(c.size)), 1), c.rank), "int32")
    want = np.repeat(np.arange(c.size), c.rank).reshape(-1, 1)
    with checked(c) as calls:
        for _ in range(3):
            compare(c, c.alltoall(x, counts=counts, algorithm="native"), want, "int32")
    assert len(calls) == (1 if kind is tuple else 3)
