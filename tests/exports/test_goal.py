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
"""By algorithm, bytes and nanoseconds until the last rank is done: `tests/support/loggopsim.py`."""
SERVED = [each for each in CATALOGUE if f"{each.collective.name} {each}" in RECORDED]
UNSORTED = {
    "barrier direct", "allreduce one_shot", "allreduce two_shot", "allgather lane_ring(segments=4)",
    "allreduce lanes(local=direct,across=ring)", "allreduce lane_ring(segments=4)",
    "reduce_scatter direct", "reduce_scatter lanes(local=direct,across=ring)",
    "reduce_scatter lane_ring(segments=4)", "scan two_shot", "exscan two_shot",
}  # fmt: skip
"""LogGOPSim starts what is ready at once in an order of its sort's, which is not stable."""
TIED = {
    "allreduce two_shot", "allreduce lanes(local=direct,across=ring)", "scan two_tree(segments=8)",
    "exscan two_tree(segments=8)",
}  # fmt: skip
"""Of messages that are ready at one time, prices and interpreter take another one first."""


def test_no_algorithm_is_left_out() -> None:
    assert len(SERVED) == sum(each.needs.holds(SIZE) for each in CATALOGUE)


@pytest.mark.parametrize("algorithm", SERVED, ids=label)
def test_the_file_takes_as_long_as_in_the_simulator_and_costs_what_the_schedule_does(
    algorithm: Algorithm,
) -> None:
    """The latter by the rules of our prices; LogGP's n - 1 bytes of a message are n there."""
    name = f"{algorithm.collective.name} {algorithm}"
    nbytes, recorded = RECORDED[name]
    lines = [*goal(algorithm, SIZE, nbytes)]
    slack = 0.25 if name in UNSORTED else 0
    assert completion(lines, TIMES) == pytest.approx(recorded, rel=slack)
    price = simulate(pattern_of(algorithm, SIZE), nbytes, MODEL, Switch(SIZE))
    found = completion(lines, TIMES, RULES)
    assert found == pytest.approx(1e9 * price, rel=0.06 if name in TIED else 0.01)


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
