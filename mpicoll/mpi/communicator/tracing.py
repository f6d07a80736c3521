"""Write what a program calls on our communicators, and how long it takes: ``MPICOLL_TRACE``.

Every call is counted while the program runs, with its time, in the tally of its kind: by the
compiled executor where that serves it, and around MPI's own method where that does. The tallies of
a rank are in a file beside the trace, which the process maps. When the program ends, each rank
appends its tallies to the trace as JSON lines, and removes its file. `mpicoll.trace` reads both.
"""

from __future__ import annotations

import atexit
import errno
import functools
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from mpi4py import MPI

from mpicoll.calls.arguments import Arguments
from mpicoll.engine import tallies
from mpicoll.engine.plan import Plan
from mpicoll.engine.tally_file import Record, TallyFile, lines_of, remove
from mpicoll.errors import ArgumentError
from mpicoll.machine.nodes import stated_node
from mpicoll.mpi.communicator.members import world_ranks
from mpicoll.mpi.communicator.method_arguments import Call
from mpicoll.mpi.communicator.reading import OPS
from mpicoll.text import traces
from mpicoll.text.lines import Lines
from mpicoll.text.numbers import ranges
from mpicoll.text.opening import open_by_name
from mpicoll.text.printable import printable
from mpicoll.text.traces import OPENING, SCHEMA, VARIABLE, path_of_rank, paths_of_ranks

_BUFFERS = {
    "Barrier": None, "Bcast": 0, "Gather": 0, "Gatherv": 0, "Scatter": 1, "Scatterv": 1,
    "Allgather": 0, "Allgatherv": 0, "Alltoall": 0, "Alltoallv": 0, "Alltoallw": None, "Reduce": 0,
    "Allreduce": 1, "Reduce_scatter_block": 1, "Reduce_scatter": 1, "Scan": 1, "Exscan": 1,
    "barrier": None, "bcast": 0, "gather": 0, "scatter": None, "allgather": 0, "alltoall": None,
    "reduce": 0, "allreduce": 0, "scan": 0, "exscan": 0,
}  # fmt: skip
"""The traced methods, each with the argument whose bytes are those of one rank."""
_FROM_OUT = ("broadcast", "scatter", "reduce_scatter")
_OUTPUTS = ("scatter", "scatterv", "allreduce", "scan", "exscan")
"""The methods in small letters whose bytes of one rank are those of its output."""
_CHANNEL = "slots", "symmetric"
"""The algorithm and the transport of a channel."""
_NAMES = {"broadcast": "Bcast", "reduce_scatter_own": "Reduce_scatter"}
"""mpi4py's methods of what is named otherwise here."""


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
    """The calls of this process.

    Raises:
        ArgumentError: the file of this rank cannot be created.
    """

    def __init__(self, path: Path) -> None:
        is_launched = MPI.Is_initialized()
        self.path, self.process = path, os.getpid()
        self.rank = MPI.COMM_WORLD.rank if is_launched else 0
        self.size = MPI.COMM_WORLD.size if is_launched else 1
        node = stated_node(self.rank)
        head = {"schema": SCHEMA, "rank": self.rank, "size": self.size,
                "node": os.uname().nodename if node is None else str(node)}  # fmt: skip
        try:
            self.file = TallyFile(path_of_rank(path, self.rank), head)
        except OSError as error:
            raise ArgumentError(
                f"{VARIABLE}: cannot write {path_of_rank(path, self.rank)}: {error.strerror}"
            ) from None
        self.is_full = False
        self.records: dict[Kind, Record] = {}

    def tally(self, kind: Kind) -> memoryview:
        """Return the tally of a kind of calls."""
        record = self.records.get(kind)
        if record is None:
            self.file.synchronise()
            record = self.records[kind] = self._record(kind._asdict())
        return record.numbers

    def _record(self, description: dict[str, Any]) -> Record:
        """Return a record of the file; one in private memory once the disk is full."""
        if not self.is_full:
            try:
                return self.file.add(description)
            except OSError as error:
                self.is_full = True
                _warn(f"{self.file.path}: {error.strerror}: a rank that is killed leaves a part")
        return Record(description, memoryview(tallies.new()))

    def traced(
        self, name: str, place: int | None, method: Callable[..., Any],
        algorithm: str = "mpi", transport: str = "",
    ) -> Any:  # fmt: skip
        """Return a method whose calls are counted; MPI's own, or those of an `algorithm`."""
        count, ticks = tallies.count, tallies.ticks
        plain_tallies = dict[tuple[str, int, str, str, int], memoryview]()

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
                        kind = Kind(*key, "", "", algorithm, transport)
                        tally = plain_tallies[key] = self.tally(kind)
                    count(tally, began)

        return call

    def write(self) -> None:
        """Append this rank's calls to the trace, and remove the file of the rank."""
        if os.getpid() != self.process:  # a child that the program has forked
            return
        self.file.synchronise()
        lines = lines_of(self.file.head, self.records.values())
        try:
            _append(self.path, "".join(json.dumps(line) + "\n" for line in lines).encode())
        except OSError as error:
            _warn(f"{self.path}: {error.strerror}")
        else:
            with suppress(OSError):
                self.file.path.unlink()


def _append(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    file = open_by_name(path, flags, 0o644, is_of_user=True)
    try:
        if os.write(file, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(file)


def kind_of(comm: MPI.Comm, name: str, call: Call, arguments: Arguments, ran: Plan) -> Kind:
    """Return as what calls of a method, in small letters, are counted that a plan serves."""
    array = call.out if call.name in _FROM_OUT else call.x
    return Kind(
        *_label(comm), _NAMES.get(name, name.capitalize()),
        0 if array is None else array.nbytes, arguments.dtype or "",
        call.op if arguments.collective.reduces else "", ran.algorithm, ran.transport,
    )  # fmt: skip


def traced(comm: MPI.Comm, channel: Any) -> Any:
    """Return a channel whose calls are counted, if calls are traced."""
    if TRACING is None:
        return channel
    trace, known = TRACING, dict[Any, memoryview]()

    def call(name: str, x: Any, out: Any, op: Any, *others: Any) -> Any:
        began = tallies.ticks()
        if (is_mpi := channel(name, x, out, op, *others)) is not True:
            array = out if name in _OUTPUTS else x
            if type(array) in (list, tuple) and array:
                array = array[0]
            handle = op.handle if isinstance(op, MPI.Op) else None
            key = name, getattr(array, "nbytes", 0), getattr(array, "dtype", ""), handle
            if key not in known:
                known[key] = trace.tally(_kind_of_channel(comm, *key))
            tallies.count(known[key], began)
        return is_mpi

    call.exchange = channel.exchange  # type: ignore[attr-defined]
    return call


def traced_method(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return what runs a method of objects over a channel; its calls are counted if calls are."""
    if TRACING is None:
        return run
    method: Callable[..., Any] = TRACING.traced(name, _BUFFERS[name], run, *_CHANNEL)
    return method


def _kind_of_channel(comm: MPI.Comm, name: str, nbytes: int, dtype: Any, handle: Any) -> Kind:
    op_name = "" if handle is None else OPS[handle][0]
    text = str(dtype) if op_name else ""
    call = _NAMES.get(name, name.capitalize())
    return Kind(*_label(comm), call, nbytes, text, op_name, *_CHANNEL)


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
    path = traces.traced()
    if path is None:
        return None
    trace = Trace(path)
    if trace.rank == 0:
        for rank, file in paths_of_ranks(path).items():
            if rank >= trace.size:  # of an earlier program that ran on more ranks
                remove(file)
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
