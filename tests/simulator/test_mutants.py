"""The simulator catches every broken schedule that does harm."""

from __future__ import annotations

import pytest
from mutants import MUTATIONS, harm, meets, mutants

from mpicoll.algorithms.registry import algorithms
from mpicoll.errors import ScheduleError
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.simulator import is_ordered, simulate

CATALOGUE = [each for name in COLLECTIVES for each in algorithms(name)]


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
    found = [
        (
            caught(*mutant),
            harm(*mutant, ordered=is_ordered(*mutant[:3])),
            f"{mutant[0].collective.name} {mutant[0]} size {mutant[1]} root {mutant[2]}",
        )
        for mutant in mutants(seed, 60, (kind,))
    ]
    assert [what for seen, harms, what in found if harms and not seen] == []
    share = sum(seen for seen, _, _ in found) / len(found)
    assert share >= (0.3 if kind == "wrong_side" else 0.5), f"{share:.0%} of {kind} caught"


@pytest.mark.parametrize("algorithm", CATALOGUE, ids=lambda a: f"{a.collective.name}-{a}")
@pytest.mark.parametrize("size", [2, 4, 9])
def test_the_unbroken_algorithm_does_no_harm(algorithm, size: int) -> None:
    if not algorithm.needs.holds(size):
        pytest.skip(f"needs {algorithm.needs.text}")
    schedules = [algorithm.rounds(rank, size) for rank in range(size)]
    ordered = is_ordered(algorithm, size)
    assert harm(algorithm, size, 0, schedules, ordered=ordered) == ""
    assert not caught(algorithm, size, 0, schedules)
    assert meets(schedules)


def test_mutants_can_be_repeated() -> None:
    once, again = ([str(mutant) for mutant in mutants(7, 20)] for _ in range(2))
    assert once == again
