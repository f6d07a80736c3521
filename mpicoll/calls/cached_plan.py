"""Make the plan that serves all calls of one signature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mpicoll.backend import Array, RunOn, Transport
from mpicoll.calls.allocation import empty, with_arrays
from mpicoll.calls.arguments import Arguments
from mpicoll.calls.planner import Planner
from mpicoll.engine.plan import Plan

if TYPE_CHECKING:
    from mpicoll.engine._compiled import Program


@dataclass(eq=False)
class CachedPlan:
    """A plan that serves every call of one signature; the library's own, of any length.

    Attributes:
        number: how many were made before it, by which the ranks know that they run the same plan.
        run_on: runs it on the arrays of a call.
        program: serves the calls by itself; None where `run_on` has more to do.
        gpu_bytes: of its arrays on a GPU.
        function: a user's, by which it folds.
    """

    number: int
    plan: Plan
    run_on: RunOn
    program: Program | None = None
    gpu_bytes: int = 0
    function: Any = None


def gpu_bytes(arguments: Arguments) -> int:
    """Return about how many bytes of a GPU a plan on copies takes, the same on all ranks."""
    if arguments.device != "gpu":
        return 0
    arrays = 2 if arguments.collective.unit == "vector" else 2 * arguments.size
    return arrays * arguments.bytes_per_row


class PlanMaker:
    """Makes the plans behind the methods of one group of ranks."""

    def __init__(self, transport: Transport, planner: Planner) -> None:
        self.transport, self.planner = transport, planner

    def make(self, number: int, arguments: Arguments) -> CachedPlan:
        """Return a plan to be cached; collective."""
        with self.transport.poison_on_error():
            plan, run_on = self._on_any_arrays(arguments)
        program, is_barrier = plan.program, arguments.collective.unit == "none"
        if is_barrier and arguments.algorithm == "auto" and self.transport.compares:
            # All have come, as they have compared the call.
            program, run_on = None, lambda x, out: None
        return CachedPlan(
            number, plan, run_on, program, gpu_bytes(arguments), arguments.op.function
        )

    def _on_any_arrays(self, arguments: Arguments) -> tuple[Plan, RunOn]:
        """Return a plan, and a function that runs it on the arrays of a call."""
        if arguments.device == "gpu":
            copies = with_arrays(self.transport, arguments, copies=True)
            plan = self.planner.build(copies)
            like = replace(arguments, x=None, out=None)
            return plan, partial(self._run_on_copies, like, copies, plan)
        plan = self.planner.build(replace(arguments, unbound=True))
        if plan.program is not None:
            return plan, partial(self._run_program, plan.program)
        assert plan.run_on is not None
        return plan.without_arrays(), plan.run_on

    def bound(self, plan: CachedPlan, arguments: Arguments) -> Callable[..., Array | None]:
        """Return what runs a plan for any arrays like those of a call, which are not kept.

        It takes input and output, and returns the result.
        """
        like, run_on = replace(arguments, x=None, out=None), plan.run_on
        collective = like.collective
        takes_x = collective.unit != "none" and collective.has_input(like.rank, like.root)

        def run(x: Array | None, out: Array | None) -> Array | None:
            if not like.has_output:
                out = None
            elif out is None:
                out = empty(self.transport, like, like.shape("output"))
            run_on(x if takes_x else None, out)
            return out

        return run

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
