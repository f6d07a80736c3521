"""Plans on GPU arrays, run several times and compared."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest
from expect import expected, input_shape, values
from run_collective import EVERY, compare, on_gpu
from run_collective import SCHEDULES as FORMS

from mpicoll import Collectives, Unavailable, Unsupported

REAL = os.environ.get("MPICOLL_TEST_GPU", "") not in ("", "0")
SCHEDULES = [(name, text) for name, text in EVERY if text != "auto" and "native" not in text]
SOME = SCHEDULES if REAL else FORMS
"""Through the host all are messages, and differ in nothing that fake GPUs would show."""
MESSAGES = "messages"


def check(
    g: Collectives, name: str, algorithm: str, row: tuple[int, ...], dtype: str = "int32",
    op: Any = "sum", root: int = 0, in_place: bool = False, way: str = "", counts: Any = None,
    skips: bool = True,
) -> None:  # fmt: skip
    """Run a plan several times on changing inputs; compare each result.

    Args:
        skips: a plan may be refused.
    """
    arrays = g.transport.arrays
    shapes = [input_shape(name, g.size, rank, row, counts) for rank in range(g.size)]
    x = on_gpu(g, values(shapes[g.rank], dtype, g.rank, op), dtype)
    try:
        plan = g.plan(
            name, x, op=op, root=root, counts=counts, out=x if in_place else None,
            algorithm=algorithm,
        )  # fmt: skip
    except (Unavailable, Unsupported) as refused:
        if not skips:
            raise
        pytest.skip(str(refused))
    with plan:
        if way and g.size > 1:
            assert way in plan.transport.split("+")
        for turn in range(4):
            inputs = [values(s, dtype, rank + 31 * turn, op) for rank, s in enumerate(shapes)]
            arrays.from_host(x, inputs[g.rank])
            if turn % 2:
                request = plan.start()
                while turn == 3 and not request.test():
                    time.sleep(0)
                request.wait()
            else:
                plan.run()
            wanted = expected(name, inputs, op, root, counts)[g.rank]
            if wanted is not None:
                assert not arrays.is_on_host(plan.out)
                compare(g, plan.out, wanted, dtype)
            if not in_place:
                np.testing.assert_array_equal(arrays.to_host(x), inputs[g.rank])
