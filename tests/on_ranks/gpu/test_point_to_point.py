"""Sends and receives of arrays on GPUs."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import fake_gpu
import numpy as np
import pytest
from gpu_plans import REAL
from run_collective import OVER_TORCH, compare, on_gpu

from mpicoll import Collectives, Unsupported
from mpicoll.backend import DIRECT


def test_messages_between_host_and_gpu(g: Collectives) -> None:
    """What a rank sends from its GPU, another may receive on the host."""
    if g.size == 1 and not REAL:
        pytest.skip("torch's copies know nothing of the fake stream")
    if g.transport.gpu_transport == DIRECT and OVER_TORCH:
        pytest.skip("NCCL's messages from GPU memory never meet gloo's into host memory")
    right, left = (g.rank + 1) % g.size, (g.rank - 1) % g.size
    arrays = g.transport.arrays
    sent = on_gpu(g, np.arange(1000) + g.rank, "int32")
    for received in (arrays.empty((1000,), "int32"), arrays.empty((1000,), "int32", g.gpu())):
        request = g.isend(sent, right, 3)
        g.recv(received, left, 3)
        request.wait()
        compare(g, received, np.arange(1000) + left, "int32")


@pytest.mark.skipif(REAL, reason="a real stream may do at once what a fake one does late")
@pytest.mark.parametrize("tests", [False, True])
def test_a_message_arrives_on_the_stream_on_which_it_was_awaited(fresh: Any, tests: bool) -> None:
    """It is not written before that stream has read what was there; whoever waits finds it."""
    part, arrays = fresh
    right, left = (part.rank + 1) % part.size, (part.rank - 1) % part.size
    sent = on_gpu(part, np.arange(1000) + part.rank, "int32")
    received, before = (on_gpu(part, np.full(1000, -1), "int32") for _ in range(2))
    arrays.synchronize(received)
    first, second = (fake_gpu.Stream(arrays.gpus[arrays.gpu(sent)]) for _ in range(2))
    request = part.isend(sent, right, 3)
    with first.use():
        arrays.copy(before, received)
        receiving = part.irecv(received, left, 3)
        while tests and not receiving.test():
            time.sleep(0)
    with second.use():
        receiving.wait()
        compare(part, received, np.arange(1000) + left, "int32")
        compare(part, before, np.full(1000, -1), "int32")
    request.wait()


@pytest.mark.skipif(REAL, reason="a graph that is spoiled ends the others' calls, too")
def test_a_graph_captures_no_message_by_the_host(fresh: Any) -> None:
    part, arrays = fresh
    x = on_gpu(part, np.ones(10), "int32")
    arrays.synchronize(x)
    arrays.stream(x).capturing = True
    peer = (part.rank + 1) % part.size
    begins = [partial(each, x, peer, 3) for each in (part.isend, part.irecv)]
    with part.plan("allreduce", x, algorithm="native") as plan:
        for begin in (*begins, plan.run, plan.start):
            with pytest.raises(Unsupported, match="CUDA graph"):
                begin()
        arrays.stream(x).capturing = False
        plan.run()
        compare(part, plan.out, np.full(10, part.size), "int32")
