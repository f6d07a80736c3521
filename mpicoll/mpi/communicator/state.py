"""What serves a communicator: a channel on one node, levels on several, or MPI.

It is an attribute of MPI's communicator, so that every object of Python with its handle finds the
same one. The ranks make it in their first call, by one allgather of MPI.
"""

from __future__ import annotations

import os
from _blake2 import blake2b  # hashlib loads OpenSSL, which takes milliseconds
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from mpi4py import MPI

from mpicoll.c_extension import _compiled
from mpicoll.errors import ArgumentError, CollectiveError, Disagreement, Unavailable
from mpicoll.flight.groups import GroupFlight, join_known, standing
from mpicoll.machine.nodes import (
    CORES,
    RANKS_PER_NODE,
    Cores,
    group_by_node,
    host_identity,
    own_cores,
    stated_node,
)
from mpicoll.machine.settings import DEADLINE, REPRODUCIBLE, default_deadline, is_reproducible
from mpicoll.memory.files import SWITCH, is_switched_off
from mpicoll.mpi.communicator import arenas
from mpicoll.mpi.communicator.channels import OneNode
from mpicoll.mpi.communicator.members import runs_everywhere
from mpicoll.mpi.communicator.recording import attach, find_state
from mpicoll.mpi.exchange import (
    exchange_bytes,
    exchange_items,
    exchange_numbers,
    mpi_deadline,
    world_ranks,
)
from mpicoll.selection.forced import forced

if TYPE_CHECKING:
    from mpicoll.backend import Nodes
    from mpicoll.mpi.communicator.levels import Levels
    from mpicoll.mpi.communicator.named import Named

FORCED = "MPICOLL_ALGORITHM"
_VARIABLES = [
    name.encode() for name in (FORCED, RANKS_PER_NODE, REPRODUCIBLE, SWITCH, DEADLINE, CORES)
]  # fmt: skip
_environment: Any = vars(os.environ)["_data"]
"""The variables as `os.environ` keeps them: its own look-ups take ten times as long."""


class Settings(NamedTuple):
    """What the environment says, and what this process says of itself to each communicator.

    Attributes:
        algorithms: those that it names, by collective.
        is_fixed: it asks for one order of folding.
        unshared: why the ranks share no memory; empty where they may.
        error: what is wrong with it.
        numbers: those of a `Member` up to its cores.
        deadline: of waits, in seconds.
    """

    algorithms: dict[str, str] = {}  # noqa: RUF012  a tuple's default, never changed
    is_fixed: bool = False
    unshared: str = ""
    error: str | None = None
    numbers: tuple[int, ...] = ()
    deadline: float = inf


_NOBODY = Settings()


class Member(NamedTuple):
    """What a rank tells the others of itself, as numbers.

    Attributes:
        wishes: a digest of what all ranks must set alike.
        host: a digest.
        node: as the user states it, -1 where he does not.
        cores: a digest of those that it may use.
        quota: thousandths of a core that its container may use, 0 without a limit.
        token: names the group, where this is its first rank.
    """

    wishes: int
    host: int
    node: int
    process: int
    cores: int
    core_count: int
    quota: int
    token: int


class State:
    """The state of one communicator: what serves it.

    Attributes:
        members: its ranks in ``MPI_COMM_WORLD``, as MPI says.
        token: names it on all its ranks; 0 where some do not run the drop-in.
        nodes: the ranks of each node.
        flight: records its calls, None where nothing does.
        methods: MPI's own, as they are recorded.
        server: what runs its calls; None where MPI runs all.
        arena, unit: what its channel has taken of this rank's memory.
    """

    def __init__(self, settings: Settings, members: tuple[int, ...] = ()) -> None:
        self.settings, self.members = settings, members
        self.token = 0
        self.nodes: Nodes = ()
        self.flight: GroupFlight | None = None
        self.methods: dict[str, Callable[..., Any]] = {}
        self.server: OneNode | Levels | Named | None = None
        self.arena: arenas.Arena | None = None
        self.unit = -1

    @property
    def is_plain(self) -> bool:
        """Whether the user chooses no algorithm, and no order of folding: the same on all ranks."""
        return not (self.settings.algorithms or self.settings.is_fixed)

    @property
    def channel(self) -> Any:
        """What runs all calls, None where there is no such channel."""
        return self.server.channel if isinstance(self.server, OneNode) else None

    def close(self) -> None:
        """Release what serves the communicator."""
        if self.server is not None:
            self.server.close()
            self.server = None
        if self.arena is not None:
            self.arena.closing.append((self.unit, len(self.members)))
            self.arena, self.unit = None, -1


def state_of(comm: MPI.Comm) -> State:
    """Return the state of a communicator; collective in its first call.

    Raises:
        ArgumentError: the environment names an algorithm that does not exist; `Disagreement` where
            it is not the same on all ranks.
    """
    plain = MPI.Intracomm(comm)
    if plain.size == 1:
        return State(_NOBODY)
    state: State | None = find_state(plain)
    if state is None:
        state = _make_state(plain)
        attach(plain, state)
    return state


def _nodes(members: Sequence[Member]) -> Nodes:
    stated = [None if member.node < 0 else member.node for member in members]
    return group_by_node([member.host for member in members], stated)[0]


def _make_state(comm: MPI.Intracomm) -> State:
    """Return the state of a new communicator; collective."""
    ranks = world_ranks(comm)
    if not runs_everywhere(comm, ranks):
        return State(_NOBODY)
    state = State(_current(), ranks)
    _fill(comm, state, exchange_numbers(comm, _numbers(comm, state.settings)))
    return state


