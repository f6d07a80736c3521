"""The device of each array: refused combinations, and GPUs other than the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_plans import REAL
from run_collective import compare, on_gpu

from mpicoll import ArgumentError, Collectives, Unavailable
from mpicoll.backend import DIRECT, STAGED


def test_a_part_of_a_group_has_the_turn_of_the_whole(c: Collectives) -> None:
    """Each process takes one GPU of its node, whichever group asks first."""
    part = c.split(c.rank)
    assert part is not None
    assert part.transport.gpu_turn == c.transport.gpu_turn
    part.free()


def test_what_cannot_be_had_is_told(g: Collectives) -> None:
    x = on_gpu(g, np.zeros(4), "float32")
    host = g.transport.arrays.empty((4,), "float32")
    with pytest.raises(Unavailable, match="for arrays on a GPU: ipc is theirs"):
        g.plan("allreduce", x, algorithm="ring@symmetric")
    with pytest.raises(Unavailable, match="no ipc transport for arrays on the host"):
        g.plan("allreduce", host, algorithm="ring@ipc")
    other = DIRECT if g.transport.gpu_transport == STAGED else STAGED
    with pytest.raises(Unavailable, match=f"GPU arrays travel {g.transport.gpu_transport} here"):
        g.plan("allreduce", x, algorithm=f"ring@{other}")
    ways = g.gpu_transports()
    assert ways[g.transport.gpu_transport] == ""
    assert ways[other]


def test_host_and_gpu_do_not_mix(g: Collectives) -> None:
    if g.size == 1:
        pytest.skip("one rank cannot disagree")
    x = on_gpu(g, np.zeros(4), "float32")
    if g.rank:
        x = g.transport.arrays.empty((4,), "float32")
    with pytest.raises(ArgumentError, match="device"):
        g.allreduce(x)


@pytest.mark.parametrize("other", ["the host", "GPU"])
def test_input_and_output_lie_on_one_device(g: Collectives, other: str) -> None:
    """One rank's mistake is everyone's error, before any data is sent."""
    arrays = g.transport.arrays
    if REAL and other == "GPU":
        pytest.skip("takes a second GPU")
    x, out = (on_gpu(g, np.zeros(4), "float32") for _ in range(2))
    if g.rank == g.size - 1:
        like = None if other == "the host" else arrays.on_gpu(arrays.gpu(x) + 1)
        out = arrays.empty((4,), "float32", like)
    for call in (g.plan, lambda name, x, out: g.allreduce(x, out=out)):
        with pytest.raises(ArgumentError, match=f"out lies on {other}.* where x lies on GPU"):
            call("allreduce", x, out=out)


@pytest.mark.skipif(REAL, reason="needs two GPUs for a rank")
def test_arrays_on_another_gpu_than_the_first(fresh: Any) -> None:
    """Each GPU has a stream of its own to wait for."""
    part, arrays = fresh
    for turn in (part.rank, part.rank + 1, 0, 1):
        like = arrays.on_gpu(turn)
        x, out = (arrays.empty((1000,), "int32", like) for _ in range(2))
        with part.plan("allreduce", x, out=out, algorithm="one_shot@ipc") as plan:
            arrays.from_host(x, np.full(1000, part.rank + turn))
            plan.run()
            wanted = sum(part.exchange(part.rank + turn))
            compare(part, out, np.full(1000, wanted), "int32")
