"""Python code that runs while a call waits, such as a handler of a signal, and calls or raises."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from run_collective import compare, device

from mpicoll import Collectives
from mpicoll.machine.nodes import RANKS_PER_NODE
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
            found = c.allreduce(vector(c, 2, count), algorithm="ring")
    else:
        wait_for_the_handler(c)
        found = c.allreduce(vector(c, 2, count), algorithm="ring")
    compare(c, found, np.full(count, 2.0 * c.size), "float64")
    compare(c, known(3), np.full(COUNT, 3.0 * c.size), "float64")


@pytest.mark.launch_only
@pytest.mark.parametrize("outer", ["method", "native", "exchange"])
def test_a_call_while_ranks_of_several_nodes_agree_is_refused(
    c: Collectives, monkeypatch: pytest.MonkeyPatch, outer: str
) -> None:
    if c.backend != "mpi4py":
        pytest.skip("gloo waits in C, where no handler runs")
    monkeypatch.setenv(RANKS_PER_NODE, "1")
    part = c.split(0)
    assert part is not None
    part.deadline = 20
    known, x = _method(part), vector(part, 2)
    calls = {
        "method": partial(known, 2),
        "native": lambda: part.allreduce(x, algorithm="native"),
        "exchange": lambda: part.exchange(2),
    }
    for _ in range(3):
        known(1), calls[outer]()

    def refused() -> None:
        for inner in (partial(known, 5), partial(part.exchange, 5), partial(part.split, 0)):
            with pytest.raises(RuntimeError, match="a call of this group is under way"):
                inner()

    if c.rank == 0:
        with handler_in_a_wait(c, part.transport.rounds.number, refused):
            found = calls[outer]()
    else:
        wait_for_the_handler(c)
        found = calls[outer]()
    if outer == "exchange":
        assert found == [2] * c.size
    else:
        compare(c, found, np.full(COUNT, 2.0 * c.size), "float64")
    compare(c, known(3), np.full(COUNT, 3.0 * c.size), "float64")
    part.free()


# -- communicators of mpi4py -------------------------------------------------------------------


@pytest.fixture
def comm(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if c.backend != "mpi4py":
        pytest.skip("of mpi4py")
    from mpi4py import MPI

    from mpicoll import Comm

    made = Comm(MPI.COMM_WORLD.Dup())
    made.Barrier()
    yield made
    made.Free()


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


class Late(Exception):
    pass


@contextmanager
def signal_in_a_wait(
    c: Collectives,
    act: Callable[[], Any],
    number: signal.Signals = signal.SIGUSR2,  # not that of pytest-timeout
) -> Iterator[None]:
    """Send rank 0 a signal once it is in a call of a communicator; then let the others call.

    Args:
        act: what the signal's handler does.
    """
    from mpicoll.mpi.communicator import classes

    first = threading.main_thread().ident
    assert first is not None
    is_over, names = threading.Event(), {call.__name__ for call in CALLS}

    def is_in_a_call() -> bool:
        frame = sys._current_frames()[first]
        while frame is not None and frame.f_code.co_filename != classes.__file__:
            if frame.f_code.co_name in names:  # which may call MPI's own method
                return True
            frame = frame.f_back
        return frame is not None

    def interrupt() -> None:
        while not (is_in_a_call() or is_over.is_set()):
            time.sleep(0.001)
        time.sleep(0.02)  # so that the call waits in Python, where the handler could run
        signal.pthread_kill(first, number)
        time.sleep(0.02)
        for rank in range(1, c.size):
            c.send(device(c, np.ones(1), "float64"), rank, TOKEN)

    previous_handler = signal.signal(number, lambda *_: act())
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        signal.signal(number, previous_handler)


@pytest.mark.parametrize("inner", [_sum, _sum_of_objects])
@pytest.mark.parametrize("calls", [0, 3])
@pytest.mark.parametrize("outer", [_sum, _sum_of_objects, _sum_of_long_arrays, _sum_as_arrays])
def test_a_handlers_call_of_a_communicator_runs_after_the_call_that_waits(
    c: Collectives, comm: Any, outer: Callable[..., float], calls: int,
    inner: Callable[..., float],
) -> None:  # fmt: skip
    for _ in range(calls):
        outer(comm, 1), inner(comm, 1)
    results: list[float] = []
    if c.rank == 0:
        with signal_in_a_wait(c, lambda: results.append(inner(comm, 5))):
            total = outer(comm, 2)
    else:
        wait_for_the_handler(c)
        total = outer(comm, 2)
        results.append(inner(comm, 5))
    assert (total, results) == (2 * c.size, [5 * c.size])


@pytest.mark.parametrize("call", [_sum, _sum_of_objects])
def test_another_thread_cannot_call_while_a_call_waits(
    c: Collectives, comm: Any, call: Callable[..., float]
) -> None:
    if c.rank:
        wait_for_the_handler(c)
        assert call(comm, 1) == c.size
    else:
        errors: list[RuntimeError] = []
        totals: list[float] = []

        def run() -> None:
            try:
                totals.append(call(comm, 1))
            except RuntimeError as error:
                errors.append(error)
                for rank in range(1, c.size):
                    c.send(device(c, np.ones(1), "float64"), rank, TOKEN)

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert totals == [c.size]
        assert "a call of this group is under way" in str(errors[0])
    assert call(comm, 2) == 2 * c.size


class Calling:
    """An object that is pickled with the result of a collective."""

    comm: Any

    def __reduce__(self) -> Any:
        return int, (self.comm.alltoall([self.comm.rank] * self.comm.size)[-1],)


def test_an_object_that_makes_a_call_as_it_is_pickled(comm: Any) -> None:
    Calling.comm = comm
    items = ["text", Calling(), *[1.5] * comm.size][: comm.size]
    for _ in range(3):
        expected = ["text", comm.size - 1, *[1.5] * comm.size][comm.rank]
        assert comm.alltoall(items) == [expected] * comm.size
        assert comm.bcast(Calling() if comm.rank == 0 else _pickled(comm)) == comm.size - 1


def _pickled(comm: Any) -> None:
    """Make the call that an object of the root makes."""
    comm.alltoall([comm.rank] * comm.size)


def _broadcast_of_columns(comm: Any, value: float) -> float:
    from mpi4py import MPI

    kind = MPI.DOUBLE.Create_vector(4, 1, 2).Commit()
    array = np.full(8, float(value * comm.size))
    comm.Bcast([array, 1, kind], comm.size - 1)  # the root itself need not wait
    kind.Free()
    return float(array[0])


def _sum_of_numbers(comm: Any, value: float) -> float:
    total = comm.reduce(value, root=0)
    return float(value * comm.size if total is None else total)


def _maximum(comm: Any, value: float) -> float:
    """Make a call that is ours from the first call on."""
    from mpi4py import MPI

    out = np.empty(2)
    comm.Allreduce(np.full(2, float(value * comm.size)), out, MPI.MAX)
    return float(out[0])


def _sum_by_a_function(comm: Any, value: float) -> float:
    return float(comm.allreduce(value, lambda lhs, rhs: lhs + rhs))


def _sum_of_rows(comm: Any, value: float) -> float:
    """Make a call in two parts: the ranks tell each other their counts first."""
    out = np.empty(2)
    comm.Reduce_scatter(np.full(2 * comm.size, float(value)), out)
    return float(out[0])


CALLS = [
    _sum, _sum_of_objects, _sum_of_long_arrays, _sum_as_arrays, _broadcast_of_columns, _maximum,
    _sum_of_rows, _sum_of_numbers, _sum_by_a_function,
]  # fmt: skip
NODES = {
    "one_node": {},
    "nodes": {"MPICOLL_RANKS_PER_NODE": "2"},
    "forced": {"MPICOLL_RANKS_PER_NODE": "2", "MPICOLL_ALGORITHM": "allreduce=two_level"},
}


@pytest.fixture(params=NODES)
def fresh(c: Collectives, request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A communicator without a state; on several nodes the second call opens the levels."""
    if c.backend != "mpi4py":
        pytest.skip("of mpi4py")
    from mpi4py import MPI

    from mpicoll import Comm
    from mpicoll.mpi.communicator import levels

    if request.param != "one_node" and c.size < 3:
        pytest.skip("there is one node")
    for name, text in NODES[request.param].items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(levels, "LEVELS_AFTER", 1)
    monkeypatch.setattr(levels, "LEVELS_FROM", 0)
    made = Comm(MPI.COMM_WORLD.Dup())
    yield made
    made.Free()


