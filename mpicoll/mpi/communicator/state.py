"""What a communicator keeps: when it has been used often enough, the collectives that serve it.

It is an attribute of MPI's communicator, so that every object of Python with its handle finds the
same one. When that communicator is freed, the next one of the same ranks in the same order takes it
over: its calls follow those of the freed one, as if they were on one communicator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from threading import Lock
from time import sleep
from typing import TYPE_CHECKING, Any, NamedTuple

from mpi4py import MPI

from mpicoll.c_extension import _compiled
from mpicoll.calls.agreement import raise_any
from mpicoll.calls.order import is_asked_for
from mpicoll.errors import ArgumentError, Disagreement
from mpicoll.flight.groups import GroupFlight, join
from mpicoll.machine.network import host_identity
from mpicoll.machine.nodes import group_by_node, stated_node
from mpicoll.mpi.communicator.members import runs_everywhere, world_ranks
from mpicoll.mpi.exchange import exchange_items
from mpicoll.selection.forced import WARMUP as WARMUP
from mpicoll.selection.forced import forced, stated_first_calls

if TYPE_CHECKING:
    from mpicoll.backend import Nodes
    from mpicoll.mpi.communicator.dispatcher import Dispatcher

FORCED = "MPICOLL_ALGORITHM"
_WARMUP_CALLS, _REPEATS = 16, 2

_MOST_SERVED = 64
"""The communicators of a process that are ours: each takes three more of MPI's, which has few."""

_MOST_IDLE = 8
"""The states of freed communicators that a process keeps for others of the same ranks."""

_NAP = 0.01
"""The most seconds before a rank tries again to be the only thread that duplicates."""

_keyval: list[int] = []
_duplicating, _pooling = Lock(), Lock()
_live: set[Dispatcher] = set()
_numbers = count()
_idle: list[State] = []
"""The states of freed communicators, oldest first."""


class Wishes(NamedTuple):
    """What the environment says.

    Attributes:
        is_fixed: it asks for one order of folding.
        error: what is wrong with it.
    """

    warmup_calls: int = 0
    repeats: int = 1
    algorithms: dict[str, str] = {}  # noqa: RUF012  a tuple's default, never changed
    is_fixed: bool = False
    error: str | None = None


class Offer(NamedTuple):
    """What a rank tells the others of a new communicator.

    Attributes:
        member: this rank in ``MPI_COMM_WORLD``.
        number: of a new state, where this is the first rank.
        idle: the numbers of states that this rank can reuse.
        host: of this rank.
        node: of this rank, as the user states it.
    """

    wishes: Wishes
    member: int
    number: int
    idle: tuple[int, ...]
    host: str
    node: int | None


class State:
    """The state of one communicator: how often it was used, and what serves it.

    Args:
        members: the communicator's ranks in ``MPI_COMM_WORLD``.
        number: the same on all ranks, and another one for each state of these members.

    Attributes:
        nodes: the ranks of each node.
        is_mpi: MPI serves it, as too many others are ours, or some rank does not run the drop-in.
        folds: mpi4py has what its reductions of objects need.
        flight: records its calls, None where nothing does.
        methods: those that are made for it, by name.
    """

    def __init__(self, members: tuple[int, ...], number: int, wishes: Wishes) -> None:
        self.members, self.number, self.wishes = members, number, wishes
        self.nodes: Nodes = ()
        self.calls, self.is_mpi, self.folds = 0, False, False
        self.methods: dict[str, Callable[..., Any]] = {}
        self.flight: GroupFlight | None = None
        self.dispatcher: Dispatcher | None = None

    @property
    def is_reusable(self) -> bool:
        """Whether another communicator of the same ranks can have it."""
        in_order = self.dispatcher is None or self.dispatcher.is_in_order
        return in_order and not self.is_mpi and min(self.members) >= 0

    def close(self) -> None:
        """Release what serves the communicator."""
        if self.dispatcher is not None:
            _live.discard(self.dispatcher)
            self.dispatcher.close()


