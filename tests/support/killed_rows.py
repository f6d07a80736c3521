"""Kill one of two ranks before each row of a few programs, and say how the other one ends.

    PYTHONPATH=. mpirun -n 2 python tests/support/killed_rows.py

Each pair is a child of each rank: rank 1's runs the rows before one and is killed, rank 0's runs
the whole program; both make it anew, as what their parents have made is refused there. They call
no MPI while they wait, as MPI's messages are their parents'. Prints for each program how many
survivors named the rank that has ended, how many had all they need, and how many ended otherwise;
the last fails.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

import mpicoll
from mpicoll import Collectives, RankLost
from mpicoll.engine import extension

PROGRAMS = [
    ("allreduce", "one_shot@symmetric", 4), ("allreduce", "two_shot@symmetric", 80_000),
    ("allreduce", "ring@cma", 20_000), ("broadcast", "one_shot@symmetric", 530_000),
    ("reduce", "one_shot@cma", 20_000), ("barrier", "dissemination@symmetric", 0),
]  # fmt: skip
"""Collective, algorithm, and elements: windows, slots, what is fetched, and flags alone."""
COMPLETE, NAMED, OTHERWISE = range(3)
_DEADLINE = 20.0


class Made:
    """A program whose rows can be made anew."""

    def __init__(self, make: Callable[[int], Any], rows: int) -> None:
        self.make, self.program = make, make(rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def run_anew(self, rows: int) -> None:
        """Run the first rows."""
        self.program = self.make(rows)
        self.program.run()


class Kept:
    """The extension, which keeps its last program."""

    def __init__(self, extension: Any) -> None:
        self.extension = extension

    def Program(self, table: Any, *given: Any, **options: Any) -> Made:
        width = self.extension.COLUMNS

        def make(rows: int) -> Any:
            more = {} if rows * width == len(table) else {"check": 0}
            return self.extension.Program(table[: rows * width], *given, **options | more)

        self.last = Made(make, len(table) // width)
        return self.last


def main(c: Collectives) -> int:
    """Return how many survivors neither completed nor named the rank that has ended."""
    kept = Kept(extension._compiled)
    extension._compiled = kept
    others = 0
    for name, algorithm, many in PROGRAMS:
        if algorithm.partition("@")[2] not in c.transports:
            continue
        x, ended, rows = np.ones(many, np.float32), list[int](), 1
        while len(ended) < rows:
            # Flags count the runs of a plan, so that each pair takes another plan.
            plan = c.plan(name, x if many else None, algorithm=algorithm)
            own = kept.last.length
            rows = c.exchange(own, int)[1]
            ended.append(_pair(c, kept, own, len(ended)))
            plan.free()
        if c.rank == 0:
            counts = [ended.count(each) for each in (NAMED, COMPLETE)]
            others += len(ended) - sum(counts)
            print(
                f"{name} {algorithm}: killed before each of {rows} rows: {counts[0]} named, "
                f"{counts[1]} complete, {len(ended) - sum(counts)} otherwise", flush=True,
            )  # fmt: skip
        elif set(ended) != {-signal.SIGKILL}:
            others += 1
    return sum(c.exchange(others, int))


def _pair(c: Collectives, kept: Kept, rows: int, row: int) -> int:
    """Return how the child of this rank ends."""
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        peer = int.from_bytes(os.read(told, 8), "little")
        _survivor(c, kept, rows, peer) if c.rank == 0 else _victim(c, kept, row)
    os.write(tell, c.exchange(child, int)[1 - c.rank].to_bytes(8, "little"))
    _, status = os.waitpid(child, 0)
    os.close(told)
    os.close(tell)
    return os.waitstatus_to_exitcode(status)


def _survivor(c: Collectives, kept: Kept, rows: int, peer: int) -> NoReturn:
    policy = _wait_alone(c)
    policy.deadline, policy.processes[1] = _DEADLINE, peer
    ending = COMPLETE
    try:
        kept.last.run_anew(rows)
    except RankLost as error:
        ending = NAMED if "which has ended" in str(error) else OTHERWISE
    except BaseException:
        traceback.print_exc()
        ending = OTHERWISE
    os._exit(ending)


def _victim(c: Collectives, kept: Kept, row: int) -> NoReturn:
    try:
        _wait_alone(c)
        kept.last.run_anew(row)
        os.kill(os.getpid(), signal.SIGKILL)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(OTHERWISE)  # a child must not free the group of its parent


def _wait_alone(c: Collectives) -> Any:
    """Return the wait policy of this child, whose waits leave its parent's messages alone."""
    policy: Any = c.transport.shared and c.transport.shared.wait_policy
    policy.progress = lambda: None
    return policy


if __name__ == "__main__":
    with mpicoll.world() as group:
        sys.exit(min(1, main(group)))
