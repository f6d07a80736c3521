"""Write what a program calls on our communicators, and how long it takes: ``MPICOLL_TRACE``.

Calls are counted by communicator, collective and bytes while the program runs, and written when it
ends, by each rank, as JSON lines; `mpicoll.trace` reads them.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
from collections.abc import Callable
from math import prod
from time import perf_counter, perf_counter_ns
from typing import Any

from mpi4py import MPI

from mpicoll.mpi.communicator.state import find_served
from mpicoll.notation.elements import itemsize

TRACE = "MPICOLL_TRACE"
_BUFFERS = {
    "Barrier": None, "Bcast": 0, "Gather": 0, "Gatherv": 0, "Scatter": 1, "Scatterv": 1,
    "Allgather": 0, "Allgatherv": 0, "Alltoall": 0, "Alltoallv": 0, "Alltoallw": None, "Reduce": 0,
    "Allreduce": 1, "Reduce_scatter_block": 1, "Reduce_scatter": 1, "Scan": 1, "Exscan": 1,
    "barrier": None, "bcast": 0, "gather": 0, "scatter": None, "allgather": 0, "alltoall": None,
    "reduce": 0, "allreduce": 0, "scan": 0, "exscan": 0,
}  # fmt: skip
"""The traced methods, each with the argument whose bytes are those of one rank."""
_OURS = {"bcast": "broadcast", "reduce_scatter_block": "reduce_scatter", "allgatherv": "allgather"}
_MOST = 1 << 16


class Trace:
    """The calls of this process.

    Attributes:
        recent: communicator, method, bytes and nanoseconds of the last calls.
        totals: for communicator, method and bytes: calls, nanoseconds, and the fewest of one call.
    """

    def __init__(self, path: str) -> None:
        self.path, self.began = path, perf_counter()
        self.recent: list[tuple[MPI.Comm, str, int, int]] = []
        self.totals: dict[tuple[str, int, str, int], list[Any]] = {}
        self.inside = False

    def traced(self, name: str, method: Callable[..., Any], place: int | None) -> Any:
        """Return a method that records its calls, but not those that it makes itself."""
        recent = self.recent

        @functools.wraps(method)
        def call(comm: MPI.Comm, *arguments: Any, **keywords: Any) -> Any:
            if self.inside:
                return method(comm, *arguments, **keywords)
            self.inside = True
            began = perf_counter_ns()
            try:
                return method(comm, *arguments, **keywords)
            finally:
                nanoseconds = perf_counter_ns() - began
                self.inside = False
                given = arguments[place] if place is not None and place < len(arguments) else None
                if type(given) in (list, tuple) and given:
                    given = given[0]
                recent.append((comm, name, getattr(given, "nbytes", 0), nanoseconds))
                if len(recent) >= _MOST:
                    self.add_up()

        return call

    def add_up(self) -> None:
        """Add the last calls to the totals."""
        for comm, name, nbytes, nanoseconds in self.recent:
            label = "freed" if comm == MPI.COMM_NULL else comm.name or f"of {comm.size}"
            key = label, 0 if comm == MPI.COMM_NULL else comm.size, name, nbytes
            total = self.totals.setdefault(key, [0, 0, nanoseconds, ("mpi", "")])
            total[0] += 1
            total[1] += nanoseconds
            total[2] = min(total[2], nanoseconds)
            if total[3] == ("mpi", ""):
                total[3] = _ran(comm, name, nbytes)
        self.recent.clear()

    def write(self) -> None:
        """Append this rank's calls to the file."""
        self.add_up()
        rank = int(os.environ.get("MPICOLL_TRACE_RANK", "0"))
        head = {"schema": "mpicoll.trace/1", "rank": rank, "seconds": perf_counter() - self.began}
        lines = [head]
        for (label, size, name, nbytes), (calls, spent, least, ran) in self.totals.items():
            lines.append({
                "rank": rank, "communicator": label, "ranks": size, "call": name,
                "bytes_per_rank": nbytes, "calls": calls, "seconds": spent / 1e9,
                "least_us": least / 1e3, "algorithm": ran[0], "transport": ran[1],
            })  # fmt: skip
        data = "".join(json.dumps(each) + "\n" for each in lines).encode()
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, data)
        finally:
            os.close(file)


def _ran(comm: MPI.Comm, name: str, nbytes: int) -> tuple[str, str]:
    """Return algorithm and transport of such calls, ``mpi`` where MPI served them."""
    served = None if comm == MPI.COMM_NULL else find_served(comm)
    if served is not None and name.islower():
        return "of objects", ""
    collective = _OURS.get(name.lower(), name.lower())
    for (_, what, *_, dtype, _, row, _), each in served.signatures.items() if served else ():
        width = prod(row or ()) * itemsize(dtype) if dtype else 0
        whole = width * comm.size if collective == "alltoall" else width
        if each.plan is not None and what == collective and whole == nbytes:
            return each.plan.algorithm, each.plan.transport
    return "mpi", ""


def trace_calls(kind: type) -> None:
    """Trace the collectives of a class, where the environment names a file."""
    path = os.environ.get(TRACE)
    if not path:
        return
    trace = Trace(path)
    for name, place in _BUFFERS.items():
        setattr(kind, name, trace.traced(name, getattr(kind, name), place))
    rank = MPI.COMM_WORLD.rank if MPI.Is_initialized() else 0
    os.environ["MPICOLL_TRACE_RANK"] = str(rank)
    if rank == 0:
        open(path, "w").close()
    atexit.register(trace.write)