def _raise_late() -> None:
    raise Late


@pytest.mark.parametrize("calls", [0, 1, 3])
@pytest.mark.parametrize("call", CALLS)
def test_a_rank_interrupted_in_a_call_completes_it(
    c: Collectives, fresh: Any, call: Callable[..., float], calls: int
) -> None:
    """The other ranks complete it, too: inside MPI's own call, or in a plan of ours."""
    if call is _sum_by_a_function and "MPICOLL_RANKS_PER_NODE" in os.environ:
        pytest.skip(
            "mpi4py's own method calls the function, in which a handler runs, as without us"
        )
    if call is _sum_of_rows and "MPICOLL_RANKS_PER_NODE" in os.environ:
        pytest.skip("mpi4py's own method makes both parts")
    for _ in range(calls):
        assert call(fresh, 1) == c.size
    if c.rank == 0:
        with signal_in_a_wait(c, _raise_late), pytest.raises(Late):
            call(fresh, 2)
    else:
        wait_for_the_handler(c)
        assert call(fresh, 2) == 2 * c.size
    assert call(fresh, 3) == 3 * c.size
    assert _sum(fresh, 3, COUNT + 1) == 3 * c.size


def test_ctrl_c_is_raised_after_the_call(c: Collectives, fresh: Any) -> None:
    out = np.zeros(2)
    if c.rank == 0:
        interrupt = partial(signal.default_int_handler, signal.SIGINT, None)
        with (
            signal_in_a_wait(c, interrupt, signal.SIGINT),
            pytest.raises(KeyboardInterrupt),
        ):
            fresh.Allreduce(np.ones(2), out)
    else:
        wait_for_the_handler(c)
        fresh.Allreduce(np.ones(2), out)
    assert list(out) == [c.size, c.size]
