"""Make the plan that serves all calls of one signature: on any arrays, on copies, or bound anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from mpicoll.execution.plan import Plan
from mpicoll.interfaces import Apart, Transport
from mpicoll.notation.elements import reduce_op
from mpicoll.runtime.allocation import with_arrays
from mpicoll.runtime.arguments import Arguments, check_arguments
from mpicoll.runtime.planner import Planner

_COPIED = 64 * 1024
"""Bytes up to which the library's own calls run on copies: to bind them anew takes as long."""
_FEW = 1024
"""Bytes up to which a call that gives all ranks the result costs less than a barrier."""
_MEETING = {"broadcast": "allreduce", "reduce": "allreduce", "gather": "allgather"}
"""Calls that no rank completes before all have begun them, instead of those that ranks may."""


class Kept(NamedTuple):
    """A plan that serves every call of one signature.

    Attributes:
        number: how many were made before it, by which the ranks know that they run the same plan.
        arguments: its own arrays, which a call is copied to and from; None where it runs on any,
            or is bound anew to those of each call.
        meet: a barrier before each run, where the plan itself does not wait for all ranks.
        apart: of the library's own call, the barrier's or the plan's.
    """

    number: int
    plan: Plan
    arguments: Arguments | None
    meet: Plan | None = None
    apart: Apart | None = None

    def free(self) -> None:
        """Release the plans."""
        self.plan.free()
        if self.meet is not None:
            self.meet.free()
        if self.apart is not None:
            self.apart.free()


class PlanMaker:
    """Makes the plans behind the methods of one group of ranks."""

    def __init__(self, transport: Transport, planner: Planner) -> None:
        self.transport, self.planner, self.calls = transport, planner, transport.calls

    def make(self, number: int, arguments: Arguments) -> Kept:
        """Return a plan to be kept; collective."""
        own = meet = apart = None
        plan = self._on_any_arrays(arguments)
        if plan is None:
            with self.transport.together():
                own = with_arrays(self.transport, replace(arguments, unbound=True), copies=True)
                plan = self.planner.build_allocated(own)
                meets = _meets(arguments)
                if self.calls is not None and (plan.executor == "native" or not meets):
                    tag = self.planner.tags.take()
                    apart = self.calls.apart(tag)
                    self.planner.tags.hold(tag, apart)
                    on_host = plan.algorithm == "native" and arguments.device != "gpu"
                    if on_host and meets:
                        plan.free()
                        own = replace(own, algorithm="native", apart=apart)
                        plan = self.planner.build_allocated(own)
                    elif on_host and _may_meet(arguments):
                        plan.free()
                        own, plan = self._meeting(own, apart)
                    else:
                        meet = self.planner.build(self._barrier(apart))
            is_native = plan.executor == "native" and arguments.device != "gpu"
            if is_native and arguments.nbytes > _COPIED:
                plan.free()
                own = None
        return Kept(number, plan, own, meet, apart)

    def _meeting(self, own: Arguments, apart: Apart) -> tuple[Arguments, Plan]:
        """Return a call with other arrays, and a plan that serves it without a barrier before.

        The plan is of a call of the library's that gives every rank what the root alone gets; what
        is broadcast is the bitwise or of what the root has and of zeros.
        """
        transport, arrays, what, x, op = self.transport, self.transport.arrays, "", own.x, own.op
        if own.collective.name == "broadcast":
            what, op = "allreduce", reduce_op("bor")
            x = arrays.empty((own.bytes_per_row,), "uint8")
            arrays.from_host(x, 0)
        else:
            what = _MEETING[own.collective.name]
        call = check_arguments(
            arrays, transport.rank, transport.size, what, x,
            out=None, op=op, root=0, counts=None, algorithm="native",
        )  # fmt: skip
        assert isinstance(call, Arguments)
        plan = self.planner.build(replace(call, apart=apart))
        if own.collective.name == "broadcast":
            assert own.dtype is not None and own.row is not None
            held: list[Any] = [x, plan.out]
            x, plan.out = (arrays.over(memoryview(each), own.dtype, own.row) for each in held)
        elif not own.has_output:
            plan.out = None
        return replace(own, x=x, apart=apart), plan

    def _barrier(self, apart: Apart) -> Arguments:
        transport = self.transport
        barrier = check_arguments(
            transport.arrays, transport.rank, transport.size, "barrier", None,
            out=None, op="sum", root=0, counts=None, algorithm="native",
        )  # fmt: skip
        return replace(barrier, apart=apart)

    def _on_any_arrays(self, arguments: Arguments) -> Plan | None:
        """Return a plan that runs on any arrays of a signature, None where there is none."""
        if arguments.device == "gpu" or not self.planner.routes.may_compile(arguments):
            return None
        with self.transport.together():
            plan = self.planner.build(replace(arguments, unbound=True))
        if plan.program is not None:
            return plan
        plan.free()
        return None


def _meets(arguments: Arguments) -> bool:
    """Whether no rank completes a call before all have begun it, as all results need all inputs."""
    what = arguments.collective
    if arguments.counts is not None or not what.synchronizes:
        return False
    return what.unit == "none" or arguments.bytes_per_row > 0


def _may_meet(arguments: Arguments) -> bool:
    """Whether another call that all ranks wait for takes less time than this one and a barrier."""
    return (
        arguments.algorithm == "auto" and arguments.collective.name in _MEETING
        and arguments.counts is None and arguments.op.function is None
        and 0 < arguments.nbytes <= _FEW
    )  # fmt: skip
