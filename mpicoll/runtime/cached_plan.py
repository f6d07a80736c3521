"""Make the plan that serves all calls of one signature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from mpicoll.backend import Array, Transport
from mpicoll.execution.plan import Plan
from mpicoll.peers.calls import Apart, OtherCall
from mpicoll.runtime.allocation import empty, with_arrays
from mpicoll.runtime.arguments import Arguments, check_arguments
from mpicoll.runtime.natives import FOLDED, LEFT
from mpicoll.runtime.planner import Planner

_COPIED = 256 * 1024
"""Bytes up to which bound calls of the library's own run on copies: to bind them takes as long."""

Signals = tuple[Plan | None, Plan | None]
"""What runs before and after a plan."""
_NO_SIGNALS: Signals = None, None
Run = Callable[[Array | None, Array | None], object]
Function = Callable[[Array | None, Array | None], Array | None]
"""Runs a plan for an x and an out, and returns the result."""


@dataclass(eq=False)
class CachedPlan:
    """A plan that serves every call of one signature.

    Attributes:
        number: how many were made before it, by which the ranks know that they run the same plan.
        function: runs it for the arrays of a call; None where the plan is a compiled program.
        signals: plans that run before and after it, so that no rank ends before all have begun.
        apart: of the library's own calls among these.
        gpu_bytes: of its arrays on a GPU.
    """

    number: int
    plan: Plan
    function: Function | None = None
    signals: Signals = _NO_SIGNALS
    apart: Apart | None = None
    gpu_bytes: int = 0

    @property
    def target(self) -> object:
        """What the plan table runs."""
        return self.plan.program or self.function

    def fail(self, error: BaseException) -> None:
        """Take the error by which this rank has left a run in its middle."""
        self.plan.fail(error)
        if self.apart is not None and not self.apart.left:
            self.apart.leave(error)

    def set_aside(self) -> None:
        """Run no more: another rank has left a run in its middle."""
        if self.apart is not None:
            self.apart.left = True

    def free(self) -> None:
        """Release the plans."""
        for plan in (self.plan, *self.signals):
            if plan is not None:
                plan.free()
        if self.apart is not None:
            self.apart.free()


def gpu_bytes(arguments: Arguments) -> int:
    """Return about how many bytes of a GPU a plan on copies takes, the same on all ranks."""
    if arguments.device != "gpu":
        return 0
    arrays = 2 if arguments.collective.unit == "vector" else 2 * arguments.size
    return arrays * arguments.bytes_per_row


class PlanMaker:
    """Makes the plans behind the methods of one group of ranks."""

    def __init__(self, transport: Transport, planner: Planner) -> None:
        self.transport, self.planner, self.calls = transport, planner, transport.calls

    def make(self, number: int, arguments: Arguments) -> CachedPlan:
        """Return a plan to be cached; collective."""
        plan, like = self._on_any_arrays(arguments), replace(arguments, x=None, out=None)
        if plan is not None:
            on_arrays = plan.run_on
            function = None if on_arrays is None else self._function(like, on_arrays)
            return CachedPlan(number, plan, function)
        with self.transport.together():
            own = with_arrays(self.transport, replace(arguments, unbound=True), copies=True)
            plan = self.planner.build_allocated(own)
            apart, signals = None, _NO_SIGNALS
            meets = _meets(arguments, plan)
            if self.calls is not None and (plan.executor == "native" or not meets):
                tag = self.planner.tags.take()
                apart = self.calls.apart(tag, arguments.collective.name)
                self.planner.tags.hold(tag, apart)
                is_left = plan.algorithm in LEFT or plan.executor != "native"
                can_leave = is_left and arguments.device != "gpu"
                if not (can_leave and meets):
                    signals = self._signals(arguments, apart, can_leave=can_leave)
                if can_leave and plan.algorithm in LEFT:
                    plan.free()
                    own = replace(own, algorithm=plan.algorithm, apart=apart)
                    is_barrier = arguments.collective.unit == "none"
                    build = self.planner.build_allocated
                    plan = self._signal("allreduce", apart) if is_barrier else build(own)
            is_native = plan.executor == "native" and arguments.device != "gpu"
            if is_native and arguments.nbytes > _COPIED:
                plan.free()
                plan = plan.without_arrays()
                left = apart if plan.algorithm in LEFT else None
                bound = replace(like, algorithm=plan.algorithm, apart=left)
                run = partial(self._run_bound, bound)
            else:
                run = partial(self._run_on_copies, like, own, plan)
        function = self._function(like, run, signals)
        return CachedPlan(number, plan, function, signals, apart, gpu_bytes(arguments))

    def _function(self, like: Arguments, run: Run, signals: Signals = _NO_SIGNALS) -> Function:
        """Return what runs a plan for any arrays like those of a call, which are not kept."""
        what = like.collective
        takes_x = what.unit != "none" and what.has_input(like.rank, like.root)
        before, after = signals

        def serve(x: Array | None, out: Array | None) -> Array | None:
            if out is None or not like.has_output:
                out = self._output(like)
            if before is not None:
                before.run()
            run(x if takes_x else None, out)
            if after is not None:
                after.run()
            return out

        return serve

    def _output(self, arguments: Arguments) -> Array | None:
        """Return a new array for the result of this rank, None where it gets none.

        Raises:
            OtherCall: there is no memory, of which ranks of other nodes must hear.
        """
        if not arguments.has_output:
            return None
        try:
            return empty(self.transport, arguments, arguments.shape("output"))
        except (MemoryError, RuntimeError) as error:
            if self.calls is None:
                raise
            raise OtherCall(str(error)) from error

    def _run_on_copies(
        self, arguments: Arguments, copies: Arguments, plan: Plan, x: Array | None,
        out: Array | None,
    ) -> None:  # fmt: skip
        arrays = self.transport.arrays
        if x is not None:
            arrays.copy(copies.x, x)
        plan.run()
        if arguments.collective.output_contents(arguments.place()):
            arrays.copy(out, plan.out)

    def _run_bound(self, arguments: Arguments, x: Array | None, out: Array | None) -> None:
        """Bind the library's call to the arrays of a call, and run it."""
        with self.planner.build_allocated(replace(arguments, x=x, out=out)) as plan:
            plan.run()

    def _signals(self, arguments: Arguments, apart: Apart, *, can_leave: bool) -> Signals:
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
        may_run = is_native or self.planner.routes.serves_any_arrays(arguments)
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