def _state_of(comm: MPI.Intracomm) -> State:
    """Return a new state for a communicator, or that of a freed one; collective."""
    members = world_ranks(comm)
    if not runs_everywhere(comm, members):
        state = State(members, -1, Wishes())
        state.is_mpi = state.folds = True
        return state
    reusable = _take(members)
    offers = exchange_items(comm, _offer(tuple(reusable)), Offer)
    if min(members) >= 0:
        members = tuple(offer.member for offer in offers)  # whatever MPI says of the group
    wishes = _agreed(comm.rank, [offer.wishes for offer in offers])
    nodes, _ = group_by_node([offer.host for offer in offers], [offer.node for offer in offers])
    common = set(reusable).intersection(*(offer.idle for offer in offers))
    for number in reusable.keys() - common:
        reusable.pop(number).close()
    same = members, wishes
    usable = sorted(
        number for number in common if (reusable[number].members, reusable[number].wishes) == same
    )
    state = reusable.pop(usable[0]) if usable else State(members, offers[0].number, wishes)
    state.nodes = nodes
    _idle.extend(reusable.values())
    if usable:
        state.folds = False  # mpi4py has not duplicated this communicator
        state.methods.clear()  # they have the handle of the freed one
        if state.dispatcher is not None:
            state.dispatcher.comm = comm
    else:
        state.flight = join(
            partial(exchange_items, comm), comm.rank, comm.size, writers=_compiled,
            name=comm.name,
        )  # fmt: skip
    return state


def _take(members: tuple[int, ...]) -> dict[int, State]:
    """Return the idle states of these ranks by number, which no other thread gets meanwhile."""
    with _pooling:
        states = {state.number: state for state in _idle if state.members == members}
        _idle[:] = [state for state in _idle if state.members != members]
    return states


def table_of(comm: MPI.Comm, *, at_once: bool = False) -> Callable[..., Any] | None:
    """Return what runs a call, None where MPI is to as long as that is open; collective.

    Args:
        at_once: also in the first calls of the communicator, the same on all ranks.

    Raises:
        ArgumentError: the environment names an algorithm that does not exist; `Disagreement` where
            it is not the same on all ranks.
    """
    plain = MPI.Intracomm(comm)
    state: Any = plain.Get_attr(_key())
    if plain.size == 1:
        return mpi_call
    if state is None:
        state = _state_of(plain)
        plain.Set_attr(_key(), state)
    if state.is_mpi:
        return mpi_call
    if state.dispatcher is None:
        # All ranks count the same calls.
        state.calls += 1
        if state.calls <= state.wishes.warmup_calls and not at_once:
            return None
        state.dispatcher = _dispatcher(plain, state)
        if state.dispatcher is None:
            state.is_mpi = True
            return mpi_call
    table: Callable[..., Any] = state.dispatcher.table or mpi_call
    return table


def _dispatcher(comm: MPI.Intracomm, state: State) -> Dispatcher | None:
    """Return what dispatches the calls of a communicator, None where MPI serves it; collective."""
    wishes = state.wishes
    arguments = comm, wishes.algorithms, wishes.repeats, state.flight
    if len(state.nodes) > 1:
        from mpicoll.mpi.communicator.across_nodes import NodesDispatcher

        across = NodesDispatcher(*arguments, state.nodes, _admit, is_fixed=wishes.is_fixed)
        return across if across.may_serve() else None
    if not _has_room(comm):
        return None
    from mpicoll.mpi.communicator.dispatcher import Dispatcher

    dispatcher = Dispatcher(*arguments)
    if dispatcher.table is not None:  # else its ranks share no memory
        _live.add(dispatcher)
    return dispatcher


def _admit(dispatcher: Dispatcher) -> bool:
    """Whether all ranks can make the transport of a dispatcher; collective."""
    has_room = _has_room(dispatcher.comm)
    if has_room:
        _live.add(dispatcher)
    return has_room


def _has_room(comm: MPI.Comm) -> bool:
    """Whether all ranks can make one more transport; collective."""
    while len(_live) >= _MOST_SERVED and _idle:
        _idle.pop(0).close()
    most_live: int = max(exchange_items(comm, len(_live), int))
    return most_live < _MOST_SERVED


