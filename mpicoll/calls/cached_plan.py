"""Make the plan that serves all calls of one signature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from mpicoll.backend import Array, Transport
from mpicoll.calls.allocation import empty, with_arrays
from mpicoll.calls.arguments import Arguments, check_arguments
from mpicoll.calls.natives import FOLDED, LEAVABLE_ALGORITHMS
from mpicoll.calls.planner import Planner
from mpicoll.engine.plan import Plan
from mpicoll.peers.calls import Apart, OtherCall
from mpicoll.tuning import COPIED_CALL

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
        private_comm: of the library's own calls among these.
        gpu_bytes: of its arrays on a GPU.
    """

    number: int
    plan: Plan
    function: Function | None = None
    signals: Signals = _NO_SIGNALS
    private_comm: Apart | None = None
    gpu_bytes: int = 0

    @property
    def target(self) -> object:
        """What the plan table runs."""
        return self.plan.program or self.function

    def fail(self, error: BaseException) -> None:
        """Take the error by which this rank has left a run in its middle."""
        self.plan.fail(error)
        if self.private_comm is not None and not self.private_comm.left:
            self.private_comm.leave(error)

    def set_aside(self) -> None:
        """Run no more: another rank has left a run in its middle."""
        if self.private_comm is not None:
            self.private_comm.left = True

    def free(self) -> None:
        """Release the plans."""
        for plan in (self.plan, *self.signals):
            if plan is not None:
                plan.free()
        if self.private_comm is not None:
            self.private_comm.free()


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
            copies = with_arrays(self.transport, replace(arguments, unbound=True), copies=True)
            plan = self.planner.build_allocated(copies)
            private_comm, signals = None, _NO_SIGNALS
            meets = _meets(arguments, plan)
            if self.calls is not None and (plan.executor == "native" or not meets):
                tag = self.planner.tags.take()
                private_comm = self.calls.apart(tag, arguments.collective.name)
                self.planner.tags.hold(tag, private_comm)
                is_leavable = plan.algorithm in LEAVABLE_ALGORITHMS or plan.executor != "native"
                can_leave = is_leavable and arguments.device != "gpu"
                if not (can_leave and meets):
                    signals = self._signals(arguments, private_comm, can_leave=can_leave)
                if can_leave and plan.algorithm in LEAVABLE_ALGORITHMS:
                    plan.free()
                    copies = replace(copies, algorithm=plan.algorithm, private_comm=private_comm)
                    is_barrier = arguments.collective.unit == "none"
                    build = self.planner.build_allocated
                    plan = self._signal("allreduce", private_comm) if is_barrier else build(copies)
            is_native = plan.executor == "native" and arguments.device != "gpu"
            if is_native and arguments.nbytes > COPIED_CALL:
                plan.free()
                plan = plan.without_arrays()
                bound_comm = private_comm if plan.algorithm in LEAVABLE_ALGORITHMS else None
                bound = replace(like, algorithm=plan.algorithm, private_comm=bound_comm)
                run = partial(self._run_bound, bound)
            else:
                run = partial(self._run_on_copies, like, copies, plan)
        function = self._function(like, run, signals)
        return CachedPlan(number, plan, function, signals, private_comm, gpu_bytes(arguments))

    def _function(self, like: Arguments, run: Run, signals: Signals = _NO_SIGNALS) -> Function:
        """Return what runs a plan for any arrays like those of a call, which are not kept."""
        collective = like.collective
        takes_x = collective.unit != "none" and collective.has_input(like.rank, like.root)
        signal_before, signal_after = signals

        def serve(x: Array | None, out: Array | None) -> Array | None:
            if out is None or not like.has_output:
                out = self._output(like)
            if signal_before is not None:
                signal_before.run()
            run(x if takes_x else None, out)
            if signal_after is not None:
                signal_after.run()
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

    def _signals(self, arguments: Arguments, private_comm: Apart, *, can_leave: bool) -> Signals:
        """Return what runs before and after a plan so that no rank ends before all have begun.

        The root gives what it has, and the last rank of a prefix ends, once all have told; and
        those whose result needs all inputs tell the others. Elsewhere all meet before.

        Args:
            can_leave: whether a rank can leave the plan in its middle.
        """
        collective = arguments.collective
        if not can_leave or arguments.counts is not None or not arguments.bytes_per_row:
            return self._signal("allreduce", private_comm), None
        if collective.from_root:
            return self._signal("reduce", private_comm, arguments.root), None
        root = arguments.root if collective.to_root else self.transport.size - 1
        return None, self._signal("broadcast", private_comm, root)

    def _signal(self, name: str, private_comm: Apart, root: int = 0) -> Plan:
        """Return a plan of the library's own collective on one byte.

        As a nonblocking barrier its allreduce takes less time: two thirds on four nodes of two.
        """
        transport = self.transport
        x = transport.arrays.empty((1,), "uint8")
        transport.arrays.from_host(x, 0)
        call = check_arguments(
            transport.arrays, transport.rank, transport.size, name, x,
            out=x if name == "broadcast" else None, op="bor", root=root, counts=None,
            algorithm="native",
        )  # fmt: skip
        plan = self.planner.build(replace(call, private_comm=private_comm, unbound=True))
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
            unbound_plan = plan.without_arrays()
            unbound_plan.run_on = plan.run_on  # which keeps what it needs
            return unbound_plan
        plan.free()
        return None


def _meets(arguments: Arguments, plan: Plan) -> bool:
    """Whether no rank completes a call before all have begun it, as all results need all inputs."""
    collective = arguments.collective
    synchronizes = collective.synchronizes or plan.algorithm == FOLDED
    if arguments.counts is not None or not synchronizes:
        return False
    return collective.unit == "none" or arguments.bytes_per_row > 0
