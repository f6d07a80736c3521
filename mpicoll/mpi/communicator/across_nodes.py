"""Dispatch the calls on a communicator of several nodes, or by algorithms that a user names.

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
from mpicoll.calls.arguments import Arguments, check_arguments, digest_of
from mpicoll.calls.plan_cache import PlanCache
from mpicoll.calls.planner import Planner
from mpicoll.calls.recording import Recording, call_of, signature_text
from mpicoll.calls.routes import Routes
from mpicoll.calls.tags import MOST_TAGS, TAGS
from mpicoll.engine import extension
from mpicoll.engine.plan import Plan
from mpicoll.errors import ArgumentError, CollectiveError, RankLost
from mpicoll.flight.groups import GroupFlight
from mpicoll.memory.notes import GROUP
from mpicoll.mpi.arrays import MpiArrays
from mpicoll.mpi.communicator.buffers import Refused, WrongLength
from mpicoll.mpi.communicator.method_arguments import Call, lies_in, read
from mpicoll.mpi.communicator.reading import OPS, Reading
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


class Signature:
    """A key whose plan, if there is one, is the same on all ranks.

    Attributes:
        number: how many were before it.
        calls: how many there have been.
        in_place: the plan takes input and output in place on this rank.
    """

    def __init__(self, number: int) -> None:
        self.number, self.calls = number, 0
        self.plan: Plan | None = None
        self.in_place = False

    @property
    def target(self) -> object:
        """What the plan table runs."""
        return self.plan and self.plan.program

    def fail(self, error: BaseException) -> None:
        """Take the error by which this rank has left a run in its middle."""
        if self.plan is not None:
            self.plan.fail(error)

    def set_aside(self) -> None:
        """Run no more."""

    def free(self) -> None:
        """Release the plan."""
        if self.plan is not None:
            self.plan.free()


class NodesDispatcher(PlanCache[Signature]):
    """Our collectives on one communicator, by plans.

    Args:
        algorithms: those that are forced, by collective.
        repeats: at which call of a signature a plan is made for it.
        flight: records the calls, None where nothing does.
        nodes: the ranks of each node.
        admit: returns whether all ranks have room for the transport of this dispatcher; collective.
        is_fixed: the user asks for one order of folding, in which MPI's own calls are folded.

    Attributes:
        table: runs a call given as `run` takes it; True where MPI's own is to serve it. None where
            MPI serves all calls.
    """

    arrays = MpiArrays()
    group: Any
    transport: MpiTransport | None
    planner: Planner

    def __init__(
        self, comm: MPI.Comm, algorithms: dict[str, str], repeats: int, flight: GroupFlight | None,
        nodes: Nodes, admit: Callable[[NodesDispatcher], bool], *, is_fixed: bool,
    ) -> None:  # fmt: skip
        self.group = _Group(self, comm, nodes)
        self.calls: Calls = self.group.calls
        self.admit, self.is_fixed = admit, is_fixed
        self.is_admitted = True
        self.tag_blocks = (MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or MOST_TAGS) // TAGS or 1
        self.calls.titles[_UNREAD] = "MPI's own function"
        self.algorithm_of_key: dict[tuple[Any, ...], str | None] = {}
        super().__init__()
        self.flight, self.recording = flight, Recording(flight)
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.algorithms, self.repeats = algorithms, repeats
        self.place = 0 if flight is None else flight.call("left to MPI", "", "", "")
        self.transport = None
        self.chooser = AutoChooser(self.group)
        self.table = extension.plan_table(
            self.group, self.run, self._give_up, log=flight and flight.log,
            in_place=MPI.IN_PLACE, datatype=MPI.Datatype, is_drop_in=True,
        )  # fmt: skip

    def may_serve(self) -> bool:
        """Whether some call may run a schedule; collective."""
        return bool(self.algorithms) or self.chooser.may_choose_schedules()

    def _skip(self) -> bool:
        """Leave a call to MPI; return True."""
        self.calls.begin(_UNREAD)
        return True

    # -- one call ---------------------------------------------------------------------------

    def run(
        self, name: str, x: Any, out: Any, op: Any, root: Any, counts: Any, algorithm: Any,
        differs: object = None,
    ) -> bool | None:  # fmt: skip
        """Run a call that is not in the plan table; True where MPI is to serve it.

        Args:
            name: of mpi4py's method, in small letters.
        """
        if self.table is None:
            return True  # also where the communicator has been freed
        if isinstance(op, MPI.Op) and op.handle not in OPS:
            return self._skip()  # MPI demands the same operator on all ranks
        at = Reading(self.rank, self.size)
        with self.recording.call(name):
            try:
                return self._dispatch(at, (name, x, out, op, root, counts, algorithm))
            except Refused:
                return True  # mpi4py's own method raises, before it has met the other ranks
            finally:
                at.close()

    def _dispatch(self, at: Reading, table_key: tuple[Any, ...]) -> bool | None:
        call = self._read(at, *table_key[:5])
        arguments = self._checked(call)
        if arguments is None or arguments.counts is not None:
            return self._skip()
        assert isinstance(call, Call)
        is_mpi = self._run_key(at, arguments, call, table_key)
        if not is_mpi:
            at.unpack()
        return is_mpi

    def _read(
        self, at: Reading, name: str, x: Any, out: Any, op: Any, root: Any
    ) -> Call | None:  # fmt: skip
        """Return the call that the arguments describe, None where MPI refuses them."""
        try:
            return read(at, name, x, out, op, root)
        except Refused:
            raise
        except Exception as error:  # whatever is wrong, MPI's own method says it
            if isinstance(error, WrongLength) and self.transport is not None:
                refused = ArgumentError(f"{name}: {error}")
                self._leave_group(refused)
                raise refused from error
            return None

    def _checked(self, call: Call | None) -> Arguments | None:
        arguments = self._arguments(call)
        if arguments is None and call is not None and call.x is not None:
            # What of an output overlaps an input is a matter of this rank.
            arguments = self._arguments(call._replace(x=call.x.copy()))
        return arguments

    def _arguments(self, call: Call | None) -> Arguments | None:
        if call is None:
            return None
        try:
            return check_arguments(
                self.arrays, self.rank, self.size, call.name, call.x, out=call.out, op=call.op,
                root=call.root, counts=call.counts,
                algorithm=self.algorithms.get(call.name, "auto"),
            )  # fmt: skip
        except CollectiveError:
            return None

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

    def _run_plan(
        self, plan: Plan, arguments: Arguments, call: Call, table_keys: list[tuple[Any, ...]],
        digest: int,
    ) -> None:  # fmt: skip
        """Run a plan for the arrays of a call, and enter it into the plan table.

        Args:
            table_keys: the arguments by which the table finds it.
        """
        program, arrays = plan.program, (arguments.x, arguments.out)
        assert program is not None
        x, out = (0 if array is None else self.arrays.span(array)[0] for array in arrays)
        try:
            program.run_on(x, out, *arrays)
        except BaseException as error:
            self._give_up(program, error)
            raise
        for table_key in table_keys:
            placement = lies_in(call, table_key[1], table_key[2])
            if placement is not None:
                self.table.add_program(table_key, program, digest, False, None, *placement)

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

    def _record(self, plan: Plan, arguments: Arguments) -> None:
        if self.flight is not None:
            plan.record(self.flight.log, call_of(self.flight, arguments, plan))

    def _give_up(self, program: object, error: BaseException) -> None:
        """Remove the plan of a program that has failed in the middle of a run."""
        self._leave_group(error)  # as others may wait for this rank in a later call
        self.fail_target(program, error)

    def _leave_group(self, error: BaseException) -> None:
        """Tell the ranks that wait for this one that it will not come."""
        if self.transport is not None:
            self.transport.leave(GROUP, error)

    def close(self) -> None:
        """Release the plans, the shared memory, and MPI's communicators."""
        self.free()
        self.table = None
        if self.transport is not None:
            self.transport.close()


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
