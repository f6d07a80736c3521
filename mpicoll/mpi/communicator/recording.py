"""Record MPI's own collectives on our communicators; what is ours records itself.

Of nonblocking and persistent ones the beginning is recorded: their ends are those of requests.
The `State` of a communicator says who records and serves it. MPI keeps it as an attribute.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial, wraps
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from mpicoll.c_extension import _compiled

if TYPE_CHECKING:
    from mpicoll.flight.groups import GroupFlight

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
_SIZED = [(name, collective) for name, collective in NAMES.items() if name[0].isupper()]
ISSUED = {
    **{f"I{name.lower()}": f"i{collective}" for name, collective in _SIZED},
    **{f"{name}_init": f"{collective}_init" for name, collective in _SIZED},
}
"""mpi4py's methods that return a request, each with a name of its collective."""
_ROWS = frozenset(("gather", "scatter", "allgather", "reduce_scatter"))
"""Those of an array with a row for each rank, of which the sized argument is one row."""
_SIZED_BY_OUTPUT = frozenset(("scatter", "allreduce", "reduce_scatter", "scan", "exscan"))
"""Those whose second argument is the sized one."""
_MPI_ARGUMENTS: dict[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]] = {
    "barrier": itemgetter(slice(0)), "bcast": itemgetter(0, 3),
    **dict.fromkeys(("gather", "gatherv", "scatter", "scatterv"), itemgetter(0, 1, 3)),
    **dict.fromkeys(("allgather", "allgatherv", "alltoall", "alltoallv"), itemgetter(0, 1)),
    **dict.fromkeys(("allreduce", "reduce_scatter_block", "scan", "exscan"), itemgetter(0, 1, 2)),
    "reduce": itemgetter(0, 1, 2, 3),
    "reduce_scatter": lambda call: (call[0], *call[1], call[2]),  # with the output and the counts
}  # fmt: skip
"""What mpi4py's method takes of the input, the output, the operator and the root of a call."""
LOG = "_log"
"""The attribute of a communicator with what writes its rows; None while nothing does."""


class _Attribute:
    """The attribute of a communicator, which MPI drops as it frees the communicator.

    A function of Python that MPI calls then would crash MPICH 5.0.2 at times: mpi4py asks for the
    topology before it calls one, and MPICH looks that up among attributes that it has freed.
    """

    def __init__(self, state: Any) -> None:
        self.state = state

    def __del__(self) -> None:
        self.state.close()


@cache
def _key() -> int:
    return MPI.Comm.Create_keyval()


def attach(comm: MPI.Comm, state: Any) -> None:
    """Give a communicator its `State`."""
    comm.Set_attr(_key(), _Attribute(state))


def find_state(comm: MPI.Comm) -> Any:
    """Return the `State` of a communicator, None before its first call; not collective."""
    attribute: Any = comm.Get_attr(_key())
    return None if attribute is None else attribute.state


def recorded(kind: type[MPI.Intracomm]) -> type[MPI.Intracomm]:
    """Return a class of this kind whose collectives are recorded, but for those of `mpi_calls`."""
    methods = {
        name: _by_object(name, getattr(kind, name), partial(_on, name))
        for name in NAMES if name.islower() or name.lower() not in _MPI_ARGUMENTS
    }  # fmt: skip
    methods |= {
        name: _by_object(name, getattr(kind, name), partial(_issued_on, collective))
        for name, collective in ISSUED.items()
        if hasattr(kind, name)
    }
    return type("Intracomm", (kind,), {**methods, LOG: None})


def mpi_method(comm: MPI.Intracomm, name: str) -> Callable[..., Any]:
    """Return MPI's own blocking collective, bound to a communicator."""
    plain = MPI.Intracomm(comm)  # so that the communicator does not refer to itself
    return partial(_on(name, comm, getattr(MPI.Intracomm, name)), plain)


