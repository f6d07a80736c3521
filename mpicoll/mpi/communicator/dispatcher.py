"""What dispatches the calls on one communicator of one node: to plans of ours, or to MPI.

The key of a call is what MPI demands to be the same on all ranks: collective, operator, root, and
type signature. The ranks compare every call that may be ours by a digest in shared memory. If the
digests differ, as an argument is wrong or a rank's buffer has gaps, every rank calls MPI. A call
whose plan is in the plan table compares its digest in its first wait.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from mpi4py import MPI

from mpicoll.calls.arguments import Arguments, check_arguments
from mpicoll.calls.plan_cache import PlanCache
from mpicoll.calls.planner import Planner
from mpicoll.calls.recording import Recording, call_of
from mpicoll.calls.routes import Routes
from mpicoll.engine import extension
from mpicoll.engine.plan import Plan
from mpicoll.errors import CollectiveError
from mpicoll.flight.groups import GroupFlight
from mpicoll.mpi.arrays import MpiArrays
from mpicoll.mpi.communicator.buffers import Refused
from mpicoll.mpi.communicator.reading import AS_OBJECT, OPS, Call, Reading, lies_in
from mpicoll.mpi.communicator.uneven import PART_READERS, Part, complete, read
from mpicoll.mpi.exchange import mpi_deadline
from mpicoll.mpi.transport import MpiTransport
from mpicoll.selection.auto import AutoChooser
from mpicoll.tuning import UNKNOWN_COUNTS

_MOST_COUNTS = 64
MPI_CALL = int.from_bytes(b"is MPI's", "little")
"""Instead of a digest, from a rank that leaves a call to MPI: MPI does not fold its datatype by its
operator, or an argument is wrong."""
_READ = "read"
"""The algorithm of a call that has been read, where others have none."""


class Signature:
    """A signature that the ranks have agreed on.

    Attributes:
        number: how many were before it, by which ranks know that they mean the same one.
        calls: how many there have been.
        plan: ours; None where there is none yet, or MPI's own call is as good.
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


class UnknownCounts:
    """The methods of which a rank does not know the other ranks' counts.

    Attributes:
        mpi_methods: those that are MPI's, as their counts are seldom what they were.
    """

    def __init__(self) -> None:
        self.mpi_methods: set[str] = set()
        self.misses: dict[str, int] = {}
        self.last = 0

    def miss(self, name: str, number: int) -> bool:
        """Count a call whose counts were unknown; return whether the method becomes MPI's.

        Args:
            number: of the ranks' comparisons.
        """
        if number - self.last > UNKNOWN_COUNTS:
            self.misses.clear()
        self.last = number
        self.misses[name] = self.misses.get(name, 0) + 1
        if self.misses[name] > UNKNOWN_COUNTS:
            self.mpi_methods.add(name)
        return name in self.mpi_methods


