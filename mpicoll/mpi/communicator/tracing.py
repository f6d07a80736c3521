"""Write what a program calls on our communicators, and how long it takes: ``MPICOLL_TRACE``.

Every call is counted while the program runs, with its time, in the tally of its kind: by the
compiled executor where that serves it, and around MPI's own method where that does. Each rank
writes its tallies when the program ends, as JSON lines; `mpicoll.trace` reads them.
"""

from __future__ import annotations

import atexit
import errno
import functools
import json
import os
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from mpi4py import MPI

from mpicoll.calls.arguments import Arguments
from mpicoll.engine import tallies
from mpicoll.engine.plan import Plan
from mpicoll.machine.nodes import stated_node
from mpicoll.mpi.communicator.members import world_ranks
from mpicoll.mpi.communicator.reading import Call
from mpicoll.text.lines import Lines
from mpicoll.text.numbers import ranges
from mpicoll.text.printable import printable
from mpicoll.text.traces import OPENING, SCHEMA, VARIABLE, traced

_BUFFERS = {
    "Barrier": None, "Bcast": 0, "Gather": 0, "Gatherv": 0, "Scatter": 1, "Scatterv": 1,
    "Allgather": 0, "Allgatherv": 0, "Alltoall": 0, "Alltoallv": 0, "Alltoallw": None, "Reduce": 0,
    "Allreduce": 1, "Reduce_scatter_block": 1, "Reduce_scatter": 1, "Scan": 1, "Exscan": 1,
    "barrier": None, "bcast": 0, "gather": 0, "scatter": None, "allgather": 0, "alltoall": None,
    "reduce": 0, "allreduce": 0, "scan": 0, "exscan": 0,
}  # fmt: skip
"""The traced methods, each with the argument whose bytes are those of one rank."""
_FROM_OUT = ("broadcast", "scatter", "reduce_scatter")
_NAMES = {"broadcast": "Bcast", "reduce_scatter_own": "Reduce_scatter"}
"""mpi4py's methods of what is named otherwise here."""
AS_OBJECT = "as object"
"""The algorithm of a call whose arrays are an object: shapes count, too."""


class Kind(NamedTuple):
    """Calls that are counted together.

    Attributes:
        dtype, op: empty where they are not known.
        members: the communicator's ranks in ``MPI_COMM_WORLD``, as ranges; empty where a member
            is of another launch.
        algorithm: ``mpi`` where MPI's own method ran.
    """

    communicator: str
    ranks: int
    members: str
    call: str
    bytes_per_rank: int
    dtype: str = ""
    op: str = ""
    algorithm: str = "mpi"
    transport: str = ""


class Trace:
    """The calls of this process."""

    def __init__(self, path: Path) -> None:
        self.path, self.began, self.began_ticks = path, perf_counter(), tallies.ticks()
        self.rank = MPI.COMM_WORLD.rank if MPI.Is_initialized() else 0
        self.tallies: dict[Kind, array[int]] = {}
        self.plain: dict[tuple[str, int, str, str, int], array[int]] = {}

    def tally(self, kind: Kind) -> array[int]:
        """Return the tally of a kind of calls."""
        return self.tallies.setdefault(kind, tallies.new())

    def traced(self, name: str, place: int | None, method: Callable[..., Any]) -> Any:
        """Return a method of MPI's own whose calls are counted."""
        count, ticks, plain_tallies = tallies.count, tallies.ticks, self.plain

        @functools.wraps(method)
        def call(comm: MPI.Comm, *arguments: Any, **keywords: Any) -> Any:
            began = ticks()
            try:
                return method(comm, *arguments, **keywords)
            finally:
                buffer = arguments[place] if place is not None and place < len(arguments) else None
                if type(buffer) in (list, tuple) and buffer:
                    buffer = buffer[0]
                if comm != MPI.COMM_NULL:
                    key = (*_label(comm), name, getattr(buffer, "nbytes", 0))
                    tally = plain_tallies.get(key)
                    if tally is None:
                        tally = plain_tallies[key] = self.tally(Kind(*key))
                    count(tally, began)

        return call

    def write(self) -> None:
        """Append this rank's calls to the file."""
        seconds = perf_counter() - self.began
        tick = seconds / max(1, tallies.ticks() - self.began_ticks)
        node = stated_node(self.rank)
        head = {"schema": SCHEMA, "rank": self.rank, "seconds": seconds,
                "node": os.uname().nodename if node is None else str(node)}  # fmt: skip
        lines: list[dict[str, Any]] = [head]
        for kind, tally in self.tallies.items():
            times = tallies.read(tally, 1e6 * tick)
            if times.calls:
                lines.append({
                    "rank": self.rank, **kind._asdict(), "calls": times.calls, "timed": times.timed,
                    "seconds": times.calls * times.mean / 1e6, "least_us": times.least,
                    "most_us": times.most,
                    "histogram": [(round(low, 3), calls) for low, calls in times.histogram],
                })  # fmt: skip
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o644)
            try:
                written = os.write(file, data)
            finally:
                os.close(file)
        except OSError as error:
            _warn(f"{self.path}: {error.strerror}")
            return
        if written < len(data):
            _warn(f"{self.path}: {os.strerror(errno.ENOSPC)}")


def kind_of(
    comm: MPI.Comm, key: tuple[Any, ...], call: Call, arguments: Arguments, ran: Plan
) -> Kind:
    """Return what calls are counted as that a plan of ours serves.

    Args:
        key: the arguments by which they are found.
    """
    name, *_, algorithm = key
    array = call.out if call.name in _FROM_OUT else call.x
    return Kind(
        *_label(comm), name if algorithm is AS_OBJECT else _NAMES.get(name, name.capitalize()),
        0 if array is None else array.nbytes, arguments.dtype or "",
        call.op if arguments.collective.reduces else "", ran.algorithm, ran.transport,
    )  # fmt: skip


def _label(comm: Any) -> tuple[str, int, str]:
    """Return a communicator's name, or its size where it has none, its size and its members."""
    label: tuple[str, int, str] | None = getattr(comm, "_label", None)
    if label is None:
        members = world_ranks(comm)
        text = "" if min(members) < 0 else ranges(members)
        label = comm.name or f"of {comm.size}", comm.size, text
        if hasattr(comm, "__dict__"):
            comm._label = label
    return label


def _opened() -> Trace | None:
    """Return the trace that the environment asks for, which is written when the program ends.

    Raises:
        ArgumentError: it cannot be written: better now than when the program has run for hours.
    """
    path = traced()
    if path is None:
        return None
    trace = Trace(path)
    if trace.rank == 0:
        Lines(path, OPENING).close()
    atexit.register(trace.write)
    return trace


def _warn(text: str) -> None:
    print(printable(f"warning: {VARIABLE}: {text}"), file=sys.stderr, flush=True)


TRACING = _opened()


def base() -> type[MPI.Intracomm]:
    """Return MPI's class, or one of its kind whose blocking collectives are counted."""
    if TRACING is None:
        return MPI.Intracomm
    methods = {
        name: TRACING.traced(name, place, getattr(MPI.Intracomm, name))
        for name, place in _BUFFERS.items()
    }
    return type("Intracomm", (MPI.Intracomm,), methods)
