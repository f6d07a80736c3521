"""Ranks that are in different calls: the same clear error on all of them, and the group goes on."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from run_collective import compare, device

from mpicoll import CollectiveError, Collectives

pytestmark = pytest.mark.ranks(2, 3)


def ones(c: Collectives, count: int = 60, dtype: str = "float64") -> Any:
    return device(c, np.ones(count), dtype)


CALLS: dict[str, Callable[[Collectives], Any]] = {
    "allreduce": lambda c: c.allreduce(ones(c)),
    "another length": lambda c: c.allreduce(ones(c, 61)),
    "another dtype": lambda c: c.allreduce(ones(c, 60, "float32")),
    "another operator": lambda c: c.allreduce(ones(c), "max"),
    "a function": lambda c: c.allreduce(ones(c), add),
    "another algorithm": lambda c: c.allreduce(ones(c), algorithm="ring"),
    "in place": lambda c: in_place(c),
    "broadcast": lambda c: c.broadcast(ones(c)),
    "another root": lambda c: c.broadcast(ones(c), 1),
    "barrier": lambda c: c.barrier(),
    "plan": lambda c: c.plan("allreduce", ones(c)),
    "exchange": lambda c: c.exchange(c.rank),
    "split": lambda c: c.split(0),
    "allocate": lambda c: c.allocate(60),
    "wrong": lambda c: c.allreduce([1.0]),
    "wrong root": lambda c: c.broadcast(ones(c), 77),
    "wrong output": lambda c: c.allreduce(ones(c), out=ones(c, 3)),
}


def add(left: Any, right: Any) -> Any:
    return left + right


def in_place(c: Collectives) -> Any:
    x = ones(c)
    return c.allreduce(x, out=x)


def goes_on(c: Collectives) -> None:
    for _ in range(3):
        compare(c, c.allreduce(ones(c)), np.full(60, c.size), "float64")
        compare(c, c.broadcast(ones(c)), np.ones(60), "float64")


def differ(c: Collectives, name: str, deviating: str) -> None:
    """The last rank makes another call: all hear of the same difference, and who differs."""
    with pytest.raises(CollectiveError) as caught:
        CALLS[deviating if c.rank == c.size - 1 else name](c)
    own = re.sub(r"^rank \d+: ", "", str(caught.value))  # what a rank says of another
    assert name.startswith("wrong") or c.exchange(own) == [own] * c.size


OTHERS = ("barrier", "plan", "exchange", "split", "allocate", "wrong")
PAIRS = [("allreduce", each) for each in CALLS if each != "allreduce"]
PAIRS += [("broadcast", "another root"), *permutations(OTHERS, 2)]


@pytest.mark.parametrize(("name", "deviating"), PAIRS)
def test_ranks_in_different_calls(c: Collectives, name: str, deviating: str) -> None:
    if c.transport.shared is None or c.transport.shared.mailbox is None:
        pytest.skip("between nodes messages of different calls meet")
    differ(c, name, deviating)
    goes_on(c)
    for each in (name, deviating):  # both are known now, if they can be
        for _ in range(3):
            try:
                CALLS[each](c)
            except CollectiveError:
                assert each.startswith("wrong")
    differ(c, name, deviating)
    goes_on(c)
