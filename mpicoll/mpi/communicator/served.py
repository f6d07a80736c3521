"""What serves the calls on one communicator: our programs, or MPI's own collectives.

Every call that may be ours is one round of agreement in shared memory, in which each rank states
what it is called with: the same on all ranks, it is ours; where one differs, because it is wrong
or because MPI alone can read that rank's buffer, it is MPI's own on all ranks alike. A call of a
known signature makes that round within its program, for nothing.
"""

from __future__ import annotations

import os
from dataclasses import replace
from math import inf
from typing import Any

from mpi4py import MPI

from mpicoll.errors import CollectiveError
from mpicoll.execution import extension, tallies
from mpicoll.execution.plan import Plan
from mpicoll.flight.groups import GroupFlight
from mpicoll.memory.waiting import DEADLINE
from mpicoll.mpi.communicator.buffers import Refused
from mpicoll.mpi.communicator.deferring import completed, defer, raise_deferred
from mpicoll.mpi.communicator.messages import is_in_use
from mpicoll.mpi.communicator.reading import OPS, Call, Place, lies_in
from mpicoll.mpi.communicator.tracing import AS_OBJECT, TRACING, kind_of
from mpicoll.mpi.communicator.uneven import PART_READERS, Part, complete, read
from mpicoll.mpi.transport import MpiTransport
from mpicoll.runtime.arguments import Arguments, check_arguments
from mpicoll.runtime.methods import FOR_EVER
from mpicoll.runtime.planner import Planner
from mpicoll.runtime.recording import Recording, call_of
from mpicoll.runtime.routes import Routes
from mpicoll.selection.auto import AutoChooser

_MOST = 64
_MISSES, _ROUNDS = 64, 64
"""After so many misses, none of them so many rounds of agreement behind another, a method is MPI's.
"""
_THEIRS = b"is MPI's"
"""Instead of a digest, from a rank whose buffers only MPI can read."""
THEIRS = "theirs"
"""The name of a call that this rank leaves to MPI, whatever it is."""
_LEFT = THEIRS, None, None, None, 0, None, None
LEFT_ALONE = THEIRS, None, None, None, 1, None, None
"""The same of a rank that need not know whether the others leave it, too."""
_READ = "read"
"""The algorithm of a call that has been read, where others have none."""


class Signature:
    """A signature that the ranks have agreed on.

    Attributes:
        number: how many were before it, by which ranks know that they mean the same one.
        calls: how many there have been.
        plan: ours; None where there is none yet, or MPI's own call is as good.
    """

    def __init__(self, number: int) -> None:
        self.number, self.calls = number, 0
        self.plan: Plan | None = None


class Asked:
    """The methods of which a rank does not know the others' counts.

    Attributes:
        left: those that are MPI's, as their counts are seldom what they were.
    """

    def __init__(self) -> None:
        self.left: set[str] = set()
        self.misses: dict[str, int] = {}
        self.last = 0

    def miss(self, name: str, number: int) -> bool:
        """Count a call whose counts were unknown; return whether the method becomes MPI's.

        Args:
            number: of the ranks' rounds of agreement.
        """
        if number - self.last > _ROUNDS:
            self.misses.clear()
        self.last = number
        self.misses[name] = self.misses.get(name, 0) + 1
        if self.misses[name] > _MISSES:
            self.left.add(name)
        return name in self.left


