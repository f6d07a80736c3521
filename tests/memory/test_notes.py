"""A rank leaves an operation by an error of its own: the others hear why, and the group goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
from interruption import interrupted, soon
from run_collective import compare, device

from mpicoll import Collectives, RankLost
from mpicoll.memory.notes import described

pytestmark = pytest.mark.ranks(2, 3)
COUNT = 100


def ones(c: Collectives) -> Any:
    return device(c, np.ones(COUNT), "float64")


def is_sum(c: Collectives, out: Any) -> None:
    compare(c, out, np.full(COUNT, c.size), "float64")


def goes_on(c: Collectives) -> None:
    """Assert that all kinds of calls work, known ones and new ones."""
    for _ in range(3):
        is_sum(c, c.allreduce(ones(c), algorithm="ring@symmetric"))
        is_sum(c, c.allreduce(ones(c)))
        assert c.exchange(c.rank) == list(range(c.size))
    with c.plan("allreduce", ones(c), algorithm="ring@symmetric") as plan:
        plan.run()
        plan.start().wait()
        is_sum(c, plan.out)


def _method(c: Collectives, op: Any) -> Callable[[], Any]:
    return lambda: c.allreduce(ones(c), op, algorithm="one_shot@symmetric")


def _plan(c: Collectives, op: Any) -> Callable[[], Any]:
    return c.plan("allreduce", ones(c), op=op, algorithm="one_shot@symmetric").run


def _started(c: Collectives, op: Any) -> Callable[[], Any]:
    plan = c.plan("allreduce", ones(c), op=op, algorithm="one_shot@symmetric")
    return lambda: plan.start().wait()


WAYS = {"method": _method, "run": _plan, "started": _started}


def several(call: Callable[[], Any]) -> None:
    """Run a few times, as a rank that has left may have sent all that the first run needs."""
    for _ in range(5):
        call()


@contextmanager
def group_of(c: Collectives) -> Iterator[Collectives]:
    """A group of the same ranks, as one may end, and as it takes the executor of a test."""
    if c.transport.shared is None or c.transport.shared.mailbox is None:
        pytest.skip("these ranks do not share memory")
    part = c.split(0)
    assert part is not None
    with part:
        yield part


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_interrupted_in_a_wait(c: Collectives, way: str) -> None:
    """It waits for ranks that come late, and never runs that plan again."""
    with group_of(c) as part:
        call = WAYS[way](part, "sum")
        call()
        part.barrier()
        with soon():
            if c.rank == 0:
                with interrupted(0.1):
                    call()
                c.barrier()
            else:
                c.barrier()
                with suppress(RankLost):  # it may have sent all that they need
                    call()
        if way != "method":
            after = r"failed in the middle|has left it|rank 0, which failed with RankLost"
            with pytest.raises((RuntimeError, RankLost), match=after):
                several(call)
        goes_on(part)


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_that_raises_in_its_operator(c: Collectives, way: str) -> None:
    broken = False

    def flaky(left: Any, right: Any) -> Any:
        if broken and c.rank == c.size - 1:
            raise ZeroDivisionError("planted")
        return left + right

    with group_of(c) as part:
        call = WAYS[way](part, flaky)
        call()
        broken = True
        raising = pytest.raises(ZeroDivisionError) if c.rank == c.size - 1 else suppress(RankLost)
        with soon(), raising:
            call()
        broken = False
        goes_on(part)


def _broadcast(c: Collectives, x: Any, algorithm: str) -> Callable[[], Any]:
    return lambda: c.broadcast(x, out=x, algorithm=algorithm)


def _broadcast_plan(c: Collectives, x: Any, algorithm: str) -> Callable[[], Any]:
    return c.plan("broadcast", x, out=x, algorithm=algorithm).run


def _started_broadcast(c: Collectives, x: Any, algorithm: str) -> Callable[[], Any]:
    plan = c.plan("broadcast", x, out=x, algorithm=algorithm)
    return lambda: plan.start().wait()


BROADCASTS = {"method": _broadcast, "run": _broadcast_plan, "started": _started_broadcast}
LONG = 1_000_000
"""Elements of an array that others read in place."""


@pytest.mark.parametrize("algorithm", ["one_shot", "chain(segments=4)"])
@pytest.mark.parametrize(
    ("way", "transport"), [*((way, "cma") for way in BROADCASTS), ("run", "symmetric")]
)
def test_an_array_that_its_sender_has_taken_back_is_no_result(
    c: Collectives, way: str, transport: str, algorithm: str
) -> None:
    """The root is interrupted while it waits for its readers, and writes its array again."""
    with group_of(c) as part:
        if transport not in part.transports:
            pytest.skip(f"no {transport} here")
        values = np.ones(LONG)
        x = part.allocate(LONG) if transport == "symmetric" else device(part, values, "float64")
        x[:] = part.rank
        call = BROADCASTS[way](part, x, f"{algorithm}@{transport}")
        call()
        part.barrier()
        with soon():
            if c.rank == 0:
                with interrupted(0.1):
                    call()
                x[:] = -1
                c.barrier()
            else:
                c.barrier()
                with pytest.raises(RankLost, match=r"rank \d+ left the call|has left it: "):
                    call()
        goes_on(part)


CALLS: dict[str, Callable[[Collectives], Any]] = {
    "plan": lambda c: c.plan("allreduce", ones(c), algorithm="ring@symmetric"),
    "method": lambda c: c.allreduce(ones(c)),
    "split": lambda c: c.split(0),
    "exchange": lambda c: c.exchange(c.rank),
    "allocate": lambda c: c.allocate((c.rank + 1) * 1000),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("then", ["method", "exchange"])
def test_a_rank_interrupted_while_all_agree(c: Collectives, name: str, then: str) -> None:
    """What they count together may differ from then on: the group ends, on all ranks."""
    if name == "split" and c.backend == "mpi4py":
        pytest.skip("MPI itself waits there, for ever")
    with group_of(c) as part:
        plan = part.plan("allreduce", ones(c))
        part.broadcast(ones(c))
        with soon():
            if c.rank == 0:
                with interrupted(0.1):
                    CALLS[name](part)
                c.barrier()
            else:
                c.barrier()
                with suppress(RankLost):
                    CALLS[name](part)
            for call in (CALLS[then], CALLS[then], lambda part: part.broadcast(ones(part))):
                with pytest.raises(RankLost, match=r"has ended, make a new one|has left it: "):
                    call(part)
        plan.run()
        is_sum(c, plan.out)
        goes_on(c)


@pytest.mark.parametrize("calls_before", [0, 3])
def test_the_error_of_an_agreement_names_the_collective(c: Collectives, calls_before: int) -> None:
    with group_of(c) as part:
        for _ in range(calls_before):
            part.alltoall(device(c, np.ones((c.size, 3)), "float64"))
        if c.rank == 0:
            part.deadline = 0.2
            with pytest.raises(RankLost, match=r"alltoall.*: rank 0 waits for rank 1"):
                part.alltoall(device(c, np.ones((c.size, 3)), "float64"))
        c.barrier()


def test_an_error_that_quotes_others_is_told_by_the_first() -> None:
    """Notes are short, and each rank of a chain would add its own words."""
    first = "b: rank 2 waits for rank 1, which has left it: ZeroDivisionError: x"
    error = RankLost(f"c: rank 3 waits for rank 2, which has left it: RankLost: {first}")
    assert described(error) == f"RankLost: {first}"
    assert described(ZeroDivisionError("x")) == "ZeroDivisionError: x"
