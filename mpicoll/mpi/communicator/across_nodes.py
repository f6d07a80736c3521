"""What dispatches the calls on one communicator of several nodes.

The ranks exchange nothing before a call. All of them find the same plan by its key, in the same
call, and make it from what the ranks of each node tell each other. A rank that waits for another
asks it for its call (`mpicoll.peers.calls`), and raises where that is a different one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll import defaults
from mpicoll.backend import POINT_TO_POINT, Nodes
from mpicoll.calls.arguments import Arguments, digest_of
from mpicoll.calls.planner import Planner
from mpicoll.calls.recording import signature_text
from mpicoll.calls.routes import Routes
from mpicoll.calls.tags import MOST_TAGS, TAGS
from mpicoll.engine import extension
from mpicoll.engine.plan import Plan
from mpicoll.errors import ArgumentError, CollectiveError, RankLost
from mpicoll.flight.groups import GroupFlight
from mpicoll.memory.notes import GROUP
from mpicoll.mpi.arrays import MpiArrays
from mpicoll.mpi.communicator.buffers import WrongLength
from mpicoll.mpi.communicator.dispatcher import Dispatcher, Signature
from mpicoll.mpi.communicator.reading import Call, Reading
from mpicoll.mpi.communicator.uneven import PART_READERS
from mpicoll.mpi.exchange import exchange_items, mpi_deadline
from mpicoll.mpi.transport import LIBRARY, MpiTransport
from mpicoll.peers.calls import BEGUN, Calls, different_calls
from mpicoll.selection.auto import AutoChooser

_MOST_KEYS = 512
"""The keys of which a rank remembers the algorithm."""
_UNREAD = 0
"""Instead of the digest of a call that is MPI's whatever its buffers are."""


class _Group:
    """The properties of a group by which `auto` chooses, before a transport is made."""

    backend, library, gpu_transport = "mpi4py", LIBRARY, POINT_TO_POINT
    shared = None

    def __init__(self, dispatcher: NodesDispatcher, comm: MPI.Comm, nodes: Nodes) -> None:
        self.dispatcher, self.rank, self.size, self.nodes = dispatcher, comm.rank, comm.size, nodes
        self.arrays, self.calls = MpiArrays(), Calls(lambda: 0, lambda ranks: {})

    def exchange(self, item: Any, kind: Any = Any) -> list[Any]:
        """Return every rank's item; collective."""
        return exchange_items(self.dispatcher.comm, item, kind)