def serves_objects(comm: MPI.Comm) -> bool:
    """Whether the methods of objects on a communicator are ours: where its ranks share memory."""
    state: Any = comm.Get_attr(_key())
    return len(state.nodes) == 1


def method_of(
    comm: MPI.Comm, name: str, make: Callable[[Any], Callable[..., Any]]
) -> Callable[..., Any]:
    """Return a method as `make` makes it once for a communicator, whatever objects stand for it."""
    state: Any = comm.Get_attr(_key())
    if name not in state.methods:
        state.methods[name] = make(comm)
    method: Callable[..., Any] = state.methods[name]
    return method


def find_flight(comm: MPI.Comm) -> GroupFlight | None:
    """Return the recorder of the calls on a communicator, None where nothing records them."""
    state: Any = comm.Get_attr(_key())
    flight: GroupFlight | None = None if state is None else state.flight
    return flight


def prepare_folds(comm: MPI.Comm) -> None:
    """Have mpi4py duplicate a communicator for its reductions of objects; collective, once.

    It would do so in the first of them, and keep the interpreter from all other threads meanwhile:
    threads that come to theirs in different orders on two ranks would wait for each other for ever.
    """
    plain = MPI.Intracomm(comm)
    state: Any = plain.Get_attr(_key())
    if state is None or state.folds:
        return
    naps = Random()  # the user's own numbers stay as they are
    while not state.folds:
        is_alone = _duplicating.acquire(blocking=False)
        try:
            if all(exchange_items(plain, is_alone, bool)):
                plain.allreduce(0)
                state.folds = True
        finally:
            if is_alone:
                _duplicating.release()
        if not state.folds:
            sleep(naps.uniform(0, _NAP))


def is_fixed(comm: MPI.Comm) -> bool:
    """Whether one order of folding is asked for on a communicator."""
    state: Any = comm.Get_attr(_key())
    return state is not None and state.wishes.is_fixed


def mpi_call(*arguments: Any) -> bool:
    """Begin a call that MPI serves, as `Comm._call` does; return True."""
    return bool(_compiled.begin_uninterrupted(bool, True))


def _offer(idle: tuple[int, ...]) -> Offer:
    wishes, node = _wishes(), None
    try:
        node = stated_node(MPI.COMM_WORLD.rank)
    except ArgumentError as error:
        wishes = Wishes(error=str(error))
    return Offer(wishes, MPI.COMM_WORLD.rank, next(_numbers), idle, host_identity(), node)


def _wishes() -> Wishes:
    try:
        algorithms, first_calls = forced(FORCED), stated_first_calls()
    except ArgumentError as error:
        return Wishes(error=str(error))
    if is_asked_for():
        return Wishes(0, 1, algorithms, is_fixed=True)
    if algorithms or first_calls is not None:
        return Wishes(first_calls or 0, 1, algorithms)
    return Wishes(_WARMUP_CALLS, _REPEATS, algorithms)


def _agreed(rank: int, wishes: list[Wishes]) -> Wishes:
    """Return the wishes of the environment, the same on all ranks.

    Args:
        rank: this one.
        wishes: those of all ranks.
    """
    error = wishes[rank].error
    raise_any(error and ArgumentError(error), [wish.error for wish in wishes])
    if any(wish.is_fixed for wish in wishes):
        wishes = [Wishes(0, 1, wish.algorithms, is_fixed=True) for wish in wishes]
    local = wishes[rank]
    for number, wish in enumerate(wishes):
        if wish != local:
            raise Disagreement(
                f"{FORCED} or {WARMUP} differs: {local[:3]} here, {wish[:3]} on rank {number}"
            )
    return local


def _key() -> int:
    if not _keyval:
        _keyval.append(MPI.Comm.Create_keyval(delete_fn=_end))
    return _keyval[0]


def _end(comm: MPI.Comm, keyval: int, state: State) -> None:
    """Keep the state of a communicator that is freed, for others of the same ranks."""
    if not state.is_reusable or MPI.Is_finalized():
        state.close()
        return
    with _pooling:
        _idle.append(state)
        oldest = _idle.pop(0) if len(_idle) > _MOST_IDLE else None
    if oldest is not None:
        oldest.close()
