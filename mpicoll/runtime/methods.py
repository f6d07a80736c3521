"""Run the methods: by a program that serves any arrays of a signature, where there is one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from mpicoll.errors import CollectiveError
from mpicoll.execution import compiled
from mpicoll.execution.plan import Plan
from mpicoll.interfaces import Array, Transport
from mpicoll.runtime.arguments import (
    Arguments,
    Signature,
    compare,
    empty,
    reconcile,
)
from mpicoll.runtime.planner import Planner
from mpicoll.runtime.recording import call_of

if TYPE_CHECKING:
    from mpicoll.flight.groups import GroupFlight

ADAPTIVE = "adaptive"
"""The algorithm that `mpicoll.runtime.adaptive` chooses by measuring."""
_MOST_PLANS = 64
_MOST_GPU_BYTES = 1 << 30
"""Of the copies of GPU arrays that kept plans hold together; a larger call runs on its own."""
FOR_EVER = (1 << 63) - 1
_NO_DIGEST = b"unsettle"
"""Instead of a digest, from a rank that needs the other ranks' arguments first."""

Given = tuple[Any, ...]
"""The arguments of a method as they came: name, x, out, op, root, counts, algorithm."""
_COUNTS = 5


class Kept(NamedTuple):
    """A plan that serves every call of one signature.

    Attributes:
        number: how many were made before it, by which the ranks know that they run the same plan.
        arguments: its own arrays, which a call is copied to and from; None where it runs on any.
    """

    number: int
    plan: Plan
    arguments: Arguments | None


