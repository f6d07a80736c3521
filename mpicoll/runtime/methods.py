"""Run the methods: by a program that serves any arrays of a signature, where there is one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mpicoll.backend import Array, Transport
from mpicoll.errors import CollectiveError
from mpicoll.execution import extension
from mpicoll.execution.plan import Plan
from mpicoll.memory.waiting import set_call
from mpicoll.peers.calls import BEGUN, ENDED, OtherCall
from mpicoll.runtime.agreement import compare, reconcile
from mpicoll.runtime.allocation import empty
from mpicoll.runtime.arguments import Arguments, Signature
from mpicoll.runtime.kept import Kept, PlanMaker
from mpicoll.runtime.known_calls import KnownCalls, Serve, is_fixed
from mpicoll.runtime.natives import LEFT
from mpicoll.runtime.planner import Planner
from mpicoll.runtime.recording import call_of
from mpicoll.runtime.stated import NoLog, Served, Steps, stated

if TYPE_CHECKING:
    from mpicoll.flight.groups import GroupFlight

ADAPTIVE = "adaptive"
"""The algorithm that `mpicoll.runtime.adaptive` chooses by measuring."""
_MOST_PLANS = 64
_MOST_GPU_BYTES = 1 << 30
"""Of the copies of GPU arrays that kept plans hold together; a larger call runs on its own."""
FOR_EVER = (1 << 63) - 1
_NOT_KEPT = 0
_NO_DIGEST = b"unsettle"
"""Instead of a digest, from a rank that needs the other ranks' arguments first."""


Given = tuple[Any, ...]
"""The arguments of a method as they came: name, x, out, op, root, counts, algorithm."""
_COUNTS, _ALGORITHM = 5, 6


