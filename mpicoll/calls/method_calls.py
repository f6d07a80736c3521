"""Run the methods of a group: by the plan table, and by Python where that has no plan."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from mpicoll.backend import Array, Transport
from mpicoll.calls.agreement import compare, reconcile
from mpicoll.calls.arguments import Arguments, Signature
from mpicoll.calls.cached_plan import CachedPlan, PlanMaker, gpu_bytes
from mpicoll.calls.channel_calls import NUMBER, ChannelCalls
from mpicoll.calls.plan_cache import PlanCache
from mpicoll.calls.planner import Planner
from mpicoll.calls.recording import call_of
from mpicoll.engine import extension
from mpicoll.engine.plan import Plan
from mpicoll.errors import ArgumentError, CollectiveError

if TYPE_CHECKING:
    from mpicoll.flight.groups import GroupFlight

_MOST_GPU_BYTES = 1 << 30
"""Of the copies of GPU arrays that cached plans hold together; a larger call runs on its own."""
_NO_DIGEST = int.from_bytes(b"unsettle", "little")
"""Instead of a digest, from a rank that needs the other ranks' arguments first."""


RawArguments = tuple[Any, ...]
"""The arguments of a method as they came: name, x, out, op, root, counts, algorithm."""
_COUNTS = 5


class MethodCalls(PlanCache):
    """The calls of the methods of one group of ranks, and their plans.

    Args:
        slow: runs a call that the plan table does not know, given the arguments as they came; with
            a last argument that is true where the ranks have found that they call different things.

    Attributes:
        table: runs a call, given the arguments as they came.
    """

    def __init__(
        self, transport: Transport, planner: Planner, slow: Any, flight: GroupFlight | None = None
    ) -> None:
        super().__init__()
        self.transport, self.planner, self.flight = transport, planner, flight
        self.maker = PlanMaker(transport, planner)
        self.table = extension.plan_table(transport, slow, self._give_up, log=flight and flight.log)
        self.by_channel = ChannelCalls(transport, planner, self.table, flight)

    def agree(
        self, checked: Arguments | CollectiveError, action: str = "calls a method"
    ) -> Arguments:
        """Return this rank's arguments, completed from the other ranks'; collective."""
        text = str(checked) if isinstance(checked, CollectiveError) else checked.signature
        everyone = self.transport.exchange((action, text), tuple[str, Signature | str])
        arguments = reconcile(checked, [signature for _, signature in everyone])
        compare([rank_action for rank_action, _ in everyone])
        return arguments

    def build(self, arguments: Arguments) -> Plan:
        """Make a plan; collective."""
        with self.transport.poison_on_error():
            return self.planner.build(arguments)

    def run(
        self, checked: Arguments | CollectiveError, raw_arguments: RawArguments, *, differs: bool
    ) -> Array | None:
        """Run a call once, and return its result; collective.

        Args:
            raw_arguments: the arguments as they came, by which the plan table knows such a call
                again.
            differs: the ranks have found already that they call different things.
        """
        if not _is_constant(raw_arguments[_COUNTS]):
            raw_arguments = ()  # the table compares counts by identity
        if isinstance(checked, CollectiveError) or not checked.is_complete:
            if not differs:
                self.matches(_NO_DIGEST)
            return self._run_agreed(checked, raw_arguments)
        if self.by_channel.serves(checked):
            with self.by_channel.left_on_error():
                is_alike = not differs and self.matches(self.by_channel.digest(checked))
            run = self._run_by_channel if is_alike else self._run_agreed
            return run(checked, raw_arguments)
        resolved = self.planner.resolved(checked)  # a rank without an array cannot do so yet
        plan = self.plans.get(resolved.key)
        digest = resolved.digest(plan and plan.number)
        try:
            if differs or not self.matches(digest, plan):
                return self._run_agreed(checked, raw_arguments)
            return self._run_alike(plan, resolved, raw_arguments)
        except ArgumentError:
            raise  # on all ranks, before any has run a plan
        except BaseException as error:
            if plan is not None:
                self.fail(plan, error)
            raise

    def matches(self, digest: int, plan: CachedPlan | None = None) -> bool:
        """Whether all ranks gave the same digest; a cached plan only runs then."""
        with nullcontext() if plan else self.transport.poison_on_error():
            return bool(self.table.agree(digest))

    def _run_agreed(
        self, checked: Arguments | CollectiveError, raw_arguments: RawArguments
    ) -> Array | None:
        """Run a call after all ranks have checked it; collective."""
        arguments = self.planner.resolved(self.agree(checked))
        plan, is_channels = self.plans.get(arguments.key), self.by_channel.serves(arguments)
        number = NUMBER if is_channels else plan and plan.number
        numbers = self.transport.exchange(number, int | None)
        if any(number != numbers[0] for number in numbers):
            if is_channels:
                self.by_channel.close()  # another rank's has failed
            self.drop(arguments.key)
            return self._run_once(arguments)
        if is_channels:
            return self._run_by_channel(arguments, raw_arguments)
        return self._run_alike(plan, arguments, raw_arguments)

    def _run_by_channel(self, arguments: Arguments, raw_arguments: RawArguments) -> Array | None:
        """Run a call that all ranks would run by the channel; collective."""
        if self.by_channel.channel is None:
            with self.transport.poison_on_error():
                self.by_channel.open()
            if not self.by_channel.serves(arguments):
                return self._run_alike(self.plans.get(arguments.key), arguments, raw_arguments)
        with self.by_channel.left_on_error():
            return self.by_channel.run(arguments, raw_arguments)

    def _run_alike(
        self, plan: CachedPlan | None, arguments: Arguments, raw_arguments: RawArguments
    ) -> Array | None:
        """Run a call for which all ranks have the same plan, or none yet; collective."""
        if plan is None:
            if gpu_bytes(arguments) > _MOST_GPU_BYTES:
                return self._run_once(arguments)
            plan = self.make(arguments.key, arguments)
        elif arguments.op.function is not None and arguments.op.function is not plan.function:
            raw_arguments = ()  # the table would have an entry for each new function
        return self.run_cached(plan, arguments, raw_arguments)

    def _run_once(self, arguments: Arguments) -> Array | None:
        """Run a call by a plan of its own; collective."""
        with self.build(arguments) as uncached:
            uncached.run()
            return uncached.out

    def _give_up(self, plan: Any, error: BaseException) -> None:
        """Remove a plan, or close the channel, that has failed in the middle of a run."""
        if self.by_channel.channel is not None and plan is self.by_channel.channel.channel:
            self.by_channel.close()
        else:
            self.fail(plan, error)

    def free(self) -> None:
        self.by_channel.close()
        super().free()

    def make(self, key: Any, arguments: Arguments) -> CachedPlan:
        """Make a plan, and cache it: the same one on all ranks."""
        while self._has_little_room(arguments):
            self.drop_oldest()
        plan = self.add(key, partial(self.maker.make, arguments=arguments))
        if self.flight is not None and plan.plan.program is not None:
            plan.plan.record(self.flight.log, call_of(self.flight, arguments, plan.plan))
        return plan

    def _has_little_room(self, arguments: Arguments) -> bool:
        """Whether a plan on copies of GPU arrays must take the place of others."""
        new, used = gpu_bytes(arguments), sum(plan.gpu_bytes for plan in self.plans.values())
        return min(new, used) > 0 and new + used > _MOST_GPU_BYTES

    def run_cached(
        self, plan: CachedPlan, arguments: Arguments, raw_arguments: RawArguments
    ) -> Array | None:
        """Run a cached plan for a caller's arrays, and enter it into the plan table.

        Args:
            raw_arguments: the arguments as they came, by which the table finds the plan; empty
                where it is not to.
        """
        run = self.maker.bound(plan, arguments)
        try:
            out = run(arguments.x, arguments.out)
        except BaseException as error:
            self.fail(plan, error)
            raise
        if raw_arguments:
            self._enter(plan, run, arguments, raw_arguments)
        return out

    def _enter(
        self, plan: CachedPlan, run: Callable[..., Any], arguments: Arguments,
        raw_arguments: RawArguments,
    ) -> None:  # fmt: skip
        """Let the plan table serve such calls by a plan."""
        digest, make, place = arguments.digest(plan.number), None, 0
        if plan.program is None and self.flight is not None:
            place = call_of(self.flight, arguments, plan.plan)
        if plan.program is not None and arguments.has_output and arguments.out is None:
            make = partial(
                self.transport.arrays.empty, arguments.shape("output"), arguments.dtype or ""
            )
        has_output = plan.program is not None and arguments.has_output
        runner = plan.program or run
        self.table.add(raw_arguments, runner, digest, plan, place, has_output, make)


def _is_constant(counts: Any) -> bool:
    """Whether counts that are the same object are the same numbers."""
    if isinstance(counts, tuple):
        return all(map(_is_constant, counts))
    return counts is None or isinstance(counts, int)