class NodesDispatcher(Dispatcher):
    """Our collectives on one communicator of several nodes.

    Args:
        nodes: the ranks of each node.
        admit: returns whether all ranks have room for the transport of this dispatcher; collective.
        is_fixed: the user asks for one order of folding, in which MPI's own calls are folded.
    """

    def __init__(
        self, comm: MPI.Comm, algorithms: dict[str, str], repeats: int, flight: GroupFlight | None,
        nodes: Nodes, admit: Callable[[Dispatcher], bool], *, is_fixed: bool,
    ) -> None:  # fmt: skip
        self.group: Any = _Group(self, comm, nodes)
        self.calls: Calls = self.group.calls
        self.admit, self.is_fixed = admit, is_fixed
        self.is_admitted = True
        self.tag_blocks = (MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or MOST_TAGS) // TAGS or 1
        self.calls.titles[_UNREAD] = "MPI's own function"
        self.algorithm_of_key: dict[tuple[Any, ...], str | None] = {}
        super().__init__(comm, algorithms, repeats, flight)

    def _open_table(self) -> None:
        self.chooser = AutoChooser(self.group)
        self.table = extension.plan_table(
            self.group, self.run, self._give_up, log=self.flight and self.flight.log,
            in_place=MPI.IN_PLACE, datatype=MPI.Datatype, is_drop_in=True,
        )  # fmt: skip

    def may_serve(self) -> bool:
        """Whether some call may run a schedule; collective."""
        return bool(self.algorithms) or self.chooser.may_choose_schedules()

    def _skip(self) -> bool:
        self.calls.begin(_UNREAD)
        return True

    # -- one call ---------------------------------------------------------------------------

    def _dispatch_read(
        self, at: Reading, table_key: tuple[Any, ...], differs: object
    ) -> bool | None:  # fmt: skip
        name, x, out, op, root, counts, _ = table_key
        call = None if name in PART_READERS else self._read(at, name, x, out, op, root, counts)
        arguments = self._checked(call)
        if arguments is None or arguments.counts is not None:
            return self._skip()
        assert isinstance(call, Call)
        is_mpi = self._run_key(at, arguments, call, table_key)
        if not is_mpi:
            at.unpack()
        return is_mpi

    def _refuse(self, name: str, error: Exception) -> None:
        if isinstance(error, WrongLength) and self.transport is not None:
            refused = ArgumentError(f"{name}: {error}")
            self._leave_group(refused)
            raise refused from error

    def _checked(self, call: Call | None) -> Arguments | None:
        arguments = super()._checked(call)
        if arguments is None and call is not None and call.x is not None:
            # What of an output overlaps an input is a matter of this rank.
            arguments = super()._checked(call._replace(x=call.x.copy()))
        return arguments

    def _run_key(
        self, at: Reading, arguments: Arguments, call: Call, table_key: tuple[Any, ...]
    ) -> bool | None:  # fmt: skip
        """Run a call by the plan of its key, or leave it to MPI as all ranks do."""
        key = tuple((arguments.signature | {"in place": None}).values())
        digest = digest_of(repr(key)) % (1 << 31)
        self.calls.begin(digest)
        algorithm = self._algorithm_of(key, digest, arguments)
        if algorithm is None:
            if self.table.reads(table_key):
                self.table.add_function(table_key, None, digest, self.place)
            return True
        # Only calls of ours are cached: those of MPI's may be in the tables of some ranks alone.
        signature = self.get(key) or self.add(key, Signature)
        signature.calls += 1
        if signature.calls == (1 if call.op in ("min", "max") else self.repeats):
            tag_block = digest % self.tag_blocks
            signature.plan = self._plan(
                replace(arguments, algorithm=algorithm, tag_block=tag_block)
            )
            signature.in_place = arguments.in_place
        if signature.plan is None:
            return True
        at.pack()
        table_keys = [] if at.is_packed else [table_key]
        if arguments.in_place != signature.in_place:
            arguments, table_keys = _reshaped(arguments), []
        self._run_plan(signature.plan, arguments, call, table_keys, digest)
        self.calls.end()
        return None

    # -- plans ------------------------------------------------------------------------------

    def _algorithm_of(
        self, key: tuple[Any, ...], digest: int, arguments: Arguments
    ) -> str | None:  # fmt: skip
        """Return the same as `_algorithm`, which is asked once for each key."""
        if key not in self.algorithm_of_key:
            if len(self.algorithm_of_key) >= _MOST_KEYS:
                self.algorithm_of_key.clear()
                self.calls.titles.clear()
            self.calls.titles[digest] = _title(arguments)
            self.algorithm_of_key[key] = self._algorithm(arguments)
        return self.algorithm_of_key[key]

    def _algorithm(self, arguments: Arguments) -> str | None:
        """Return the schedule that serves a call, None where MPI's own call does; collective.

        Raises:
            CollectiveError: an algorithm that a variable names cannot serve the call.
        """
        if self.is_fixed and arguments.collective.reduces:
            return None
        names = self._preferred(arguments)
        first = next(names, "native")
        if first.startswith("native") or not self._is_open():
            return None
        if arguments.algorithm != "auto":
            self.planner.check(replace(arguments, algorithm=first))
        text = self.planner.schedule(arguments, chain([first], names))
        if text is None:
            return None
        name, _, route = text.partition("@")
        trial = replace(arguments, algorithm=text)
        return f"{name}@{self.planner.routes.check(trial, route)}"

    def _preferred(self, arguments: Arguments) -> Iterator[str]:
        """Yield the algorithms in the order in which to try them; collective when first asked."""
        text = arguments.algorithm
        if text in defaults.NAMES:
            yield self.chooser.default(text, arguments).schedule
        elif text in self.chooser.names:
            yield from self.chooser.preferred(arguments)
        else:
            yield text

    def _is_open(self) -> bool:
        """Whether there is a transport, which is made now if there is none; collective."""
        if self.transport is None and self.is_admitted:
            if self.admit(self):
                self._open()
            self.is_admitted = self.transport is not None
        return self.transport is not None

    def _open(self) -> None:
        transport = MpiTransport(self.comm, deadline=mpi_deadline())
        if transport.shared is None and max(map(len, transport.nodes)) > 1:
            transport.close()
            return
        self.planner = Planner(transport, Routes(transport), self.chooser)
        self.chooser.transport = transport
        transport.exchange_on_nodes()
        if (calls := transport.calls) is not None:
            calls.numbers, calls.error = self.calls.numbers, RankLost
            calls.titles = self.calls.titles
            calls.since = calls.exchanges(), calls.numbers[BEGUN] - 1
        self.transport = transport

    def _plan(self, arguments: Arguments) -> Plan:
        """Return a plan; collective on each node.

        The tags of its messages depend on the key. So a rank of another node that makes a plan for
        another call gets none of them, and asks.

        Raises:
            RankLost: this node cannot make it, or its ranks are in different calls. Ranks of other
                nodes hear so when they ask.
        """
        assert self.transport is not None
        with self.transport.poison_on_error():
            self._compare_on_node(self.transport.exchange(_title(arguments), str))
            try:
                plan = self.planner.build_allocated(replace(arguments, unbound=True))
            except CollectiveError as error:
                name = arguments.collective.name
                raise RankLost(f"{name}: there is no plan: {error}", rank=self.rank) from error
        self._record(plan, arguments)
        return plan

    def _compare_on_node(self, titles: list[str]) -> None:
        """Compare the signatures of the calls of this node's ranks.

        Args:
            titles: of all ranks; those of other nodes are this rank's.

        Raises:
            RankLost: they are different.
        """
        for rank, title in enumerate(titles):
            if title != titles[self.rank]:
                raise RankLost(different_calls({self.rank: titles[self.rank], rank: title}))

    def _give_up(self, program: object, error: BaseException) -> None:
        self._leave_group(error)  # as others may wait for this rank in a later call
        super()._give_up(program, error)

    def _leave_group(self, error: BaseException) -> None:
        """Tell the ranks that wait for this one that it will not come."""
        if self.transport is not None:
            self.transport.leave(GROUP, error)

    @property
    def is_in_order(self) -> bool:
        return not self.has_failed and (self.transport is None or not self.transport.peers.ended)


def _title(arguments: Arguments) -> str:
    """Return the signature of a call in words."""
    return f"{arguments.collective.name} of {signature_text(arguments)}"


def _reshaped(arguments: Arguments) -> Arguments:
    """Return a call in place as one that is not, or the other way round."""
    x, out = arguments.x, arguments.out
    assert x is not None
    assert out is not None
    if arguments.in_place:
        return replace(arguments, x=x.copy(), in_place=False)
    source = out if out.shape == x.shape else out[arguments.rank]
    np.copyto(source, x)
    return replace(arguments, x=source, in_place=True)
