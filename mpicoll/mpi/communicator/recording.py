"""Record MPI's own collectives on our communicators; what is ours records itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from mpicoll.mpi.communicator.state import find_flight

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


def recorded(kind: type[MPI.Intracomm]) -> type[MPI.Intracomm]:
    """Return a class of this kind whose blocking collectives are recorded."""
    methods = {name: _recorded(name, getattr(kind, name)) for name in NAMES}
    return type("Intracomm", (kind,), methods)


def _recorded(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(comm: Any, *arguments: Any, **keywords: Any) -> Any:
        known = comm.__dict__.get("_recorded")
        if known is None:
            known = comm._recorded = {}
        run = known.get(name)
        if run is None:
            run = known[name] = _on(comm, name, method)
        return run(comm, *arguments, **keywords)

    return call


def _on(comm: MPI.Comm, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method as it is recorded on one communicator; itself where nothing records."""
    flight = None if comm == MPI.COMM_NULL else find_flight(comm)
    if flight is None:
        return method
    return flight.log.recorded(flight.call(NAMES[name], "", "native", "MPI"), method)
