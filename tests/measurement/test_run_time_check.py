"""The run-time check catches, on real ranks, every broken schedule that gives a wrong result."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from expect import input_shape
from mutants import MUTATIONS, harm, meets, mutants
from run_collective import device

from mpicoll import Collectives, ScheduleError
from mpicoll.algorithms.registry import Algorithm
from mpicoll.errors import Disagreement
from mpicoll.measurement.checking import Check
from mpicoll.measurement.patterns import CheckedCall
from mpicoll.notation.elements import OPS

WIDTH = 1680  # a multiple of every number of blocks, so that a wrong block has the right length
KINDS = [kind for kind in MUTATIONS if kind != "wrong_side"]


@cache
def harmful(kind: str, size: int) -> dict[str, tuple[Algorithm, int]]:
    """Return broken algorithms that end with a wrong result, by name, each with its root."""
    faults = [
        (mutant, root, schedules)
        for mutant, ranks, root, schedules in mutants(11, 400, (kind,))
        if ranks == size
        and mutant.collective.unit != "none"
        and harm(mutant, ranks, root, schedules, ordered=False) == "wrong"
        and meets(schedules)
    ]
    return {
        f"mutant{index}": (planted(mutant, schedules), root)
        for index, (mutant, root, schedules) in enumerate(faults[:25])
    }


def planted(mutant: Algorithm, schedules: Any) -> Algorithm:
    """Return an algorithm of any name that has these schedules."""
    ranks = len(schedules)
    return replace(
        mutant, block_count=mutant.blocks(ranks), rule=mutant.needs, parameters={},
        generator=lambda rank, size: iter(schedules[rank]),
    )  # fmt: skip


@pytest.fixture
def faulty_algorithms(
    c: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, tuple[Algorithm, int]]:
    """What is `harmful` on these ranks, found by name in place of the registered algorithms."""
    faults = harmful(kind, c.size)
    if not faults:
        pytest.skip(f"no such mutant on {c.size} ranks")
    monkeypatch.setattr("mpicoll.calls.planner.find", lambda _, name: faults[name][0])
    return faults


def is_noticed(c: Collectives, mutant: Algorithm, root: int, op: str, algorithm: str) -> bool:
    """Run a planted schedule and ask every rank's check."""
    contract = mutant.collective
    x = device(c, np.zeros(input_shape(contract.name, c.size, c.rank, (WIDTH,), None)), "int32")
    try:
        plan = c.plan(contract.name, x, op=op, root=root, algorithm=algorithm)
    except ScheduleError:
        return True  # binding to shared memory compares what each rank sends and expects
    except Disagreement as error:
        return "is used by a rank that does not hold it" in str(error)
    with plan:
        checked_input = x if contract.has_input(c.rank, root) else None
        case = CheckedCall.of(contract, c.rank, c.size, root, WIDTH, "int32", OPS[op])
        check = Check(case, c.transport.arrays, checked_input, plan.out)
        check.prepare()
        plan.run()
        return any(c.exchange(check.verify() is not None))


@pytest.mark.ranks(3)
@pytest.mark.parametrize("transport", ["point-to-point", "symmetric"])
@pytest.mark.parametrize("op", ["sum", "bxor"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_wrong_result_is_noticed(
    c: Collectives, faulty_algorithms: dict[str, tuple[Algorithm, int]], op: str, transport: str
) -> None:
    """By operators under which a contribution that counts twice shows, too."""
    missed = [
        f"{mutant.collective.name} {mutant} root {root}"
        for name, (mutant, root) in faulty_algorithms.items()
        if not is_noticed(c, mutant, root, op, f"{name}@{transport}")
    ]
    assert missed == []
