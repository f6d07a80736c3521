"""Measure the cost of one instruction of a program, and how long a flag travels between two cores.

``mpirun -n 2 python -m tests.selftest.overhead``: rank 0 replays its program of an allreduce of
64 ranks with all flags raised, so that it never waits. Its time is that of the loop over
instructions, whose number grows with the number of ranks. Then ranks 0 and 1 send a flag to and fro
by the same loop, and half of a round trip is a trip.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from mpicoll.backend import SharedMemory
from mpicoll.cli.command import RanksCommand
from mpicoll.cli.options import Whole, option
from mpicoll.collectives import Collectives
from mpicoll.engine.compiled import AWAIT, NOWHERE, RAISE
from mpicoll.engine.row_waits import Operand
from mpicoll.errors import RankLost
from mpicoll.machine.waited import Waited
from mpicoll.measurement.worlds import ALL_BACKENDS, Worlds
from mpicoll.threads import threads

if TYPE_CHECKING:
    from mpicoll.engine._compiled import Program

_SAMPLES, _ROUND_TRIPS, _SECONDS = 21, 500, 0.005
"""How many samples; the round trips in one; how long one of a replay lasts at least."""
_DEADLINE = 60.0
NO_TRIP = "no trip between cores: it takes mpirun -n 2, and ranks that share memory"
_RAISED = 1 << 62
"""A number that no run reaches; read as two float32 it is 0 and 2."""


def overhead(algorithm: str, ranks: int, count: int) -> tuple[int, float]:
    """Return the instructions of rank 0's program of an allreduce, and the ns of each.

    Args:
        count: elements of float32.
    """
    is_bound, is_measured = threading.Barrier(ranks), threading.Event()

    def on_rank(c: Collectives) -> tuple[int, float]:
        x = np.ones(count, np.float32)
        plan = c.plan("allreduce", x, out=np.empty_like(x), algorithm=f"{algorithm}@symmetric")
        # From here on no rank looks at shared memory but the one that is measured.
        is_bound.wait()
        if c.rank:
            is_measured.wait()
            return 0, 0.0
        try:
            assert c.transport.shared is not None
            program: Any = plan.program
            with all_raised(c.transport.shared):
                return program.length, _nanoseconds(program.run) / program.length
        finally:
            is_measured.set()

    return threads(ranks)(on_rank)[0]


@contextmanager
def all_raised(memory: SharedMemory) -> Iterator[None]:
    """Have every flag of every rank raised, so that a program waits for none."""
    views = [
        np.frombuffer(buffer, np.int64) for buffer in chain.from_iterable(memory.words.values())
    ]
    copies = [original.copy() for original in views]
    for view in views:
        view[:] = _RAISED
    yield
    for view, words in zip(views, copies, strict=True):
        view[:] = words


def _nanoseconds(run: Callable[[], object]) -> float:
    """Return the median over samples of the time of a call."""
    calls = 1
    while _sample(run, calls) < _SECONDS:
        calls *= 2
    return median(_sample(run, calls) for _ in range(_SAMPLES)) / calls * 1e9


def _sample(run: Callable[[], object], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        run()
    return time.perf_counter() - began


def trip(c: Collectives) -> float | None:
    """Return the ns that a flag travels between the cores of two ranks; collective.

    None where there are not two, or they share no memory.
    """
    sample = trips(c)
    return sample and median(sample() for _ in range(_SAMPLES))


def trips(c: Collectives, round_trips: int = _ROUND_TRIPS) -> Callable[[], float] | None:
    """Return a function that measures once the ns of a flag between two ranks; all is collective.

    None where there are not two processes, or they share no memory.
    """
    memory = c.transport.shared
    if c.size != 2 or memory is None or len({*memory.processes.values()}) != 2:
        return None
    flag = c.allocate(1, "int64")
    flag[0] = 0
    places = c.exchange(memory.find(flag), tuple[int, int])
    addresses = [
        memory.address(rank, places[rank][0])[0] + places[rank][1] for rank in (c.rank, 1 - c.rank)
    ]
    rows = array("q")
    for number in range(round_trips):
        local_flag, remote_flag = (Operand(at, 0, tiles=round_trips, tile=number) for at in (0, 1))
        pair = ((RAISE, local_flag), (AWAIT, remote_flag))
        for code, target in pair if c.rank == 0 else pair[::-1]:
            rows.extend((code, 0, 0, *target, *NOWHERE, *NOWHERE))
    run = _program(rows, addresses).run

    def sample(_flag: object = flag) -> float:
        c.barrier()
        return _sample(run, 1) / (2 * round_trips) * 1e9

    return sample


def _program(rows: array[int], addresses: list[int]) -> Program:
    """Return the program of a table without folds; RankLost where a flag does not come in time."""
    from mpicoll.engine import _compiled

    row_of, waited = -1, Waited()

    def wait(program: object, row: int, error: int) -> None:
        nonlocal row_of, waited
        if row != row_of:
            row_of, waited = row, Waited()
        if waited.look() > _DEADLINE:
            raise RankLost(f"no flag from the other rank within {_DEADLINE:g} s")
        time.sleep(0)

    compiled_program: Program = _compiled.Program(
        rows, addresses, None, None, check=0, light=True, heavy=False, keep=None,
        waits=SimpleNamespace(wait=wait, test=lambda program, row: None),
    )  # fmt: skip
    return compiled_program


@click.command("overhead", cls=RanksCommand, help=__doc__)
@option("--ranks", type=Whole(2, 256), default=64, shown=True, help="Of the replayed programs.")
@click.pass_obj
def main(makers: Worlds, /, ranks: int) -> None:
    """Print a line for each algorithm, and the trip, on rank 0."""
    with makers["mpi4py"](None) as c:
        # The fewest elements with which each instruction has one.
        counts = {"one_shot": 1, "ring": ranks} if c.rank == 0 else {}
        overheads = {name: overhead(name, ranks, count) for name, count in counts.items()}
        c.exchange(None)
        travel = trip(c)
        for name, (count, ns) in overheads.items():
            share = f", {ns / travel:.2f} of a trip" if travel else ""
            print(f"{name} of {ranks} ranks: {count} instructions of {ns:.1f} ns{share}")
        if c.rank == 0:
            print(f"a trip between two cores: {travel:.0f} ns" if travel else NO_TRIP)


if __name__ == "__main__":
    main(obj=ALL_BACKENDS)