class Dispatcher(PlanCache[Signature]):
    """Our collectives on one communicator of one node.

    Args:
        algorithms: those that are forced, by collective.
        repeats: at which call of a signature a plan is made for it.
        flight: records the calls, None where nothing does.

    Attributes:
        table: runs a call given as `run` takes it; True where MPI's own is to serve it. None where
            MPI serves all calls.
    """

    arrays = MpiArrays()
    transport: MpiTransport | None
    planner: Planner
    chooser: AutoChooser

    def __init__(
        self, comm: MPI.Comm, algorithms: dict[str, str], repeats: int, flight: GroupFlight | None
    ) -> None:
        super().__init__()
        self.flight, self.recording = flight, Recording(flight)
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.algorithms, self.repeats = algorithms, repeats
        self.counts: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.unknown_counts = UnknownCounts()
        self.place = 0 if flight is None else flight.call("left to MPI", "", "", "")
        self.table, self.transport = None, None
        self._open_table()

    def _open_table(self) -> None:
        """Make what finds the plans, and what makes them; collective."""
        transport = self.transport = MpiTransport(self.comm, deadline=mpi_deadline())
        self.chooser = AutoChooser(transport)
        self.planner = Planner(transport, Routes(transport), self.chooser)
        shared, flight = transport.shared, self.flight
        if shared is None or shared.mailbox is None:
            self.close()
            return
        self.mailbox = shared.mailbox
        self.table = extension.plan_table(
            transport, self.run, self._give_up, log=flight and flight.log,
            in_place=MPI.IN_PLACE, datatype=MPI.Datatype, is_drop_in=True,
        )  # fmt: skip

    def run(
        self, name: str, x: Any, out: Any, op: Any, root: Any, counts: Any, algorithm: Any,
        differs: object = None,
    ) -> bool | None:  # fmt: skip
        """Run a call that is not in the plan table; True where MPI is to serve it.

        Args:
            name: of mpi4py's method, in small letters; one of ours where the call has been read.
            differs: the program that this rank has begun, where the ranks have found already that
                they call different things; True where it has begun none.
        """
        if self.table is None or name in self.unknown_counts.mpi_methods:
            return True  # also where the communicator has been freed
        if isinstance(op, MPI.Op) and op.handle not in OPS:
            return self._skip()  # MPI demands the same operator on all ranks
        with self.recording.call(name):
            try:
                return self._dispatch((name, x, out, op, root, counts, algorithm), differs)
            except Refused:
                self.drop_target(differs)
                return True  # mpi4py's own method raises, before it has met the other ranks

    def _skip(self) -> bool:
        """Leave a call to MPI that the ranks do not compare; return True."""
        return True

    def _agree(self, digest: int) -> bool:
        """Whether all ranks publish this digest; the others may be inside MPI once they do."""
        return bool(self.table.agree(digest, None))

    def _dispatch(self, table_key: tuple[Any, ...], differs: object) -> bool | None:
        """Run a call, or find out with the others that MPI is to serve it."""
        at = Reading(self.rank, self.size)
        try:
            return self._dispatch_read(at, table_key, differs)
        finally:
            at.close()

    def _dispatch_read(
        self, at: Reading, table_key: tuple[Any, ...], differs: object
    ) -> bool | None:  # fmt: skip
        """Do the same, given what reads the buffers."""
        name, x, out, op, root, counts, algorithm = table_key
        if algorithm is AS_OBJECT:
            call = self._read(at, name, x, out, op, root, counts)
            return self._run(call, [table_key], differs, x.shape)
        if algorithm is _READ:
            read_call = Part if name in PART_READERS else Call
            return self._serve(read_call(name, x, out, op, root, counts), [table_key], differs)
        call = self._read(at, name, x, out, op, root, counts)
        if call is None or at.is_packed:
            return self._leave(table_key, differs)
        rows = call.counts and self._intern(call.counts)
        read = (call.name, call.x, call.out, call.op, call.root, rows, _READ)
        if self.table.reads(table_key) and lies_in(call, x, out) is not None:
            return self._serve(call, [table_key, read], differs)
        is_mpi: bool | None = self.table.within(*read)
        return is_mpi

    def _leave(self, table_key: tuple[Any, ...], differs: object) -> bool:
        """Leave a call to MPI; return True.

        MPI alone serves it, or refuses it. Or a buffer has a derived datatype or gaps: on one node
        MPI takes a tenth of the time that it takes to pack the buffer.
        """
        if not differs and self._agree(MPI_CALL):
            self.table.add_function(table_key, None, MPI_CALL, self.place)
        else:
            self.drop_target(differs)
            self._miss(table_key[0])
        return True

    def _serve(
        self, call: Call | Part, table_keys: list[tuple[Any, ...]], differs: object
    ) -> bool | None:
        if isinstance(call, Call):
            return self._run(call, table_keys, differs)
        # The ranks tell each other their counts, where none of them runs such a call already.
        is_same = not differs and self._agree(call.asking)
        if not is_same:
            self.drop_target(differs)
        self._miss(call.name)
        if not is_same or call.name in self.unknown_counts.mpi_methods:
            return True
        assert self.transport is not None
        counts = self.transport.exchange(call.counts, tuple[int, ...])
        at = Reading(self.rank, self.size)
        return self._run(complete(at, call, counts), table_keys, None)

    def _miss(self, name: str) -> None:
        """Count a call whose counts the ranks did not know; the same one on all ranks."""
        is_uneven = name in PART_READERS
        if is_uneven and self.unknown_counts.miss(name, self.mailbox.number[0]):
            # No rank may find by itself what the others leave to MPI from now on.
            for signature in self.plans:
                self.table.forget(signature.target)
            self.table.forget(None)

    def _read(
        self, at: Reading, name: str, x: Any, out: Any, op: Any, root: Any, counts: Any
    ) -> Any:  # fmt: skip
        """Return the `Call` or `Part` that the arguments describe, None where MPI refuses them."""
        try:
            return read(at, name, x, out, op, root, counts)
        except Refused:
            raise
        except Exception as error:  # whatever is wrong, MPI's own method says it
            self._refuse(name, error)
            return None

    def _refuse(self, name: str, error: Exception) -> None:
        """Take the error of a buffer that cannot be read, before the call goes to MPI."""

    def _intern(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Return the first tuple with these numbers: calls are found by objects, not by values."""
        if len(self.counts) >= _MOST_COUNTS:
            self.counts.clear()
        return self.counts.setdefault(counts, counts)

    def _checked(self, call: Call | None) -> Arguments | None:
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

    def _run(
        self, call: Call | None, table_keys: list[tuple[Any, ...]], differs: object,
        shape: tuple[int, ...] | None = None,
    ) -> bool | None:  # fmt: skip
        arguments = self._checked(call)
        if arguments is None or call is None:
            if not differs:
                self._agree(MPI_CALL)
            self.drop_target(differs)
            return True
        key = (shape, *arguments.signature.values())
        signature = self.get(key)
        digest = arguments.digest((shape, signature and signature.number))
        if differs or not self._agree(digest):
            # A run that has begun cannot be taken back: the ranks would count different runs.
            self.drop([key])
            return True
        if signature is None:
            signature = self.add(key, Signature)
            digest = arguments.digest((shape, signature.number))
        signature.calls += 1
        is_float = call.x is not None and call.x.dtype.kind == "f"
        repeats = 1 if call.op in ("min", "max") and is_float else self.repeats
        if signature.calls == repeats:
            signature.plan = self._plan(arguments)
        if signature.plan is not None:
            self._run_plan(signature.plan, arguments, call, table_keys, digest)
            return None
        if signature.calls >= repeats:
            for table_key in table_keys:
                if lies_in(call, table_key[1], table_key[2]) is not None:
                    self.table.add_function(table_key, None, digest, self.place)
        return True

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
        tally, began = None, 0
        if os.environ.get("MPICOLL_TRACE"):
            from mpicoll.engine import tallies
            from mpicoll.mpi.communicator.tracing import TRACING, kind_of

            assert TRACING is not None
            kind = kind_of(self.comm, table_keys[0], call, arguments, plan)
            tally, began = TRACING.tally(kind), tallies.ticks()
        try:
            program.run_on(x, out, *arrays)
        except BaseException as error:
            self._give_up(program, error)
            raise
        if tally is not None:
            tallies.count(tally, began)
        for table_key in table_keys:
            placement = lies_in(call, table_key[1], table_key[2])
            if placement is not None:
                self.table.add_program(table_key, program, digest, False, None, *placement, tally)

    def _plan(self, arguments: Arguments) -> Plan | None:
        """Return a plan of ours, None where MPI's own call is chosen; collective.

        Raises:
            CollectiveError: an algorithm that a variable names cannot serve the call.
        """
        assert self.transport is not None
        with self.transport.poison_on_error():
            self.planner.check(arguments)
            plan = self.planner.build(replace(arguments, unbound=True))
        if plan.program is not None:
            self._record(plan, arguments)
            return plan
        plan.free()
        return None

    def _record(self, plan: Plan, arguments: Arguments) -> None:
        if self.flight is not None:
            plan.record(self.flight.log, call_of(self.flight, arguments, plan))

    def _give_up(self, program: object, error: BaseException) -> None:
        """Remove the plan of a program that has failed in the middle of a run.

        Args:
            program: None where the ranks only compare a call.
        """
        self.fail_target(program, error)

    @property
    def is_in_order(self) -> bool:
        """Whether no call has failed on this rank: it then counts the same calls as the others."""
        return self.table is None or not (self.has_failed or self.mailbox.number[1])

    def close(self) -> None:
        """Release the plans, the shared memory, and MPI's communicators."""
        self.free()
        self.table = None
        if self.transport is not None:
            self.transport.close()
