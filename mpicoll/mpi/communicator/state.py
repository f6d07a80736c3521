"""What a communicator keeps: when it has been used often enough, the collectives that serve it.

It is an attribute of MPI's communicator, so that every object of Python with its handle finds the
same one, and it ends with that communicator.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from random import Random
from threading import Lock
from time import sleep
from typing import Any, NamedTuple

from mpi4py import MPI

from mpicoll.errors import ArgumentError, Disagreement, brief
from mpicoll.execution.extension import WRITERS
from mpicoll.flight.groups import GroupFlight, join
from mpicoll.mpi.communicator.members import runs_everywhere
from mpicoll.mpi.communicator.served import Served
from mpicoll.mpi.transport import exchange
from mpicoll.runtime.agreement import raise_any
from mpicoll.runtime.order import is_asked_for
from mpicoll.selection.forced import forced
from mpicoll.text.numbers import whole

FORCED = "MPICOLL_ALGORITHM"
AFTER = "MPICOLL_COMM_AFTER"
"""How many calls of a communicator are MPI's own, before it pays to make ours."""
_AFTER, _REPEATS, _MOST = 16, 2, 1 << 62

_MOST_SERVED = 64
"""The communicators of a process that are ours: each takes three more of MPI's, which has few."""

_NAP = 0.01
"""The most seconds before a rank tries again to be the only thread that duplicates."""

_keyval: list[int] = []
_duplicating = Lock()
_live: set[Served] = set()


class Wishes(NamedTuple):
    """What the environment says.

    Attributes:
        is_fixed: it asks for one order of folding.
        error: what is wrong with it.
    """

    after: int = 0
    repeats: int = 1
    algorithms: dict[str, str] = {}  # noqa: RUF012  a tuple's default, never changed
    is_fixed: bool = False
    error: str | None = None


class State:
    """The state of one communicator: how often it was used, and what serves it.

    Attributes:
        left: MPI serves it, as too many others are ours, or some rank does not run the drop-in.
        folds: mpi4py has what its reductions of objects need.
        flight: records its calls, None where nothing does.
        methods: those that are made for it, by name.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self.calls, self.left, self.folds = 0, False, False
        self.methods: dict[str, Callable[..., Any]] = {}
        self.flight: GroupFlight | None = None
        self.served: Served | None = None
        self.wishes = Wishes()
        if not runs_everywhere(comm):
            self.left = self.folds = True
            return
        self.wishes = _agreed(comm)
        self.flight = join(
            partial(exchange, comm), comm.rank, comm.size, writers=WRITERS,
            name=comm.name,
        )  # fmt: skip


def serving(comm: MPI.Comm) -> Callable[..., Any] | None:
    """Return the function that serves a call, None where MPI is to; collective.

    Raises:
        ArgumentError: the environment names an algorithm that does not exist; `Disagreement` where
            it is not the same on all ranks.
    """
    plain = MPI.Intracomm(comm)
    state: Any = plain.Get_attr(_key())
    if plain.size == 1:
        return theirs
    if state is None:
        state = State(plain)
        plain.Set_attr(_key(), state)
    if state.left:
        return theirs
    if state.served is None:
        # All ranks count the same calls.
        state.calls += 1
        if state.calls <= state.wishes.after:
            return None
        if max(exchange(plain, len(_live), int)) >= _MOST_SERVED:
            state.left = True
            return theirs
        state.served = Served(plain, state.wishes.algorithms, state.wishes.repeats, state.flight)
        _live.add(state.served)
    found: Callable[..., Any] = state.served.find or theirs
    return found


def method_of(
    comm: MPI.Comm, name: str, make: Callable[[Any], Callable[..., Any]]
) -> Callable[..., Any]:
    """Return a method as `make` makes it once for a communicator, whatever objects stand for it."""
    state: Any = comm.Get_attr(_key())
    if name not in state.methods:
        state.methods[name] = make(comm)
    found: Callable[..., Any] = state.methods[name]
    return found


def find_flight(comm: MPI.Comm) -> GroupFlight | None:
    """Return the recorder of the calls on a communicator, None where nothing records them."""
    state: Any = comm.Get_attr(_key())
    found: GroupFlight | None = None if state is None else state.flight
    return found


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
            if all(exchange(plain, is_alone, bool)):
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


def theirs(*given: Any) -> bool:
    """Leave a call to MPI."""
    return True


def _wishes() -> Wishes:
    text = os.environ.get(AFTER, "")
    try:
        algorithms = forced(FORCED)
        if text and whole(text, _MOST) is None:
            raise ArgumentError(f"{AFTER} must be a number of calls, not {brief(text)}")
    except ArgumentError as error:
        return Wishes(error=str(error))
    if is_asked_for():
        return Wishes(0, 1, algorithms, is_fixed=True)
    if algorithms or text:
        return Wishes(int(text or 0), 1, algorithms)
    return Wishes(_AFTER, _REPEATS, algorithms)


def _agreed(comm: MPI.Comm) -> Wishes:
    """Return the wishes of the environment, the same on all ranks."""
    own = _wishes()
    found = exchange(comm, own, Wishes)
    raise_any(own.error and ArgumentError(own.error), [each.error for each in found])
    if any(each.is_fixed for each in found):
        found = [Wishes(0, 1, each.algorithms, is_fixed=True) for each in found]
        own = found[comm.rank]
    for rank, other in enumerate(found):
        if other != own:
            raise Disagreement(
                f"{FORCED} or {AFTER} differs: {own[:3]} here, {other[:3]} on rank {rank}"
            )
    return own


def _key() -> int:
    if not _keyval:
        _keyval.append(MPI.Comm.Create_keyval(delete_fn=_end))
    return _keyval[0]


def _end(comm: MPI.Comm, keyval: int, state: State) -> None:
    if state.served is not None:
        _live.discard(state.served)
        state.served.close()
