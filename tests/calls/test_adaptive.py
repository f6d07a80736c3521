"""What ``algorithm="adaptive"`` settles on: alike on all ranks, and right while it measures."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from expect import expected, input_shape, values
from layouts import Layout
from run_collective import compare, device

from mpicoll import ArgumentError, Collectives
from mpicoll.algorithms.registry import find
from mpicoll.calls import adaptive
from mpicoll.calls.adaptive import PASSES, PASSES_OF_SMALL, Trials
from mpicoll.errors import Disagreement
from mpicoll.notation.contract import COLLECTIVES

CALLS = 12 * PASSES_OF_SMALL


def settle(times: list[dict[str, int]], passes: int = PASSES) -> list[str]:
    """Return what each rank settles on where its candidates take these times."""
    ranks = [Trials(list(each), passes) for each in times]
    while True:
        for _ in range(len(ranks[0].active)):
            compares = [
                each.record(took[each.current]) for each, took in zip(ranks, times, strict=True)
            ]
        if compares[0]:
            everyone = [each.medians() for each in ranks]
            chosen = [each.narrow(everyone) for each in ranks]
            if any(chosen):
                return [str(each) for each in chosen]


@pytest.mark.parametrize(
    ("times", "choice"),
    [
        ([{"a": 30, "b": 20, "c": 40}], "b"),
        ([{"a": 100, "b": 97}], "a"),  # a tie is the likeliest's
        ([{"a": 100, "b": 94}], "b"),
        ([{"a": 10, "b": 20}, {"a": 30, "b": 21}], "b"),  # the slowest rank's time counts
        ([{"a": 10, "b": 90, "c": 91}, {"a": 10, "b": 1, "c": 1}], "a"),
        ([{"a": 0, "b": 0}], "a"),
    ],
)
def test_the_fastest_is_taken_on_all_ranks(times: list[dict[str, int]], choice: str) -> None:
    assert settle(times) == [choice] * len(times)


def test_the_hopeless_are_left_out_early_and_the_first_run_does_not_count() -> None:
    trials = Trials(["a", "b", "c"], 6)
    for number, took in enumerate([900, 1, 1, 10, 11, 50, 10, 11, 50]):
        assert trials.record(took) is (number == 8)
    assert trials.narrow([trials.medians()]) is None
    assert trials.active == ["a", "b"]


class Clock:
    """A clock of one rank, on which each algorithm takes a time of its own."""

    def __init__(self, c: Collectives, took: dict[str, int]) -> None:
        self.now, self.c, self.took = 0, c, took

    def __call__(self) -> int:
        found = list(self.c.adaptive._signatures.values())
        self.now += self.took.get(found[-1].current, 100_000) if found else 1
        return self.now


def group(c: Collectives) -> Collectives:
    """Return a group of all ranks that has measured nothing."""
    part = c.split(0)
    assert part is not None
    return part


def call(c: Collectives, name: str, number: int, counts: Any = None) -> None:
    """Make a call with ever new arrays, and compare its result."""
    shapes = [input_shape(name, c.size, rank, (7,), counts) for rank in range(c.size)]
    inputs = [values(shape, "int64", rank + number) for rank, shape in enumerate(shapes)]
    wanted = expected(name, inputs, "sum", 0, counts)[c.rank]
    given: dict[str, Any] = {"counts": counts} if counts else {}
    if name == "scatter":
        given["out"] = device(c, np.zeros_like(wanted), "int64")
    if name != "barrier":
        given["x"] = device(c, inputs[c.rank], "int64")
    got = getattr(c, name)(**given, algorithm="adaptive")
    if name != "barrier":
        compare(c, got, wanted, "int64")


def only(c: Collectives) -> adaptive._Signature:
    (found,) = c.adaptive._signatures.values()
    return found


def call_until_settled(c: Collectives, name: str, counts: Any = None) -> str:
    for number in range(CALLS):
        call(c, name, number, counts)
        if only(c).chosen:
            return only(c).chosen
    pytest.fail("it does not settle")


@pytest.mark.ranks(3, more=(2, Layout(4, per_node=2)))
@pytest.mark.parametrize("name", COLLECTIVES)
def test_every_call_is_right_while_it_measures(c: Collectives, name: str) -> None:
    with group(c) as part:
        chosen = call_until_settled(part, name)
        assert part.exchange(chosen) == [chosen] * c.size
        for number in range(3):
            call(part, name, number)


def test_uneven_rows_are_measured(c: Collectives) -> None:
    with group(c) as part:
        assert call_until_settled(part, "allgather", list(range(1, c.size + 1)))


@pytest.mark.parametrize("seed", range(5))
def test_all_ranks_choose_alike_whatever_their_clocks_say(c: Collectives, seed: int) -> None:
    with group(c) as part:
        mine = random.Random(100 * seed + c.rank)
        part.adaptive.clock = lambda: mine.randrange(1 << 30)
        chosen = call_until_settled(part, "allreduce")
        assert part.exchange(chosen) == [chosen] * c.size
        x = device(c, np.ones(4), "int64")
        with part.plan("allreduce", x, algorithm="adaptive") as plan:
            assert len({*part.exchange(f"{plan.algorithm} {plan.transport}")}) == 1


@pytest.mark.ranks(1, 3)
@pytest.mark.threads_only
@pytest.mark.parametrize("position", [0, 1, -1])
def test_the_fastest_candidate_runs_in_all_later_calls_without_python(
    c: Collectives, position: int
) -> None:
    with group(c) as part:
        x = device(c, np.ones(4), "int64")
        part.allreduce(x, algorithm="adaptive")
        candidates = only(part).candidates
        fastest = candidates[position]
        part.adaptive.clock = Clock(part, dict.fromkeys(candidates, 10**6) | {fastest: 1000})
        while not only(part).chosen:
            part.allreduce(x, algorithm="adaptive")
        assert only(part).chosen == fastest
        part.allreduce(x, algorithm="adaptive")  # the plan table learns the call
        part.adaptive.run = None
        for _ in range(50):
            part.allreduce(x, algorithm="adaptive")


def test_ranks_that_ask_for_different_things_measure_again(c: Collectives) -> None:
    with group(c) as part:
        x = device(c, np.ones(4), "int64")
        for number in range(5):
            call(part, "allreduce", number)
        if c.size > 1:
            with pytest.raises(Disagreement, match="algorithm differs"):
                part.allreduce(x, algorithm="auto" if c.rank else "adaptive")
        chosen = call_until_settled(part, "allreduce")
        if c.size > 1:
            with pytest.raises(Disagreement, match="shape differs"):
                part.allreduce(device(c, np.ones(4 + c.rank), "int64"), algorithm="adaptive")
        for number in range(5):
            call(part, "allreduce", number)
        assert part.exchange(chosen) == [chosen] * c.size


def test_a_rank_without_an_array_gets_what_auto_runs(c: Collectives) -> None:
    x = device(c, np.arange(c.size), "int64")
    row = c.scatter(x if c.rank == 0 else None, algorithm="adaptive")
    assert c.transport.arrays.to_host(row) == c.rank


def later(left: Any, right: Any) -> Any:
    return right


def test_operators_in_rank_order_are_served(c: Collectives) -> None:
    with group(c) as part:
        for _ in range(CALLS):
            got = part.allreduce(
                device(c, np.full(3, c.rank), "int64"), later, algorithm="adaptive"
            )
            assert c.transport.arrays.to_host(got).tolist() == [c.size - 1] * 3


def test_a_plan_names_what_it_has_settled_on(c: Collectives) -> None:
    x = device(c, np.full(5, c.rank), "int64")
    with c.plan("allreduce", x, out=x, algorithm="adaptive") as plan:
        assert plan.note == "adaptive"
        assert plan.algorithm == "native" or find("allreduce", plan.algorithm)
        assert c.transport.arrays.to_host(x).tolist() == [c.rank] * 5, "it measures on other arrays"
        plan.run()
        assert c.transport.arrays.to_host(x).tolist() == [sum(range(c.size))] * 5


def test_it_takes_no_transport(c: Collectives) -> None:
    with pytest.raises(ArgumentError, match="adaptive chooses its own transport"):
        c.barrier(algorithm="adaptive@cma")