class PlanCache:
    """The plans behind the methods of one group of ranks.

    Attributes:
        find: finds and runs the program of a call without Python; None where none is compiled.
        known: serves the calls that Python has served before.
        call: serves any call of a method, given its arguments as they came.
    """

    def __init__(
        self, transport: Transport, planner: Planner, slow: Any, flight: GroupFlight | None = None
    ) -> None:
        self.transport, self.planner, self.flight = transport, planner, flight
        self._plans: dict[Any, Kept] = {}
        self._made = 0
        self._broken: list[Kept] = []
        self.maker = PlanMaker(transport, planner)
        self.calls = transport.calls
        if self.calls is not None:
            self.calls.drop = self._set_aside
        self.known: KnownCalls[Served] = KnownCalls(transport.arrays, self._bind, slow)
        self.find = self._finder() if planner.routes.has_executor else None
        finder = self.find or extension.functions(transport.arrays.layout(), self.known)
        self.known.finder = finder
        self.call: Any = finder or self.known

    def _finder(self) -> Any:
        """Return what serves the calls of compiled programs; it leaves the others to `known`."""
        shared = self.transport.shared
        layout = self.transport.arrays.layout()
        if shared is None or shared.mailbox is None or layout is None:
            return None
        return extension.calls(layout, shared, self.known, self._give_up, in_method=True)

    def agree(
        self, checked: Arguments | CollectiveError, what: str = "calls a method"
    ) -> Arguments:
        """Return this rank's arguments, completed from the other ranks'; collective."""
        return self.settle(checked, what, _NOT_KEPT)[0]

    def settle(
        self, checked: Arguments | CollectiveError, what: str = "calls a method",
        kept: int | None = None,
    ) -> tuple[Arguments, bool]:  # fmt: skip
        """Return the arguments as `agree` does, and whether no rank has a plan yet; collective.

        Args:
            kept: the number of the plan that this rank has; None where it has none yet.
        """
        own = str(checked) if isinstance(checked, CollectiveError) else checked.signature
        found = self.transport.exchange((what, own, kept), tuple[str, Signature | str, int | None])
        arguments = reconcile(checked, [each for _, each, _ in found])
        compare([said for said, _, _ in found])
        return arguments, all(number is None for _, _, number in found)

    def together(self) -> AbstractContextManager[None]:
        """Use the group no more where this rank alone leaves what all do within this context."""
        return self.transport.together()

    def build(self, arguments: Arguments) -> Plan:
        """Make a plan; collective."""
        with self.together():
            return self.planner.build(arguments)

    def run(
        self, checked: Arguments | CollectiveError, given: Given = (), *, differs: bool = False
    ) -> Array | None:
        """Run a call once, and return its result; collective.

        Args:
            given: the arguments as they came, by which such a call is found again.
            differs: the ranks have found already that they call different things.
        """
        if isinstance(checked, CollectiveError) or not checked.is_complete:
            if not differs and self.calls is None:
                self.matches(_NO_DIGEST)
            return self.run_uncached(checked)
        key = checked.key
        kept = self._plans.get(key)
        digest = checked.digest(kept and kept.number)
        try:
            is_new = kept is None and self.calls is not None
            if is_new or differs or not self.matches(digest, kept):
                if kept is not None:
                    self._take(key).free()
                return self.run_uncached(checked, kept.number if kept else None, given)
            if kept is None and _copied_bytes(checked) > _MOST_GPU_BYTES:
                return self.run_uncached(checked)
            if kept is None:
                kept = self.keep(key, checked)
                digest = checked.digest(kept.number)
            return self.run_kept(kept, checked, digest, given)
        except OtherCall as error:
            self.fail(key, error)
            return self.run_uncached(checked)
        except BaseException as error:
            self.fail(key, error)
            raise

    def get(self, key: Any) -> Kept | None:
        """Return the plan of a key, None where there is none."""
        return self._plans.get(key)

    def matches(self, digest: bytes, kept: Kept | None = None) -> bool:
        """Whether all ranks gave the same digest; a plan that is kept only runs then.

        Where ranks ask each other, those that run a plan that is kept find out as they wait.
        """
        if kept is not None and self.calls is not None:
            return True
        with nullcontext() if kept else self.together():
            return self.transport.agree(digest)

    def run_uncached(
        self, checked: Arguments | CollectiveError, kept: int | None = _NOT_KEPT, given: Given = ()
    ) -> Array | None:
        """Run a call by a plan of its own, after all ranks have checked it; collective.

        Args:
            kept: the number of the plan that this rank had; where it is None on all ranks, and
                they ask each other, they keep this one.
        """
        arguments, is_new = self.settle(checked, kept=kept)
        if is_new and self.calls is not None and _copied_bytes(arguments) <= _MOST_GPU_BYTES:
            made = self.keep(arguments.key, arguments)
            return self.run_kept(made, arguments, arguments.digest(made.number), given)
        return self.run_once(arguments)

    def run_once(self, arguments: Arguments) -> Array | None:
        """Run a call that all ranks have agreed on by a plan of its own; collective."""
        if arguments.algorithm == ADAPTIVE:
            arguments = replace(arguments, algorithm="auto")
        with self.build(arguments) as plan:
            plan.run()
            return plan.out

    def _take(self, key: Any) -> Kept:
        """Remove a plan."""
        kept = self._plans.pop(key)
        if self.find is not None:
            self.find.forget(kept.plan.program)
        self.known.forget(lambda served: served.kept is kept)
        return kept

    def _give_up(self, program: object, error: BaseException | None) -> None:
        """Remove the plan of a program that has failed in the middle of a run.

        Without an error the ranks have found that they call different things.
        """
        for key in [key for key, each in self._plans.items() if each.plan.program is program]:
            if error is None:
                self._take(key).free()
            else:
                self._break(key, error)

    def fail(self, key: Any, error: BaseException) -> None:
        """Remove the plan of a call that has failed on this rank."""
        # Other ranks may still read its memory, or write there.
        if key in self._plans:
            self._break(key, error)

    def drop(self, keys: Iterable[Any]) -> None:
        """Free those of the plans that are kept."""
        for key in keys:
            if key in self._plans:
                self._take(key).free()

    def _set_aside(self, numbers: set[int]) -> None:
        """Run plans of these numbers no more."""
        for key in [key for key, each in self._plans.items() if each.number in numbers]:
            kept = self._take(key)
            if kept.apart is not None:
                kept.apart.left = True
            self._broken.append(kept)

    def _break(self, key: Any, error: BaseException) -> None:
        """Remove a plan that this rank has left in the middle of a run."""
        kept = self._take(key)
        kept.plan.fail(error)
        if kept.apart is not None and not kept.apart.left:
            kept.apart.leave(error)
        self._broken.append(kept)

    def keep(self, key: Any, arguments: Arguments) -> Kept:
        """Make a plan to be kept, in place of the oldest: the same one on all ranks."""
        while len(self._plans) >= _MOST_PLANS or self._has_little_room(arguments):
            self._take(next(iter(self._plans))).free()
        self._made += 1
        kept = self.maker.make(self._made, arguments)
        if self.flight is not None and kept.plan.program is not None:
            kept.plan.record(self.flight.log, call_of(self.flight, arguments, kept.plan))
        self._plans[key] = kept
        return kept

    def _has_little_room(self, arguments: Arguments) -> bool:
        """Whether a plan on copies of GPU arrays must take the place of others."""
        own = _copied_bytes(arguments)
        kept = sum(_copied_bytes(each.arguments) for each in self._plans.values() if each.arguments)
        return kept > 0 and own + kept > _MOST_GPU_BYTES and own > 0

    def run_kept(
        self, kept: Kept, arguments: Arguments, digest: bytes, given: Given, until: int = FOR_EVER
    ) -> Array | None:
        """Run a kept plan for a caller's arrays.

        Args:
            digest: what all ranks state of such a call.
            given: the arguments as they came, by which such calls are found until its run `until`.
        """
        if kept.plan.program is None:
            takes = arguments.x is not None, arguments.out is not None
            place = 0 if self.flight is None else call_of(self.flight, arguments, kept.plan)
            apart = kept.apart if kept.plan.algorithm in LEFT else None
            like = replace(arguments, x=None, out=None, apart=apart)
            gives = bool(arguments.collective.after(arguments.place()))
            served = Served(kept, like, digest, takes, gives, place)
            out = self._bind(served)(arguments.x, arguments.out)
            if given and given[_ALGORITHM] == arguments.algorithm:
                self.known.add(given, served)
            return out
        out = arguments.out
        make = None
        if arguments.has_output and out is None:
            assert arguments.dtype is not None
            shape = arguments.shape("output")
            make = partial(self.transport.arrays.empty, shape, arguments.dtype)
            out = make()
        kept.plan.program.run_on(self._address(arguments.x), self._address(out))
        if self.find is not None and given and is_fixed(given[_COUNTS]):
            state = _stated(digest)
            self.find.add(given, kept.plan.program, state, arguments.has_output, make, until)
        return out

    def _address(self, array: Array | None) -> int:
        return 0 if array is None else self.transport.arrays.span(array)[0]

    def _bind(self, served: Served, differ: Serve | None = None) -> Serve:
        """Return what runs a plan of calls from Python for arrays that are like those of a call.

        Args:
            differ: serves such a call where the ranks call different things, or may as this one
                has no memory; by default OtherCall is raised.
        """
        kept, calls = served.kept, self.calls
        log = None if self.flight is None else self.flight.log
        if calls is None:
            return self._agreed(served, differ, log or NoLog)

        def fail(error: BaseException, x: Array | None, out: Array | None) -> Array | None:
            is_other = isinstance(error, OtherCall)
            if not is_other:
                calls.numbers[ENDED] = calls.numbers[BEGUN]
            self._fail(kept, error)
            if differ is not None and is_other:
                return differ(x, out)
            raise error

        make, run = partial(self._output_or_other, served.arguments), partial(self._run_for, served)
        return stated(served, Steps(make, run, fail), calls, log, self.known.finder)

    def _agreed(self, served: Served, differ: Serve | None, log: Any) -> Serve:
        """Return what runs a plan once the ranks have compared their calls."""
        kept, (takes_x, takes_out), begin, end = served.kept, served.takes, log.begin, log.end
        name = served.arguments.collective.name
        agree = partial(self._agree_on, name, served.digest)
        if self.find is not None:
            agree = partial(self.find.agree, _stated(served.digest), name)

        def serve(x: Array | None, out: Array | None) -> Array | None:
            row = begin(served.place)
            try:
                if differ is not None and not agree():
                    end(row, None)
                    return differ(x, out)
                out = self._run_for(served, x if takes_x else None, out if takes_out else None)
            except BaseException as error:
                end(row, error)
                self._fail(kept, error)
                raise
            end(row, None)
            return out

        return serve

    def _agree_on(self, name: str, digest: bytes) -> bool:
        """Whether all ranks gave the same digest of a call of a collective."""
        before = set_call(name)
        try:
            return self.transport.agree(digest)
        finally:
            set_call(before)

    def _fail(self, kept: Kept, error: BaseException) -> None:
        """Remove a plan that has failed on this rank."""
        for key in [key for key, each in self._plans.items() if each is kept]:
            self.fail(key, error)

    def _output_or_other(self, arguments: Arguments) -> Array | None:
        """Return a new array for the result of this rank, None where it gets none.

        Raises:
            OtherCall: there is no memory, of which the other ranks must hear.
        """
        try:
            return self._output(arguments)
        except (MemoryError, RuntimeError) as error:
            raise OtherCall(str(error)) from error

    def _output(self, arguments: Arguments) -> Array | None:
        """Return a new array for the result of this rank, None where it gets none."""
        if not arguments.has_output:
            return None
        return empty(self.transport, arguments, arguments.shape("output"))

    def _run_for(self, served: Served, x: Array | None, out: Array | None) -> Array | None:
        """Run a plan on its own arrays, or bind the library's call to those that are given."""
        arrays, plan, own = self.transport.arrays, served.kept.plan, served.kept.arguments
        if own is None:
            out = self._output(served.arguments) if out is None else out
            if plan.run_on is not None:
                plan.run_on(x, out)
                return out
            call = replace(served.arguments, x=x, out=out, algorithm=plan.algorithm)
            with self.planner.build_allocated(call) as bound:
                bound.run()
            return out
        if x is not None:
            arrays.copy(own.x, x)
        plan.run()
        if plan.out is None:
            return None
        out = self._output(served.arguments) if out is None else out
        if served.gives:
            arrays.copy(out, plan.out)
        return out

    def free(self) -> None:
        """Release all plans."""
        for key in list(self._plans):
            self._broken.append(self._take(key))
        for kept in self._broken:
            kept.free()
        self._broken.clear()


def _stated(digest: bytes) -> int:
    """Return a digest as the compiled executor takes it."""
    return int.from_bytes(digest, "little", signed=True)


def _copied_bytes(arguments: Arguments) -> int:
    """Return about how many bytes of a GPU a plan on copies takes, the same on all ranks."""
    if arguments.device != "gpu":
        return 0
    arrays = 2 if arguments.collective.unit == "vector" else 2 * arguments.size
    return arrays * arguments.bytes_per_row
