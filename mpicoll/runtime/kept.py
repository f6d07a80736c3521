"""Make the plan that serves all calls of one signature: on any arrays, on copies, or bound anew."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from mpicoll.backend import Transport
from mpicoll.execution.plan import Plan
from mpicoll.peers.calls import Apart
from mpicoll.runtime.allocation import with_arrays
from mpicoll.runtime.arguments import Arguments, check_arguments
from mpicoll.runtime.natives import FOLDED, LEFT
from mpicoll.runtime.planner import Planner

_COPIED = 256 * 1024
"""Bytes up to which bound calls of the library's own run on copies: to bind them takes as long."""


class Kept(NamedTuple):
    """A plan that serves every call of one signature.

    Attributes:
        number: how many were made before it, by which the ranks know that they run the same plan.
        arguments: its own arrays, which a call is copied to and from; None where it runs on any,
            or is bound anew to those of each call.
        meet: what runs before, where the plan itself does not wait for all ranks.
        release: what runs after, from a rank that knows then that all have begun.
        apart: of the library's own calls among these.
    """

    number: int
    plan: Plan
    arguments: Arguments | None
    meet: Plan | None = None
    release: Plan | None = None
    apart: Apart | None = None

    def free(self) -> None:
        """Release the plans."""
        for plan in (self.plan, self.meet, self.release):
            if plan is not None:
                plan.free()
        if self.apart is not None:
            self.apart.free()


class PlanMaker:
    """Makes the plans behind the methods of one group of ranks."""

    def __init__(self, transport: Transport, planner: Planner) -> None:
        self.transport, self.planner, self.calls = transport, planner, transport.calls

    def make(self, number: int, arguments: Arguments) -> Kept:
        """Return a plan to be kept; collective."""
        own = meet = release = apart = None
        plan = self._on_any_arrays(arguments)
        if plan is None:
            with self.transport.together():
                own = with_arrays(self.transport, replace(arguments, unbound=True), copies=True)
                plan = self.planner.build_allocated(own)
                meets = _meets(arguments, plan)
                if self.calls is not None and (plan.executor == "native" or not meets):
                    tag = self.planner.tags.take()
                    apart = self.calls.apart(tag, arguments.collective.name)
                    self.planner.tags.hold(tag, apart)
                    is_left = plan.algorithm in LEFT or plan.executor != "native"
                    can_leave = is_left and arguments.device != "gpu"
                    if not (can_leave and meets):
                        meet, release = self._signals(arguments, apart, can_leave=can_leave)
                    if can_leave and plan.algorithm in LEFT:
                        plan.free()
                        own = replace(own, algorithm=plan.algorithm, apart=apart)
                        is_barrier = arguments.collective.unit == "none"
                        build = self.planner.build_allocated
                        plan = self._signal("allreduce", apart) if is_barrier else build(own)
                is_native = plan.executor == "native" and arguments.device != "gpu"
                if is_native and arguments.nbytes > _COPIED:
                    plan.free()
                    plan, own = plan.without_arrays(), None
        return Kept(number, plan, own, meet, release, apart)

    def _signals(
        self, arguments: Arguments, apart: Apart, *, can_leave: bool
    ) -> tuple[Plan | None, Plan | None]:
        """Return what runs before and after a plan so that no rank ends before all have begun.

        The root gives what it has, and the last rank of a prefix ends, once all have told; and
        those whose result needs all inputs tell the others. Elsewhere all meet before.

        Args:
            can_leave: whether a rank can leave the plan in its middle.
        """
        what = arguments.collective
        if not can_leave or arguments.counts is not None or not arguments.bytes_per_row:
            return self._signal("allreduce", apart), None
        if what.from_root:
            return self._signal("reduce", apart, arguments.root), None
        root = arguments.root if what.to_root else self.transport.size - 1
        return None, self._signal("broadcast", apart, root)

    def _signal(self, what: str, apart: Apart, root: int = 0) -> Plan:
        """Return a plan of the library's own collective on one byte.

        As a nonblocking barrier its allreduce takes less time: two thirds on four nodes of two.
        """
        transport = self.transport
        x = transport.arrays.empty((1,), "uint8")
        transport.arrays.from_host(x, 0)
        call = check_arguments(
            transport.arrays, transport.rank, transport.size, what, x,
            out=x if what == "broadcast" else None, op="bor", root=root, counts=None,
            algorithm="native",
        )  # fmt: skip
        plan = self.planner.build(replace(call, apart=apart, unbound=True))
        plan.out = None
        return plan

    def _on_any_arrays(self, arguments: Arguments) -> Plan | None:
        """Return a plan that runs on any arrays of a signature, None where there is none."""
        is_native = arguments.algorithm == "native" and self.calls is None
        may_run = is_native or self.planner.routes.may_compile(arguments)
        if arguments.device == "gpu" or not may_run:
            return None
        with self.transport.together():
            plan = self.planner.build(replace(arguments, unbound=True))
        if plan.program is not None:
            return plan
        if plan.run_on is not None and self.calls is None:
            found = plan.without_arrays()
            found.run_on = plan.run_on  # which keeps what it needs
            return found
        plan.free()
        return None


def _meets(arguments: Arguments, plan: Plan) -> bool:
    """Whether no rank completes a call before all have begun it, as all results need all inputs."""
    what = arguments.collective
    synchronizes = what.synchronizes or plan.algorithm == FOLDED
    if arguments.counts is not None or not synchronizes:
        return False
    return what.unit == "none" or arguments.bytes_per_row > 0
