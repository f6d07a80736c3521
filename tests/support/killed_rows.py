"""Kill one of two ranks before each row of a few programs, and say how the other one ends.

    PYTHONPATH=. mpirun -n 2 python tests/support/killed_rows.py

Each pair is a child of each rank: rank 1's runs the rows before one and is killed, rank 0's runs
the whole program. Prints for each program how many survivors named the rank that has ended, how
many had all they need, and how many ended otherwise; the last fails.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn

import numpy as np

import mpicoll
from mpicoll import Collectives, RankLost
from mpicoll.execution import compiled
from mpicoll.execution.plan import Plan

PROGRAMS = [
    ("allreduce", "one_shot@symmetric", 4), ("allreduce", "two_shot@symmetric", 80_000),
    ("allreduce", "ring@cma", 20_000), ("broadcast", "one_shot@symmetric", 200_000),
    ("reduce", "one_shot@cma", 20_000), ("barrier", "dissemination@symmetric", 0),
]  # fmt: skip
"""Collective, algorithm, and elements: windows, slots, what is fetched, and flags alone."""
COMPLETE, NAMED, OTHERWISE = range(3)
_DEADLINE = 20.0


class Kept:
    """The extension, which keeps what its last program was made of."""

    def __init__(self, extension: Any) -> None:
        self.extension = extension

    def Program(self, rows: Any, *given: Any, **options: Any) -> Any:
        self.last = rows, given, options
        return self.extension.Program(rows, *given, **options)

    def part(self, rows: int) -> Any:
        """Return the first rows of the last program."""
        table, given, options = self.last
        part = table[: rows * self.extension.COLUMNS]
        return self.extension.Program(part, *given, **options | {"check": 0})


def main(c: Collectives) -> int:
    """Return how many survivors neither completed nor named the rank that has ended."""
    kept = Kept(compiled._compiled)
    compiled._compiled = kept
    others = 0
    for name, algorithm, many in PROGRAMS:
        if algorithm.partition("@")[2] not in c.transports:
            continue
        x, ended, rows = np.ones(many, np.float32), list[int](), 1
        while len(ended) < rows:
            # Flags count the runs of a plan, so that each pair takes another plan.
            plan = c.plan(name, x if many else None, algorithm=algorithm)
            program: Any = plan.program
            rows = c.exchange(program.length, int)[1]
            ended.append(_pair(c, plan, kept, len(ended)))
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


def _pair(c: Collectives, plan: Plan, kept: Kept, row: int) -> int:
    """Return how the child of this rank ends."""
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        peer = int.from_bytes(os.read(told, 8), "little")
        _survivor(c, plan, peer) if c.rank == 0 else _victim(kept, row)
    os.write(tell, c.exchange(child, int)[1 - c.rank].to_bytes(8, "little"))
    _, status = os.waitpid(child, 0)
    os.close(told)
    os.close(tell)
    return os.waitstatus_to_exitcode(status)


def _survivor(c: Collectives, plan: Plan, peer: int) -> NoReturn:
    policy: Any = c.transport.shared and c.transport.shared.wait_policy
    policy.deadline, policy.processes[1] = _DEADLINE, peer
    ending = COMPLETE
    try:
        plan.run()
    except RankLost as error:
        ending = NAMED if "which has ended" in str(error) else OTHERWISE
    except BaseException:
        ending = OTHERWISE
    os._exit(ending)


def _victim(kept: Kept, row: int) -> NoReturn:
    kept.part(row).run()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is killed")


if __name__ == "__main__":
    if compiled.MISSING:
        raise SystemExit(f"there is no compiled executor: {compiled.MISSING}")
    with mpicoll.world() as group:
        sys.exit(min(1, main(group)))
