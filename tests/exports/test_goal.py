"""GOAL files, run by an interpreter of its own, against LogGOPSim's results and our prices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from catalogue import CATALOGUE, label
from loggopsim import MODEL, TIMES
from loggp import RULES, completion

from mpicoll.algorithms.registry import Algorithm, find
from mpicoll.costs import Switch, pattern_of, simulate
from mpicoll.exports.goal import goal

SIZE = 16
RECORDED = json.loads((Path(__file__).parent / "loggopsim_16_ranks.json").read_text())
"""By algorithm, bytes and nanoseconds until the last rank is done: `tests/support/loggopsim.py`.

LogGOPSim was built with `stable_sort` in place of `sort`, by which it orders what is ready at once.
"""
RECORDED_ALGORITHMS = [
    algorithm for algorithm in CATALOGUE if f"{algorithm.collective.name} {algorithm}" in RECORDED
]


def test_no_algorithm_is_left_out() -> None:
    assert len(RECORDED_ALGORITHMS) == sum(algorithm.needs.holds(SIZE) for algorithm in CATALOGUE)


@pytest.mark.parametrize("algorithm", RECORDED_ALGORITHMS, ids=label)
def test_the_file_takes_as_long_as_in_the_simulator_and_costs_what_the_schedule_does(
    algorithm: Algorithm,
) -> None:
    """The latter by the rules of our prices; LogGP's n - 1 bytes of a message are n there."""
    name = f"{algorithm.collective.name} {algorithm}"
    nbytes, recorded = RECORDED[name]
    lines = [*goal(algorithm, SIZE, nbytes)]
    assert completion(lines, TIMES) == recorded
    price = simulate(pattern_of(algorithm, SIZE), nbytes, MODEL, Switch(SIZE))
    assert completion(lines, TIMES, RULES) == pytest.approx(1e9 * price, rel=0.01)


@pytest.mark.parametrize(
    ("of", "name", "rules"),
    [
        ("allreduce", "ring", ()),
        ("broadcast", "binomial", ()),
        ("allgather", "direct", ("duplex",)),
        ("allgather", "recexch(radix=4)", ("together",)),
        ("broadcast", "chain(segments=8)", ("meet",)),
        ("broadcast", "naive", ("wait",)),
    ],
)
def test_a_difference_has_its_reason(of: str, name: str, rules: Sequence[str]) -> None:
    """Without these rules the simulator's time is another than our price."""
    algorithm = find(of, name)
    pattern = pattern_of(algorithm, SIZE)
    nbytes = 20_000 * pattern.vector_blocks
    price = pytest.approx(1e9 * simulate(pattern, nbytes, MODEL, Switch(SIZE)), rel=0.01)
    lines = [*goal(algorithm, SIZE, nbytes)]
    assert completion(lines, TIMES, rules) == price
    assert not rules or completion(lines, TIMES) != price
