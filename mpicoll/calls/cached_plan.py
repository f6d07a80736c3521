"""Make the plan that serves all calls of one signature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mpicoll.backend import Array, RunOn, Transport
from mpicoll.calls.allocation import empty, with_arrays
from mpicoll.calls.arguments import Arguments, check_arguments
from mpicoll.calls.natives import FOLDED, LEAVABLE_ALGORITHMS
from mpicoll.calls.planner import Planner
from mpicoll.engine.plan import Plan
from mpicoll.peers.calls import Apart, OtherCall

if TYPE_CHECKING:
    from mpicoll.engine._compiled import Program

Signals = tuple[Plan | None, Plan | None]
"""What runs before and after a plan."""
_NO_SIGNALS: Signals = None, None


@dataclass(eq=False)
class CachedPlan:
    """A plan that serves every call of one signature.

    Attributes:
        number: how many were made before it, by which the ranks know that they run the same plan.
        run: runs it for the arrays of a call, and returns the result.
        program: serves the calls by itself; None where `run` has more to do.
        signals: plans that run before and after it, so that no rank ends before all have begun.
        private_comm: of the library's own calls among these.
        gpu_bytes: of its arrays on a GPU.
        function: a user's, by which it folds.
    """

    number: int
    plan: Plan
    run: Callable[[Array | None, Array | None], Array | None]
    program: Program | None = None
    signals: Signals = _NO_SIGNALS
    private_comm: Apart | None = None
    gpu_bytes: int = 0
    function: Any = None

    @property
    def target(self) -> object:
        """What the plan table runs."""
        return self.program or self.run

    def fail(self, error: BaseException) -> None:
        """Take the error by which this rank has left a run in its middle."""
        for plan in (self.plan, *self.signals):
            if plan is not None:
                plan.fail(error)
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
        with self.transport.poison_on_error():
            private_comm = self._private_comm(arguments)
            plan, run_on = self._on_any_arrays(replace(arguments, private_comm=private_comm))
            signals = self._signals(arguments, plan, private_comm)
        run = self._run(replace(arguments, x=None, out=None), run_on, signals)
        program = plan.program if signals == _NO_SIGNALS else None
        return CachedPlan(
            number, plan, run, program, signals, private_comm, gpu_bytes(arguments),
            arguments.op.function,
        )  # fmt: skip

    def _private_comm(self, arguments: Arguments) -> Apart | None:
        """Return what the library's own calls of a plan need, where ranks may leave them."""
        if self.calls is None:
            return None
        tag = self.planner.tags.take()
        private_comm: Apart = self.calls.apart(tag, arguments.collective.name)
        self.planner.tags.hold(tag, private_comm)
        return private_comm

    def _on_any_arrays(self, arguments: Arguments) -> tuple[Plan, RunOn]:
        """Return a plan, and a function that runs it on the arrays of a call."""
        if arguments.device == "gpu":
            copies = with_arrays(self.transport, arguments, copies=True)
            plan = self.planner.build_allocated(replace(copies, private_comm=None))
            like = replace(arguments, x=None, out=None)
            return plan, partial(self._run_on_copies, like, copies, plan)
        plan = self.planner.build(replace(arguments, unbound=True))
        if plan.program is not None:
            return plan, partial(self._run_program, plan.program)
        private_comm, is_barrier = arguments.private_comm, arguments.collective.unit == "none"
        if private_comm is not None and is_barrier and plan.algorithm in LEAVABLE_ALGORITHMS:
            barrier = self._signal("allreduce", private_comm)
            return barrier, lambda _x, _out: barrier.run()
        assert plan.run_on is not None
        return plan.without_arrays(), plan.run_on

    def _run(self, like: Arguments, run_on: RunOn, signals: Signals) -> RunOn:
        """Return what runs a plan for any arrays like those of a call, which are not kept."""
        collective = like.collective
        takes_x = collective.unit != "none" and collective.has_input(like.rank, like.root)
        signal_before, signal_after = signals

        def run(x: Array | None, out: Array | None) -> Array | None:
            if out is None or not like.has_output:
                out = self._output(like)
            if signal_before is not None:
                signal_before.run()
            run_on(x if takes_x else None, out)
            if signal_after is not None:
                signal_after.run()
            return out

        return run

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

    def _run_program(self, program: Program, x: Array | None, out: Array | None) -> None:
        address = self.transport.arrays.span
        x_address, out_address = (0 if array is None else address(array)[0] for array in (x, out))
        program.run_on(x_address, out_address, x, out)

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

    def _signals(self, arguments: Arguments, plan: Plan, private_comm: Apart | None) -> Signals:
        """Return what runs before and after a plan so that no rank ends before all have begun.

        The root gives what it has, and the last rank of a prefix ends, once all have told; and
        those whose result needs all inputs tell the others. Elsewhere all meet before.
        """
        if private_comm is None:
            return _NO_SIGNALS
        collective, is_gpu = arguments.collective, arguments.device == "gpu"
        is_native = plan.executor == "native"
        can_leave = not is_gpu and (not is_native or plan.algorithm in LEAVABLE_ALGORITHMS)
        meets = _meets(arguments, plan)
        if meets and (can_leave or not is_native):
            return _NO_SIGNALS
        if not can_leave or arguments.counts is not None or not arguments.bytes_per_row:
            return self._signal("allreduce", private_comm), None
        if collective.from_root:
            return self._signal("reduce", private_comm, arguments.root), None
        root = arguments.root if collective.to_root else self.transport.size - 1
        return None, self._signal("broadcast", private_comm, root)

    def _signal(self, name: str, private_comm: Apart, root: int = 0) -> Plan:
        """Return a plan of a collective on one byte."""
        transport = self.transport
        x = transport.arrays.empty((1,), "uint8")
        transport.arrays.from_host(x, 0)
        call = check_arguments(
            transport.arrays, transport.rank, transport.size, name, x,
            out=x if name == "broadcast" else None, op="bor", root=root, counts=None,
            algorithm="auto",
        )  # fmt: skip
        plan = self.planner.build(replace(call, private_comm=private_comm))
        plan.out = plan.program = None  # it runs on its own byte alone
        return plan


def _meets(arguments: Arguments, plan: Plan) -> bool:
    """Whether no rank completes a call before all have begun it, as all results need all inputs."""
    collective = arguments.collective
    synchronizes = collective.synchronizes or plan.algorithm == FOLDED
    if arguments.counts is not None or not synchronizes:
        return False
    return collective.unit == "none" or arguments.bytes_per_row > 0