class PlanCache:
    """The plans behind the methods of one group of ranks.

    Attributes:
        find: finds and runs the program of a call without Python; None where Python does.
    """

    def __init__(
        self, transport: Transport, planner: Planner, slow: Any, flight: GroupFlight | None = None
    ) -> None:
        self.transport, self.planner, self.flight = transport, planner, flight
        self._plans: dict[Any, Kept] = {}
        self._made = 0
        self._broken: list[Plan] = []
        self.find = self._finder(slow) if planner.routes.has_executor else None

    def _finder(self, slow: Any) -> Any:
        """Return what serves known calls; it leaves the others to `slow`."""
        shared = self.transport.shared
        layout = self.transport.arrays.layout()
        if shared is None or shared.mailbox is None or layout is None:
            return None
        return compiled.calls(layout, shared, slow, self._give_up)

    def agree(
        self, checked: Arguments | CollectiveError, what: str = "calls a method"
    ) -> Arguments:
        """Return this rank's arguments, completed from the other ranks'; collective."""
        own = str(checked) if isinstance(checked, CollectiveError) else checked.signature
        found = self.transport.exchange((what, own), tuple[str, Signature | str])
        arguments = reconcile(checked, [each for _, each in found])
        compare([said for said, _ in found])
        return arguments

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
            if not differs:
                self.matches(_NO_DIGEST)
            return self.run_uncached(checked)
        key = checked.key
        kept = self._plans.get(key)
        digest = checked.digest(kept and kept.number)
        try:
            if differs or not self.matches(digest, kept):
                if kept is not None:
                    self._take(key).free()
                return self.run_uncached(checked)
            if kept is None and _copied_bytes(checked) > _MOST_GPU_BYTES:
                return self.run_uncached(checked)
            if kept is None:
                kept = self.keep(key, checked)
                digest = checked.digest(kept.number)
            return self.run_kept(kept, checked, digest, given)
        except BaseException as error:
            self.fail(key, error)
            raise

    def get(self, key: Any) -> Kept | None:
        """Return the plan of a key, None where there is none."""
        return self._plans.get(key)

    def matches(self, digest: bytes, kept: Kept | None = None) -> bool:
        """Whether all ranks gave the same digest; a plan that is kept only runs then."""
        with nullcontext() if kept else self.together():
            return self.transport.agree(digest)

    def run_uncached(self, checked: Arguments | CollectiveError) -> Array | None:
        """Run a call by a plan of its own, after all ranks have checked it; collective."""
        arguments = self.agree(checked)
        if arguments.algorithm == ADAPTIVE:
            arguments = replace(arguments, algorithm="auto")
        with self.build(arguments) as plan:
            plan.run()
            return plan.out

    def _take(self, key: Any) -> Plan:
        """Remove a plan."""
        plan = self._plans.pop(key).plan
        if self.find is not None:
            self.find.forget(plan.program)
        return plan

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

    def _break(self, key: Any, error: BaseException) -> None:
        """Remove a plan that this rank has left in the middle of a run."""
        plan = self._take(key)
        plan.fail(error)
        self._broken.append(plan)

    def keep(self, key: Any, arguments: Arguments) -> Kept:
        """Make a plan to be kept, in place of the oldest: the same one on all ranks."""
        while len(self._plans) >= _MOST_PLANS or self._has_little_room(arguments):
            self._take(next(iter(self._plans))).free()
        self._made += 1
        own, plan = None, self._on_any_arrays(arguments)
        if plan is None:
            with self.together():
                own = self.planner.allocated(arguments, copies=True)
                plan = self.planner.build_allocated(own)
        if self.flight is not None and plan.program is not None:
            plan.record(self.flight.log, call_of(self.flight, arguments, plan))
        self._plans[key] = Kept(self._made, plan, own)
        return self._plans[key]

    def _on_any_arrays(self, arguments: Arguments) -> Plan | None:
        """Return a plan that runs on any arrays of a signature, None where there is none."""
        if arguments.device == "gpu" or not self.planner.may_compile(arguments):
            return None
        plan = self.build(replace(arguments, unbound=True))
        if plan.program is not None:
            return plan
        plan.free()
        return None

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
        if kept.arguments is not None:
            return self._run_copied(kept.plan, kept.arguments, arguments)
        assert kept.plan.program is not None
        out = arguments.out
        make = None
        if arguments.has_output and out is None:
            assert arguments.dtype is not None
            shape = arguments.shape("output")
            make = partial(self.transport.arrays.empty, shape, arguments.dtype)
            out = make()
        kept.plan.program.run_on(self._address(arguments.x), self._address(out))
        if self.find is not None and given and _is_fixed(given[_COUNTS]):
            stated = int.from_bytes(digest, "little", signed=True)
            self.find.add(given, kept.plan.program, stated, arguments.has_output, make, until)
        return out

    def _address(self, array: Array | None) -> int:
        return 0 if array is None else self.transport.arrays.span(array)[0]

    def _run_copied(self, plan: Plan, own: Arguments, arguments: Arguments) -> Array | None:
        """Run a plan on its own arrays: copy a call's input in, and its output out."""
        arrays = self.transport.arrays
        if arguments.x is not None:
            arrays.copier(arrays.flat(own.x), arrays.flat(arguments.x))()
        plan.run()
        if plan.out is None:
            return None
        out = arguments.out
        if out is None:
            out = empty(self.transport, arguments, arguments.shape("output"))
        if arguments.collective.after(arguments.place()):
            arrays.copier(arrays.flat(out), arrays.flat(plan.out))()
        return out

    def free(self) -> None:
        """Release all plans."""
        for key in list(self._plans):
            self._broken.append(self._take(key))
        for plan in self._broken:
            plan.free()
        self._broken.clear()


def _copied_bytes(arguments: Arguments) -> int:
    """Return about how many bytes of a GPU a plan on copies takes, the same on all ranks."""
    if arguments.device != "gpu":
        return 0
    arrays = 2 if arguments.collective.unit == "vector" else 2 * arguments.size
    return arrays * arguments.bytes_per_row


def _is_fixed(counts: Any) -> bool:
    """Whether counts that are the same object are the same numbers."""
    if isinstance(counts, tuple):
        return all(map(_is_fixed, counts))
    return counts is None or isinstance(counts, int)
