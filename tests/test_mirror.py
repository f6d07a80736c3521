"""Staging, with copies between host arrays where a GPU would be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpicoll.backend import Call, Native
from mpicoll.contract import COLLECTIVES, OPS
from mpicoll.mirror import on_host


def stage(data: Any, before: Any, after: Any) -> Any:
    host = np.full_like(data, -1)
    if before is not None:
        before.append(lambda: np.copyto(host, data))
    if after is not None:
        after.append(lambda: np.copyto(data, host))
    return host


def double(call: Call) -> Native:
    """Stand for a library that reads x and writes out."""

    def run() -> None:
        call.out[...] = call.x * 2

    return Native(run, lambda: pytest.fail("a staged call runs when it starts"), lambda: None)


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_results_come_back_through_host_mirrors(started: bool, in_place: bool) -> None:
    x = np.arange(4.0)
    out = x if in_place else np.zeros(4)
    call = Call(COLLECTIVES["allreduce"], x, out, OPS["sum"], 0, None, in_place, 0)
    native = on_host(call, stage, double)
    for expected in (np.arange(4.0) * 2, np.arange(4.0) * (4 if in_place else 2)):
        if started:
            request = native.start()
            assert request.test()
            request.wait()
        else:
            native.run()
        np.testing.assert_array_equal(out, expected)
