"""Started plans of messages and of the library's own collectives."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from run_collective import compare, device

from mpicoll import Collectives, user_op

COUNT = 60_000


def test_many_are_waited_for_in_any_order(c: Collectives) -> None:
    rng = np.random.default_rng(c.rank)
    kinds = ["ring@point-to-point", "recursive_doubling@point-to-point", "native"]
    kinds.append("native:reduce+broadcast")
    plans = [
        c.plan("allreduce", device(c, np.full(1 + number, c.rank + 1.0), "float64"),
               algorithm=kinds[number % len(kinds)])
        for number in range(12)
    ]  # fmt: skip
    for _ in range(5):
        requests = [plan.start() for plan in plans]
        time.sleep(rng.random() / 100)
        for number in rng.permutation(len(plans)):
            if rng.random() < 0.5:
                requests[number].test()
            requests[number].wait()
        for number, plan in enumerate(plans):
            compare(c, plan.out, np.full(1 + number, c.size * (c.size + 1) / 2), "float64")
    for plan in plans:
        plan.free()


@pytest.mark.parametrize("algorithm", ["ring@point-to-point", "native"])
def test_a_function_is_called_by_the_thread_that_waits(c: Collectives, algorithm: str) -> None:
    if c.backend == "torch" and algorithm == "native":
        pytest.skip("torch has no operators of users")
    callers = set()

    def add(left: Any, right: Any) -> Any:
        callers.add(threading.current_thread())
        return left + right

    x, op = device(c, np.ones(8), "float64"), user_op(add, commutative=True)
    with c.plan("allreduce", x, op=op, algorithm=algorithm) as plan:
        request = plan.start()
        time.sleep(0.1)
        request.wait()
        compare(c, plan.out, np.full(8, c.size), "float64")
    assert callers <= {threading.current_thread()}


def test_messages_of_mpi_move_while_a_started_plan_keeps_a_rank_from_its_wait(
    c: Collectives,
) -> None:
    """Rank 2 needs rank 1's MPI to send its first message, and rank 0 waits for the second one."""
    if c.size != 3 or c.backend == "torch" or len(c.nodes) > 1:
        pytest.skip("needs 3 ranks of one node, and MPI")
    large, small = np.full(1 << 20, float(c.rank)), np.zeros(1)
    part = c.split(0 if c.rank < 2 else None)
    if part is None:
        c.recv(small, 0)
        c.send(large, 1)
        c.send(small, 0)
        return
    # The thread of Python's runs no operator of a user's, so rank 1 advances the plan as it waits.
    op = user_op(lambda left, right: left + right, commutative=True)
    message = c.irecv(large, 2) if c.rank == 1 else None
    started = part.plan("allreduce", np.ones(8), op=op)
    barrier = part.plan("barrier")
    if c.rank == 0:
        c.send(small, 2)
        c.recv(small, 2)
    request = started.start()
    barrier.run()
    request.wait()
    compare(part, started.out, np.full(8, 2.0), "float64")
    if message is not None:
        message.wait()
        assert large[0] == 2
    part.free()


@pytest.mark.parametrize("method", ["isend", "irecv"])
def test_a_freed_group_refuses_messages(c: Collectives, method: str) -> None:
    part = c.split(0)
    assert part is not None
    x, peer = device(part, np.zeros(4), "float64"), (part.rank + 1) % part.size
    part.free()
    with pytest.raises(RuntimeError, match=r"(?i)has been freed|invalid communicator"):
        getattr(part, method)(x, peer)
