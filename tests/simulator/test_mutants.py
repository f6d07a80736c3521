"""The simulator catches every broken schedule that does harm."""

from __future__ import annotations

import pytest
from catalogue import CATALOGUE, label
from mutants import MUTATIONS, harm, meets, mutants

from mpicoll.algorithms.registry import Algorithm
from mpicoll.errors import ScheduleError
from mpicoll.simulator import is_ordered, simulate


def caught(algorithm, size, root, schedules) -> bool:
    """Whether the simulator refuses a mutant, or finds that it lost its rank order."""
    try:
        trace = simulate(schedules, algorithm.collective, size, root, algorithm.blocks(size))
    except ScheduleError:
        return True
    return is_ordered(algorithm, size, root) and not trace.ordered


@pytest.mark.parametrize("kind", MUTATIONS)
@pytest.mark.parametrize("seed", range(3))
def test_every_harmful_mutant_is_caught(kind: str, seed: int) -> None:
    mutants_run = [
        (
            caught(*mutant),
            harm(*mutant, ordered=is_ordered(*mutant[:3])),
            f"{mutant[0].collective.name} {mutant[0]} size {mutant[1]} root {mutant[2]}",
        )
        for mutant in mutants(seed, 60, (kind,))
    ]
    assert [description for seen, harms, description in mutants_run if harms and not seen] == []
    share = sum(seen for seen, _, _ in mutants_run) / len(mutants_run)
    assert share >= (0.3 if kind == "wrong_side" else 0.5), f"{share:.0%} of {kind} caught"


@pytest.mark.parametrize("algorithm", CATALOGUE, ids=label)
def test_an_executor_of_its_own_agrees_with_the_simulator(algorithm: Algorithm) -> None:
    """The algorithm does its work, and keeps rank order where the simulator finds so."""
    for size in filter(algorithm.needs.holds, (2, 4, 5, 9)):
        schedules = [algorithm.rounds(rank, size) for rank in range(size)]
        assert harm(algorithm, size, 0, schedules, ordered=False) == ""
        is_right = harm(algorithm, size, 0, schedules, ordered=True) == ""
        assert is_right is is_ordered(algorithm, size)
        assert meets(schedules)


def test_mutants_can_be_repeated() -> None:
    once, again = ([str(mutant) for mutant in mutants(7, 20)] for _ in range(2))
    assert once == again
