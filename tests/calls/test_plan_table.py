"""The plan table: the calls that it serves, compares among ranks, forgets and leaves to Python."""

from __future__ import annotations

import gc
import sys
from array import array
from typing import Any

import numpy as np
import pytest
from plan_tables import SoleRank, call_of
from program_rows import address, program

from mpicoll.engine import extension
from mpicoll.memory.numpy_arrays import NumpyArrays


def test_a_known_call_runs_on_new_arrays() -> None:
    rank, x = SoleRank(), np.arange(5.0)
    assert not rank.serves(x)
    copying = rank.add(x, nbytes=x.nbytes)
    for turn in range(3):
        fresh = np.arange(5.0) + turn
        np.testing.assert_array_equal(rank.table(*call_of(fresh)), fresh)
    assert len(rank.python_calls) == 1 and rank.numbers[0] == 3
    rank.table.forget(program([]))
    assert rank.serves(x)
    rank.table.forget(copying)
    assert not rank.serves(x)


def test_a_group_that_has_ended_is_left_to_python() -> None:
    rank, x = SoleRank(), np.arange(5.0)
    rank.add(x)
    rank.numbers[1] = 1
    assert not rank.serves(x) and rank.numbers[0] == 0


def test_python_tells_the_others_that_there_is_no_memory() -> None:
    def refuse() -> None:
        raise MemoryError

    rank, x = SoleRank(), np.arange(5.0)
    rank.table.add(call_of(x), program([]), 7, None, 0, True, refuse)
    assert not rank.serves(x) and rank.numbers[0] == 0


def test_an_interrupt_is_not_taken_for_want_of_memory() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    rank, x = SoleRank(), np.arange(5.0)
    rank.table.add(call_of(x), program([]), 7, None, 0, True, interrupted)
    with pytest.raises(KeyboardInterrupt):
        rank.table(*call_of(x))
    assert not rank.python_calls and rank.numbers[0] == 0


class FirstOfTwo:
    """The plan table of the first of two ranks, and what the other rank publishes.

    Attributes:
        waits: the ranks and numbers for which it had to wait.
        python_calls: the calls that the table has left to Python.
    """

    def __init__(self, remote_digest: int = 7) -> None:
        self.lines, self.numbers = [np.zeros(16, np.int64) for _ in range(2)], array("q", [0, 0, 0])
        self.waits: list[tuple[int, int]] = []
        self.python_calls: list[tuple[Any, ...]] = []
        self.remote_digest = remote_digest
        self.table = extension._compiled.PlanTable(
            *NumpyArrays().layout(), self.numbers, self.call_python, None, stride=8,
            lines=[address(line) for line in self.lines], wait=self._wait,
        )  # fmt: skip

    def call_python(self, *arguments: Any) -> str:
        self.python_calls.append(arguments)
        return "slow"

    def _wait(self, rank: int, number: int, name: str) -> None:
        """Let the other rank publish its digest."""
        self.waits.append((rank, number))
        self.lines[1][number % 2 * 8 + 2] = self.remote_digest
        self.lines[1][number % 2 * 8] = number


@pytest.mark.parametrize("kind", ["program", "function"])
@pytest.mark.parametrize("other", [7, 8])
def test_the_ranks_compare_their_calls_whatever_serves_them(kind: str, other: int) -> None:
    rank, x = FirstOfTwo(other), np.arange(5.0)
    call = call_of(x, x)
    if kind == "program":
        rank.table.add(call, program([]), 7, None, 0, True, None)
    else:
        rank.table.add(call, lambda x, out: out, 7, None, 0)
    for number in (1, 2):
        result = rank.table(*call)
        assert rank.numbers[0] == number and rank.waits[-1] == (1, number)
        if other == 7:
            assert result is x and not rank.python_calls
        else:
            assert result == "slow" and rank.python_calls[-1] == (*call, True)


def test_a_function_that_fails_is_given_up() -> None:
    failures, x, rank = list[tuple[Any, str]](), np.zeros(5), SoleRank()

    def give_up(plan: Any, error: BaseException) -> None:
        failures.append((plan, str(error)))

    def fail(x: Any, out: Any) -> None:
        raise ValueError("broken")

    table = extension._compiled.PlanTable(
        *NumpyArrays().layout(), rank.numbers, rank.call_python, give_up, lines=(),
        agree=lambda digest, name: True,
    )  # fmt: skip
    table.add(call_of(x, x), fail, 9, fail, 0)
    with pytest.raises(ValueError, match="broken"):
        table(*call_of(x, x))
    assert failures == [(fail, "broken")] and not rank.python_calls


def test_the_oldest_give_way() -> None:
    rank, arrays = SoleRank(), [np.zeros(count) for count in range(2000)]
    for array_of_zeros in arrays:
        rank.add(array_of_zeros)
    hits = sum(map(rank.serves, arrays))
    assert 100 < hits <= 512


@pytest.mark.parametrize("outputs", [False, True], ids=["new", "given"])
def test_calls_leak_no_references(outputs: bool) -> None:
    rank, x, out = SoleRank(), np.ones(5), np.ones(5) if outputs else None
    rank.add(x, out, nbytes=x.nbytes)
    call = call_of(x, out)
    for _ in range(100):
        rank.table(*call)
    gc.collect()
    before = (
        [sys.getrefcount(argument) for argument in call if argument is not None],
        sys.getallocatedblocks(),
    )
    for _ in range(100_000):
        rank.table(*call)
    after = (
        [sys.getrefcount(argument) for argument in call if argument is not None],
        sys.getallocatedblocks(),
    )
    assert after[0] == before[0] and after[1] - before[1] < 100


def test_what_is_added_and_forgotten_leaks_no_references() -> None:
    rank, x, counts = SoleRank(), np.ones(5), (5, int("7" * 3))
    before = sys.getrefcount(counts)
    for _ in range(1000):
        copying = rank.add(x, counts=counts)
        rank.add(x, counts=counts)
        rank.table.forget(copying)
    assert sys.getrefcount(counts) <= before + 1


def test_a_function_serves_known_calls() -> None:
    rank, x, out = SoleRank(), np.ones(5), np.ones(5)
    operands: list[tuple[Any, Any]] = []

    def function(x: Any, out: Any) -> int:
        operands.append((x, out))
        return 3

    rank.table.add(call_of(x, out), function, 7, function, 0)
    rank.table.add(call_of([1.0]), function, 7, function, 0)
    assert rank.table(*call_of(x, out)) == 3
    assert operands == [(x, out)] and operands[0][0] is x
    assert not rank.serves(x) and not rank.serves(np.ones(6), out)
    rank.table.forget(function)
    assert rank.table(*call_of(x, out)) == "slow"


def test_functions_that_are_added_and_forgotten_leak_no_references() -> None:
    rank, x, name = SoleRank(), np.ones(5), "".join(["all", "reduce"])

    def function(x: Any, out: Any) -> None: ...

    before = sys.getrefcount(name), sys.getrefcount(function)
    for _ in range(1000):
        rank.table.add(call_of(x, name=name), function, 7, function, 0)
        rank.table.add(call_of(x, name=name), function, 7, function, 0)
        rank.table(*call_of(x, name=name))
        rank.table.forget(function)
    assert (sys.getrefcount(name), sys.getrefcount(function)) == before
