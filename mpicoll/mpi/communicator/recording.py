"""Record MPI's own collectives on our communicators; what is ours records itself.

Of nonblocking and persistent ones the beginning is recorded: their ends are those of requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mpi4py import MPI

from mpicoll.execution.extension import _compiled
from mpicoll.flight import groups
from mpicoll.flight.records import Call
from mpicoll.mpi.communicator.in_order import in_order
from mpicoll.mpi.communicator.state import find_flight, is_fixed, prepare_folds

NAMES = {
    "Barrier": "barrier", "Bcast": "broadcast", "Gather": "gather", "Gatherv": "gather",
    "Scatter": "scatter", "Scatterv": "scatter", "Allgather": "allgather",
    "Allgatherv": "allgather", "Alltoall": "alltoall", "Alltoallv": "alltoall",
    "Alltoallw": "alltoall", "Reduce": "reduce", "Allreduce": "allreduce",
    "Reduce_scatter_block": "reduce_scatter", "Reduce_scatter": "reduce_scatter", "Scan": "scan",
    "Exscan": "exscan", "bcast": "broadcast", "gather": "gather", "scatter": "scatter",
    "allgather": "allgather", "alltoall": "alltoall", "reduce": "reduce",
    "allreduce": "allreduce", "scan": "scan", "exscan": "exscan",
}  # fmt: skip
"""mpi4py's methods that are recorded, each with our name of its collective."""
_FOLDS = frozenset(("reduce", "allreduce", "scan", "exscan"))
"""Those that fold objects."""
LOG = "_log"
"""The attribute of a communicator with what writes its rows; None while nothing does."""


def recorded(kind: type[MPI.Intracomm]) -> type[MPI.Intracomm]:
    """Return a class of this kind whose collectives are recorded."""
    methods = {name: _recorded(name, getattr(kind, name)) for name in NAMES}
    methods |= {
        name: _compiled.issued(LOG, partial(_place, collective), getattr(kind, name))
        for name, collective in _issued_names()
        if hasattr(kind, name)
    }
    return type("Intracomm", (kind,), {**methods, LOG: None})


def _recorded(name: str, method: Callable[..., Any]) -> Any:
    attribute = f"_recorded_{name}"

    def make(comm: MPI.Comm) -> Callable[..., Any]:
        run = _on(comm, name, method)
        setattr(comm, attribute, run)
        return run

    return _compiled.kept(attribute, make, method)


def _issued_names() -> Iterator[tuple[str, str]]:
    """Yield mpi4py's methods that return a request, each with a name of its collective."""
    for name, collective in NAMES.items():
        if name[0].isupper():
            yield f"I{name.lower()}", f"i{collective}"
            yield f"{name}_init", f"{collective}_init"


def _place(collective: str) -> int:
    """Return the place of such calls in the table of this process."""
    recorder = groups.find()
    return 0 if recorder is None else recorder.intern(Call(collective, "", "native", "MPI"))


def _on(comm: MPI.Comm, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method as it is recorded on one communicator; itself where nothing records.

    Where one order of folding is asked for, it folds in that order.
    """
    if comm == MPI.COMM_NULL:
        return method
    if is_fixed(comm):
        method = in_order(name, method)
    elif name in _FOLDS:
        prepare_folds(comm)
    flight = find_flight(comm)
    if flight is None:
        return method
    return flight.log.recorded(flight.call(NAMES[name], "", "native", "MPI"), method)