def mpi_calls(comm: MPI.Intracomm) -> Callable[..., None]:
    """Return what runs MPI's own collectives on a communicator, given as a channel takes them."""
    plain = MPI.Intracomm(comm)
    method = cache(lambda name: mpi_method(plain, name.capitalize()))

    def call(name: str, *arguments: Any) -> None:
        method(name)(*_MPI_ARGUMENTS[name](arguments))

    return call


def _by_object(name: str, method: Callable[..., Any], make: Callable[..., Any]) -> Any:
    """Return a method that calls a function which each communicator keeps.

    Args:
        make: takes a communicator and the method; returns the function, None to be asked again.
    """
    attribute = f"_recorded_{name}"

    @wraps(method)
    def call(comm: MPI.Intracomm, *arguments: Any, **named: Any) -> Any:
        run = comm.__dict__.get(attribute)
        if run is None:
            run = make(comm, method)
            setattr(comm, attribute, run)
            is_kept = run is not None and name in ISSUED and getattr(type(comm), name) is call
            if is_kept:  # further calls begin there
                setattr(comm, name, partial(run, MPI.Intracomm(comm)))
        return (run or method)(comm, *arguments, **named)

    return call


class RecordedRequest(MPI.Request):
    """A request whose wait is recorded.

    Attributes:
        recorded_wait: MPI's own wait, recorded.
    """

    __slots__ = ("recorded_wait",)
    recorded_wait: Callable[..., Any]

    def Wait(self, status: MPI.Status | None = None) -> Any:
        """Wait for the end of the call."""
        return self.recorded_wait(self, status)


def _issued_on(collective: str, comm: MPI.Comm, method: Callable[..., Any]) -> Any:
    """Return a method whose beginnings and waits are recorded; None while nothing records them."""
    from mpicoll.flight.records import WAIT

    state = find_state(comm)
    flight = (state and state.flight) or _issuing_flight(comm)
    if flight is None:
        return None
    place = flight.call(collective, "", "native", "MPI")
    if collective.endswith("_init"):
        return flight.log.recorded(place, method, True)
    wait = flight.messages.recorded(
        flight.call(WAIT, collective, "native", "MPI"), MPI.Request.Wait
    )
    return flight.log.recorded(place, method, True, (RecordedRequest, wait))


def _issuing_flight(comm: MPI.Comm) -> GroupFlight | None:
    """Return the recorder of a communicator that has made no blocking call yet; not collective.

    None where the ranks of a launch do not know its name by themselves.
    """
    from mpicoll.flight.groups import join_alone
    from mpicoll.mpi.exchange import world_ranks

    if comm == MPI.COMM_NULL or comm.size == 1:
        return None
    members = world_ranks(MPI.Intracomm(comm))
    return join_alone(comm.rank, members, writers=_compiled, name=comm.name)


def _on(name: str, comm: MPI.Comm, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method as it is recorded on one communicator; itself where nothing records.

    Where one order of folding is asked for, it folds in that order.
    """
    if comm == MPI.COMM_NULL:
        return method
    state = find_state(comm)
    if state is None:
        return method
    methods: dict[str, Callable[..., Any]] = state.methods
    if name not in methods:
        methods[name] = _recorded(name, comm.size, method, state)
    return methods[name]


def _recorded(name: str, size: int, method: Callable[..., Any], state: Any) -> Callable[..., Any]:
    """Return a method as it is recorded on the communicators of a state."""
    if state.settings.is_fixed:
        from mpicoll.mpi.communicator.in_order import in_order

        method = in_order(name, method)
    flight: GroupFlight | None = state.flight
    if flight is None:
        return method
    collective, is_sized = NAMES[name], name[0].isupper()
    kind = collective, "" if is_sized else "objects", "native", "MPI"
    if not is_sized:
        return flight.log.recorded(flight.call(*kind), method)
    rows = size if collective in _ROWS else 1
    return flight.log.recorded(
        flight.call(*kind), method, False, lambda nbytes: flight.call(*kind, nbytes * rows),
        2 if collective in _SIZED_BY_OUTPUT else 1,
    )  # fmt: skip
