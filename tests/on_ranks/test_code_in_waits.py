"""Python code that runs while a call waits, such as a handler of a signal, and calls or raises."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from run_collective import compare, device

from mpicoll import Collectives
from mpicoll.memory.mailbox import UNDER_WAY

pytestmark = pytest.mark.ranks(2, 3)
COUNT = 100
TOKEN = 77
"""The tag of the messages by which rank 0 says that its call waits."""


@pytest.fixture(autouse=True)
def _on_processes(c: Collectives) -> None:
    if c.backend == "threads":
        pytest.skip("a handler of a signal runs in the first thread alone")
    if c.transport.shared is None or c.transport.shared.mailbox is None:
        pytest.skip("these ranks do not share memory")


@contextmanager
def handler_in_a_wait(c: Collectives, numbers: Any, act: Callable[[], Any]) -> Iterator[None]:
    """Have a signal's handler tell the other ranks and then act, once a call is under way.

    Args:
        numbers: of the group whose call it is: `Mailbox.number`.
    """

    def handle(*_: object) -> None:
        if not numbers[UNDER_WAY]:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            return
        for rank in range(1, c.size):
            c.send(device(c, np.ones(1), "float64"), rank, TOKEN)
        act()

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def wait_for_the_handler(c: Collectives) -> None:
    c.recv(device(c, np.zeros(1), "float64"), 0, TOKEN)


def vector(c: Collectives, value: float, count: int = COUNT) -> Any:
    return device(c, np.full(count, value), "float64")


def _method(c: Collectives) -> Callable[[float], Any]:
    return lambda value: c.allreduce(vector(c, value))


def _ring(c: Collectives) -> Callable[[float], Any]:
    return lambda value: c.allreduce(vector(c, value), algorithm="ring@symmetric")


def _run(c: Collectives) -> Callable[[float], Any]:
    x = vector(c, 0)
    plan = c.plan("allreduce", x, algorithm="one_shot@symmetric")

    def run(value: float) -> Any:
        x[:] = value
        plan.run()
        return plan.out

    return run


def _started(c: Collectives) -> Callable[[float], Any]:
    x = vector(c, 0)
    plan = c.plan("allreduce", x, algorithm="one_shot@symmetric")

    def run(value: float) -> Any:
        x[:] = value
        plan.start().wait()
        return plan.out

    return run


WAYS = {"method": _method, "ring": _ring, "run": _run, "started": _started}


@pytest.mark.parametrize("inner", ["method", "ring", "run"])
@pytest.mark.parametrize("outer", WAYS)
def test_a_call_of_a_handler_runs_after_the_call_that_waits(
    c: Collectives, outer: str, inner: str
) -> None:
    first, second = WAYS[outer](c), WAYS[inner](c)
    for _ in range(3):
        first(1), second(1)
    numbers = c.transport.shared.mailbox.number
    results: list[Any] = []

    def call() -> None:
        results.append(second(5))

    if c.rank == 0:
        with handler_in_a_wait(c, numbers, call):
            found = first(2)
    else:
        wait_for_the_handler(c)
        found = first(2)
        call()
    compare(c, found, np.full(COUNT, 2.0 * c.size), "float64")
    compare(c, results[0], np.full(COUNT, 5.0 * c.size), "float64")


def test_a_call_within_an_agreement_is_refused_and_the_outer_one_completes(c: Collectives) -> None:
    count, known = COUNT + 1, _method(c)
    for _ in range(3):
        known(1)

    def refused() -> None:
        with pytest.raises(RuntimeError, match="a call of this group is under way"):
            known(5)

    if c.rank == 0:
        with handler_in_a_wait(c, c.transport.shared.mailbox.number, refused):
            found = c.allreduce(vector(c, 2, count))
    else:
        wait_for_the_handler(c)
        found = c.allreduce(vector(c, 2, count))
    compare(c, found, np.full(count, 2.0 * c.size), "float64")
    compare(c, known(3), np.full(COUNT, 3.0 * c.size), "float64")


# -- communicators of mpi4py -------------------------------------------------------------------


@pytest.fixture
def comm(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if c.backend != "mpi4py":
        pytest.skip("of mpi4py")
    from mpi4py import MPI

    from mpicoll import Comm
    from mpicoll.mpi.communicator.state import WARMUP

    monkeypatch.setenv(WARMUP, "0")
    made = Comm(MPI.COMM_WORLD.Dup())
    made.Barrier()
    yield made
    made.Free()


def numbers_of(comm: Any) -> Any:
    from mpicoll.mpi.communicator import state

    return comm.Get_attr(state._key()).dispatcher.mailbox.number


def _sum(comm: Any, value: float, count: int = COUNT) -> float:
    out = np.full(count, -1.0)
    comm.Allreduce(np.full(count, float(value)), out)
    assert (out == out[0]).all()
    return float(out[0])


def _sum_of_objects(comm: Any, value: float) -> float:
    return float(sum(item["value"] for item in comm.allgather({"value": value})))


def _sum_of_long_arrays(comm: Any, value: float) -> float:
    return float(sum(map(np.mean, comm.allgather(np.full(100_000, float(value))))))


def _sum_as_arrays(comm: Any, value: float) -> float:
    return float(comm.allreduce(float(value)))


@pytest.mark.parametrize("inner", [_sum, _sum_of_objects])
@pytest.mark.parametrize("outer", [_sum, _sum_as_arrays])
def test_a_handlers_call_of_a_communicator_is_served(
    c: Collectives, comm: Any, outer: Callable[..., float], inner: Callable[..., float]
) -> None:
    for _ in range(3):
        outer(comm, 1), inner(comm, 1)
    results: list[float] = []
    if c.rank == 0:
        with handler_in_a_wait(c, numbers_of(comm), lambda: results.append(inner(comm, 5))):
            found = outer(comm, 2)
    else:
        wait_for_the_handler(c)
        found = outer(comm, 2)
        results.append(inner(comm, 5))
    assert (found, results) == (2 * c.size, [5 * c.size])


@pytest.mark.parametrize("inner", [_sum, _sum_of_objects])
@pytest.mark.parametrize("outer", [_sum_of_objects, _sum_of_long_arrays])
def test_within_a_method_of_objects_another_call_is_refused(
    c: Collectives, comm: Any, outer: Callable[..., float], inner: Callable[..., float]
) -> None:
    for _ in range(3):
        outer(comm, 1), inner(comm, 1)

    def refused() -> None:
        with pytest.raises(RuntimeError, match="a call of this group is under way"):
            inner(comm, 5)

    if c.rank == 0:
        with handler_in_a_wait(c, numbers_of(comm), refused):
            found = outer(comm, 2)
    else:
        wait_for_the_handler(c)
        found = outer(comm, 2)
    assert (found, inner(comm, 5)) == (2 * c.size, 5 * c.size)


class Calling:
    """An object that is pickled with the result of a collective."""

    comm: Any

    def __reduce__(self) -> Any:
        return int, (self.comm.alltoall([self.comm.rank] * self.comm.size)[-1],)


def test_an_object_that_makes_a_call_as_it_is_pickled(comm: Any) -> None:
    Calling.comm = comm
    items = ["text", Calling(), *[1.5] * comm.size][: comm.size]
    for _ in range(3):
        expected = ["text", comm.size - 1, 1.5][comm.rank]
        assert comm.alltoall(items) == [expected] * comm.size
        assert comm.bcast(Calling() if comm.rank == 0 else _pickled(comm)) == comm.size - 1


def _pickled(comm: Any) -> None:
    """Make the call that an object of the root makes."""
    comm.alltoall([comm.rank] * comm.size)


class Late(Exception):
    pass


def _broadcast_of_columns(comm: Any, value: float) -> float:
    from mpi4py import MPI

    kind = MPI.DOUBLE.Create_vector(4, 1, 2).Commit()
    array = np.full(8, float(value * comm.size))
    comm.Bcast([array, 1, kind])
    kind.Free()
    return float(array[0])


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize(
    "call",
    [_sum, _sum_of_objects, _sum_of_long_arrays, _sum_as_arrays, _broadcast_of_columns],
)
def test_a_rank_interrupted_in_a_first_call_completes_it(
    c: Collectives, comm: Any, call: Callable[..., float], before: int, monkeypatch: Any
) -> None:
    """The others may be inside MPI's own call, which they cannot leave."""
    from mpicoll.mpi.communicator import state

    monkeypatch.setattr(state, "_WARMUP_CALLS", 1)
    monkeypatch.setattr(state, "_idle", [])  # no state of a freed communicator knows the call
    monkeypatch.delenv(state.WARMUP)

    from mpi4py import MPI

    from mpicoll import Comm

    fresh = Comm(MPI.COMM_WORLD.Dup())
    for _ in range(2):
        fresh.Barrier()
    for _ in range(before):
        call(fresh, 1)

    def interrupt() -> None:
        raise Late

    if c.rank == 0:
        with handler_in_a_wait(c, numbers_of(fresh), interrupt), pytest.raises(Late):
            call(fresh, 2)
    else:
        wait_for_the_handler(c)
        assert call(fresh, 2) == 2 * c.size
    assert _sum(fresh, 3, COUNT + 1) == 3 * c.size
    fresh.Free()
    for idle in state._idle:
        idle.close()
