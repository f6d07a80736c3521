"""The run-time check catches, on real ranks, every broken schedule that gives a wrong result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from expect import input_shape
from mutants import MUTATIONS, harm, meets, mutants
from run_collective import device

from mpicoll import Collectives, ScheduleError
from mpicoll.algorithms.registry import Algorithm
from mpicoll.measurement.checking import Check, CheckedCall
from mpicoll.notation.elements import OPS

WIDTH = 1680  # a multiple of every number of blocks, so that a wrong block has the right length


def is_noticed(
    c: Collectives, broken: Algorithm, root: int, schedules: Any, op: str, transport: str
) -> bool:
    """Run a planted schedule and ask every rank's check."""
    what = broken.collective
    planted = replace(
        broken, name="mutant", block_count=broken.blocks(c.size), rule=broken.needs, parameters={},
        generator=lambda rank, size: iter(schedules[rank]),
    )  # fmt: skip
    shape = input_shape(what.name, c.size, c.rank, (WIDTH,), None)
    x = device(c, np.zeros(shape), "int32")
    try:
        with patch("mpicoll.runtime.planner.find", lambda name, text: planted):
            plan = c.plan(what.name, x, op=op, root=root, algorithm=f"mutant@{transport}")
    except ScheduleError:
        return True  # binding to shared memory compares what each rank sends and expects
    with plan:
        given = x if what.has_input(c.rank, root) else None
        case = CheckedCall.of(what, c.rank, c.size, root, WIDTH, "int32", OPS[op])
        check = Check(case, c.transport.arrays, given, plan.out)
        check.prepare()
        plan.run()
        return any(c.exchange(check.verify() is not None))


@pytest.mark.parametrize("transport", ["point-to-point", "symmetric"])
@pytest.mark.parametrize("op", ["sum", "bxor"])
@pytest.mark.parametrize("kind", [kind for kind in MUTATIONS if kind != "wrong_side"])
def test_every_wrong_result_is_noticed(c: Collectives, kind: str, op: str, transport: str) -> None:
    """By operators under which a contribution that counts twice shows, too."""
    harmful = [
        mutant
        for mutant in mutants(11, 400, (kind,))
        if mutant[1] == c.size
        and mutant[0].collective.unit != "none"
        and harm(*mutant, ordered=False) == "wrong"
        and meets(mutant[3])
    ][:25]
    if not harmful:
        pytest.skip(f"no such mutant on {c.size} ranks")
    missed = [
        f"{broken.collective.name} {broken} root {root}"
        for broken, _, root, schedules in harmful
        if not is_noticed(c, broken, root, schedules, op, transport)
    ]
    assert missed == []