class Served:
    """Our collectives on one communicator of one node.

    Args:
        algorithms: those that are forced, by collective.
        repeats: at which call of a signature a plan is made for it.
        flight: records the calls, None where nothing does.

    Attributes:
        find: serves a call given as `run` takes it: True where MPI's own is to serve it.
    """

    def __init__(
        self, comm: MPI.Comm, algorithms: dict[str, str], repeats: int, flight: GroupFlight | None
    ) -> None:
        self.flight, self.recording = flight, Recording(flight)
        self.comm, self.transport = comm, MpiTransport(comm)
        self.at = Place(self.transport.rank, self.transport.size)
        self.algorithms, self.repeats = algorithms, repeats
        self.signatures: dict[Any, Signature] = {}
        self.counts: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.made = 0
        self.broken: list[Plan] = []
        self.asked = Asked()
        self.find: Any = None
        routes = Routes(self.transport)
        self.planner = Planner(self.transport, routes, AutoChooser(self.transport))
        layout = self.transport.arrays.layout()
        shared = self.transport.shared
        if shared is None or shared.mailbox is None or not routes.has_executor or layout is None:
            self.close()
            return
        self.mailbox = shared.mailbox
        if patient := DEADLINE not in os.environ:
            shared.wait_policy.deadline = inf  # as MPI waits
        self.find = extension.calls(
            layout, shared, self.run, self._give_up, late=self._miss if patient else None,
            in_place=MPI.IN_PLACE, datatype=MPI.Datatype,
        )  # fmt: skip

        shared.wait_policy.defer = self._defer
        # Stating that a call is left to MPI takes a program without an instruction.
        self.nothing = extension.nothing(shared)
        if flight is not None:
            self.nothing.record(flight.log, flight.call("left to MPI", "", "", ""))
        self._know_left()

    def _know_left(self) -> None:
        self.find.add(_LEFT, self.nothing, _stated(_THEIRS), False, None)
        self.find.add(LEFT_ALONE, self.nothing, _stated(_THEIRS), False, True)

    def run(
        self, name: str, x: Any, out: Any, op: Any, root: Any, counts: Any, algorithm: Any,
        differs: object = None,
    ) -> bool | None:  # fmt: skip
        """Run a call that the compiled executor does not know; True where MPI is to serve it.

        Args:
            name: of mpi4py's method, in small letters; one of ours where the call has been read.
            differs: the program that this rank has begun, where the ranks have found already that
                they call different things.
        """
        if self.find is None:
            return True  # the communicator has been freed
        if name in self.asked.left:
            return True
        if isinstance(op, MPI.Op) and op.handle not in OPS:
            return True  # MPI demands the same operator on all ranks
        if name is THEIRS:
            return self._leave(differs)
        with self.recording.call(name):
            try:
                served = self._find_out((name, x, out, op, root, counts, algorithm), differs)
            except Refused:
                self._drop_begun(differs)
                return True  # mpi4py's own method raises, before it has met the other ranks
        if not (served or is_in_use(self.find)):
            raise_deferred()
        return served

    def _leave(self, differs: object) -> bool | None:
        """State that a call is left to MPI, where the executor has not; True where others do not.

        It keeps some hundreds of calls, on each rank others: this one may have gone.
        """
        if differs:
            return True
        self._know_left()
        return None if self._agree(_THEIRS) else True

    def _agree(self, digest: bytes) -> bool:
        """Whether all ranks state the same call; the others may be inside MPI once they do."""
        return self.mailbox.agree(digest, completed)

    def _find_out(self, given: tuple[Any, ...], differs: object) -> bool | None:
        """Run a call, or find out with the others that MPI is to serve it."""
        name, x, out, op, root, counts, algorithm = given
        if algorithm is AS_OBJECT:
            call = self._read(name, x, out, op, root, counts)
            return self._run(call, [given], differs, x.shape)
        if algorithm is _READ:
            read_call = Part if name in PART_READERS else Call
            return self._serve(read_call(name, x, out, op, root, counts), [given], differs)
        call = self._read(name, x, out, op, root, counts)
        if call is None:
            if not differs and self.find.within(*_LEFT) is None:  # on all ranks
                self.find.add(given, self.nothing, _stated(_THEIRS), False, True)
            else:
                self._drop_begun(differs)
                self._miss(name)
            return True
        rows = call.counts and self._same(call.counts)
        read = (call.name, call.x, call.out, call.op, call.root, rows, _READ)
        if self.find.reads(given) and lies_in(call, x, out) is not None:
            return self._serve(call, [given, read], differs)
        found: bool | None = self.find.within(*read)
        return found

    def _serve(
        self, call: Call | Part, given: list[tuple[Any, ...]], differs: object
    ) -> bool | None:
        if isinstance(call, Call):
            return self._run(call, given, differs)
        # The ranks tell each other their counts, where none of them runs such a call already.
        known = not differs and self._agree(call.asking)
        if not known:
            self._drop_begun(differs)
        self._miss(call.name)
        if not known or call.name in self.asked.left:
            return True
        counts = self.transport.exchange(call.counts, tuple[int, ...])
        return self._run(complete(self.at, call, counts), given, None)

    def _miss(self, name: str) -> None:
        """Count a call whose counts the ranks did not know; the same one on all ranks."""
        if name in PART_READERS and self.asked.miss(name, self.mailbox.number[0]):
            # No rank may find by itself what the others leave to MPI from now on.
            for each in self.signatures.values():
                if each.plan is not None:
                    self.find.forget(each.plan.program)
            self.find.forget(self.nothing)
            self._know_left()

    def _drop_begun(self, program: object) -> None:
        """Drop the signature whose program this rank alone has begun: it has counted that run."""
        for key, each in list(self.signatures.items()):
            if program is not None and each.plan is not None and each.plan.program is program:
                self._drop(self.signatures.pop(key))

    def _read(self, name: str, x: Any, out: Any, op: Any, root: Any, counts: Any) -> Any:
        """Return the `Call` or `Part` that the arguments describe, None where only MPI can."""
        try:
            return read(self.at, name, x, out, op, root, counts)
        except Refused:
            raise
        except Exception:  # whatever is wrong, MPI's own method says it
            return None

    def _same(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Return the first tuple with these numbers: calls are found by objects, not by values."""
        if len(self.counts) >= _MOST:
            self.counts.clear()
        return self.counts.setdefault(counts, counts)

    def _checked(self, call: Call) -> Arguments | None:
        try:
            return check_arguments(
                self.transport.arrays, *self.at, call.name, call.x, out=call.out, op=call.op,
                root=call.root, counts=call.counts,
                algorithm=self.algorithms.get(call.name, "auto"),
            )  # fmt: skip
        except CollectiveError:
            return None

    def _run(
        self, call: Call | None, given: list[tuple[Any, ...]], differs: object,
        shape: tuple[int, ...] | None = None,
    ) -> bool | None:  # fmt: skip
        arguments = None if call is None else self._checked(call)
        if arguments is None or call is None:
            if not differs:
                self.find.within(*_LEFT)
            self._drop_begun(differs)
            return True
        key = (shape, *arguments.signature.values())
        known = self.signatures.get(key)
        digest = arguments.digest((shape, known and known.number))
        if differs or not self._agree(digest):
            # A run that has begun cannot be taken back: the ranks would count different runs.
            if known is not None:
                self._drop(self.signatures.pop(key))
            return True
        if known is None:
            known = self._add(key)
            digest = arguments.digest((shape, known.number))
        known.calls += 1
        is_float = call.x is not None and call.x.dtype.kind == "f"
        repeats = 1 if call.op in ("min", "max") and is_float else self.repeats
        if known.calls == repeats:
            known.plan = self._plan(arguments)
        if known.plan is None:
            if known.calls >= repeats:
                self._add_all(given, call, self.nothing, digest, theirs=True)
            return True
        assert known.plan.program is not None and self.find is not None
        address = self.transport.arrays.span
        x, out = (0 if each is None else address(each)[0] for each in (arguments.x, arguments.out))
        tally, began = None, 0
        if TRACING is not None:
            kind = kind_of(self.comm, given[0], call, arguments, known.plan)
            tally, began = TRACING.tally(kind), tallies.ticks()
        try:
            known.plan.program.run_on(x, out)
        except BaseException as error:
            self._give_up(known.plan.program, error)
            raise
        if tally is not None:
            tallies.count(tally, began)
        self._add_all(given, call, known.plan.program, digest, tally=tally)
        return None

    def _add_all(
        self, given: list[tuple[Any, ...]], call: Call, program: object, digest: bytes, *,
        theirs: bool | None = None, tally: object = None,
    ) -> None:  # fmt: skip
        """Let the executor serve such calls from now on.

        Args:
            given: the arguments by which they are found.
            theirs: True where MPI is to serve them.
            tally: to which their times are added.
        """
        for each in given:
            where = lies_in(call, each[1], each[2])
            if where is not None:
                stated = _stated(digest)
                self.find.add(each, program, stated, False, theirs, FOR_EVER, *where, tally)

    def _add(self, key: Any) -> Signature:
        """Return a new signature, in place of the oldest: the same one on all ranks."""
        if len(self.signatures) >= _MOST:
            self._drop(self.signatures.pop(next(iter(self.signatures))))
        self.made += 1
        self.signatures[key] = Signature(self.made)
        return self.signatures[key]

    def _drop(self, signature: Signature) -> None:
        if signature.plan is not None:
            if self.find is not None:
                self.find.forget(signature.plan.program)
            signature.plan.free()

    def _plan(self, arguments: Arguments) -> Plan | None:
        """Return a plan of ours, None where MPI's own call is chosen; collective.

        Raises:
            CollectiveError: an algorithm that a variable names cannot serve the call.
        """
        with self.mailbox.together():
            self.planner.check(arguments)
            plan = self.planner.build(replace(arguments, unbound=True))
        if plan.program is not None:
            if self.flight is not None:
                plan.record(self.flight.log, call_of(self.flight, arguments, plan))
            return plan
        plan.free()
        return None

    def _defer(self, error: BaseException) -> bool:
        """Keep an error for the end of a method of objects, which makes further collectives."""
        return is_in_use(self.find) and defer(error)

    def _give_up(self, program: object, error: BaseException) -> bool:
        """Remove the plan of a program that has failed in the middle of a run.

        Returns:
            Whether the call goes on, as MPI is to serve it.
        """
        if program is self.nothing or is_in_use(self.find):
            return defer(error)
        for key, each in list(self.signatures.items()):
            if each.plan is not None and each.plan.program is program:
                del self.signatures[key]
                if self.find is not None:
                    self.find.forget(program)
                each.plan.fail(error)
                # Other ranks may still read its memory, or write there.
                self.broken.append(each.plan)
        return False

    @property
    def is_in_order(self) -> bool:
        """Whether no call has failed on this rank: it then counts the same calls as the others."""
        return self.find is None or not (self.broken or self.mailbox.number[1])

    def close(self) -> None:
        """Release the plans, the shared memory, and MPI's communicators."""
        for each in self.signatures.values():
            self._drop(each)
        self.signatures.clear()
        for plan in self.broken:
            plan.free()
        self.broken.clear()
        self.find = None
        self.transport.close()


def _stated(digest: bytes) -> int:
    return int.from_bytes(digest, "little", signed=True)