def _numbers(comm: MPI.Intracomm, settings: Settings) -> list[int]:
    """Return what this rank says of itself, of its recorder, and of memory."""
    token = int.from_bytes(os.urandom(7), "little") + 1
    return [*settings.numbers, token, *standing(comm.rank, comm.size), *arenas.offer()]


def _fill(comm: MPI.Intracomm, state: State, rows: list[list[int]]) -> None:
    """Find out what can serve a communicator, given the numbers of its ranks; collective."""
    settings, first, last = state.settings, len(Member._fields), -arenas.OFFER
    members, offers = [Member(*row[:first]) for row in rows], [row[last:] for row in rows]
    state.nodes = _nodes(members)
    is_wrong = settings.error or any(member.wishes != members[0].wishes for member in members)
    is_whole = len(state.nodes) == 1 and comm.size <= _compiled.MOST_MEMBERS
    may_share = is_whole and not settings.unshared
    if is_wrong or not may_share:
        arenas.give_back(offers[comm.rank])
    if is_wrong:
        _agree(comm, settings)
    state.token = members[0].token
    state.flight = join_known(
        comm.rank, [row[first:last] for row in rows],
        [(str(member.host), member.process) for member in members], state.token,
        writers=_compiled, name=comm.name,
    )  # fmt: skip
    if may_share:
        _take_units(comm, state, members, offers)
    _serve(comm, state, members)


def _serve(comm: MPI.Intracomm, state: State, members: Sequence[Member]) -> None:
    """Find what serves a communicator beside a channel of all its ranks."""
    _compiled.keep_memory()
    settings, most = state.settings, max(map(len, state.nodes))
    if len(state.nodes) > 1 < most <= _compiled.MOST_MEMBERS and not settings.unshared:
        from mpicoll.mpi.communicator.levels import Levels  # a program on one node does without

        state.server = Levels(
            comm, state.nodes, partial(_open_channel, comm, members, settings),
            state.flight, is_fixed=settings.is_fixed,
        )  # fmt: skip
    if settings.algorithms:
        from mpicoll.mpi.communicator.named import Named

        assert not isinstance(state.server, Named)
        state.server = Named(comm, settings.algorithms, state.server, is_fixed=settings.is_fixed)


def _take_units(
    comm: MPI.Intracomm, state: State, members: Sequence[Member], offers: list[list[int]]
) -> None:
    """Make a channel, where each rank has memory for it; collective."""
    arena, unit, addresses = arenas.choose(offers, comm.rank)
    if arena is None:
        try:
            arenas.make(lambda data, _: exchange_bytes(comm, data), comm.rank, comm.size)
        except Unavailable:
            return
        offers = exchange_numbers(comm, arenas.offer())
        arena, unit, addresses = arenas.choose(offers, comm.rank)
    if arena is not None and addresses:
        state.arena, state.unit = arena, unit
        state.server = _open_channel(
            comm, members, state.settings, range(comm.size), state.flight, addresses,
            arena.segment,
        )  # fmt: skip


def _open_channel(
    comm: MPI.Intracomm, members: Sequence[Member], settings: Settings, node: Sequence[int],
    flight: GroupFlight | None, units: Sequence[int], keep: object,
) -> OneNode:  # fmt: skip
    """Return a channel of the ranks of one node."""
    local = [members[rank] for rank in node]
    return OneNode(
        comm, node, units, [member.process for member in local], settings.deadline, flight,
        shares_cores=len(node) > _usable_cores(local), keep=keep, is_fixed=settings.is_fixed,
    )  # fmt: skip


def _usable_cores(members: Sequence[Member]) -> float:
    """Return how many cores the ranks of a node may use together."""
    counts = {member.cores: member.core_count for member in members}
    quota = max(member.quota for member in members)
    return min(sum(counts.values()), quota / 1000) if quota else sum(counts.values())


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest())


def _current() -> Settings:
    """Return what this process says now."""
    return _settings(tuple(map(_environment.get, _VARIABLES)), os.getpid())


@lru_cache(maxsize=8)
def _settings(texts: tuple[bytes | None, ...], process: int) -> Settings:
    """Return what this process says, given the texts of `_VARIABLES`."""
    error, unshared, algorithms, node = None, "", {}, None
    deadline, cores = inf, Cores([], None)
    try:
        node = stated_node(MPI.COMM_WORLD.rank)
        algorithms, cores = forced(FORCED), own_cores()
        deadline = mpi_deadline() or default_deadline()
        unshared = f"{SWITCH} turns it off" if is_switched_off() else ""
    except CollectiveError as refusal:
        error = str(refusal)
    settings = Settings(algorithms, is_reproducible(), unshared, error)
    numbers = (
        _digest(repr(settings)), _digest(host_identity()), -1 if node is None else node, process,
        _digest(repr(cores.allowed)), len(cores.allowed), int((cores.quota or 0) * 1000),
    )  # fmt: skip
    return settings._replace(numbers=numbers, deadline=deadline)


def _agree(comm: MPI.Intracomm, settings: Settings) -> None:
    """Raise on all ranks where the environment of one is wrong, or different from this rank's."""
    from mpicoll.calls.agreement import raise_any

    local = settings._replace(numbers=(), deadline=inf)
    peers = exchange_items(comm, local, Settings)
    raise_any(local.error and ArgumentError(local.error), [peer.error for peer in peers])
    for rank, peer in enumerate(peers):
        if peer != local:
            raise Disagreement(
                f"{FORCED} or another variable differs: {tuple(local[:-2])} here, "
                f"{tuple(peer[:-2])} on rank {rank}"
            )
