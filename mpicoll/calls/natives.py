"""Plans of the library's own collectives, and of two of them that together are a third."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from mpicoll.backend import Array, Native, NativeCall, Request, RunOn, Thunk, Transport
from mpicoll.calls.allocation import empty
from mpicoll.calls.arguments import Arguments, check_arguments
from mpicoll.calls.mean import divide_mean, is_mean
from mpicoll.engine.plan import Plan
from mpicoll.errors import Unsupported

COMPOSITIONS: dict[str, tuple[str, ...]] = {
    "allreduce": ("reduce+broadcast", "reduce_scatter+allgather"),
    "reduce": ("reduce_scatter+gather",),
    "broadcast": ("scatter+allgather",),
    "allgather": ("gather+broadcast",),
    "reduce_scatter": ("reduce+scatter",),
    "scan": ("allgather+fold",),
    "exscan": ("allgather+fold",),
}
"""For each collective the pairs of native collectives that it is equal to; `fold` is no collective:
each rank folds what it needs of the rows."""
FOLDED = "native:allgather+fold"
LEAVABLE_ALGORITHMS = ("native", FOLDED)
"""Those that a rank can leave in their middle, given a communicator of their own."""


def plan_native(transport: Transport, arguments: Arguments, *, persistent: bool = False) -> Plan:
    """Bind the library's own collective.

    Raises:
        Unavailable: the library has no such call for these arguments.
    """
    name = "native_persistent" if persistent else "native"
    return plan_bound(transport, arguments, name, partial(transport.native, persistent=persistent))


def plan_bound(
    transport: Transport, arguments: Arguments, name: str, bind: Callable[[NativeCall], Native]
) -> Plan:
    """Make a plan of a call that a library binds.

    Raises:
        Unavailable: the library has no such call for these arguments.
    """
    call = NativeCall(
        arguments.collective, arguments.x, arguments.out, arguments.op,
        arguments.root, arguments.counts, arguments.in_place, transport.rank,
        arguments.private_comm, arguments.unbound,
    )  # fmt: skip
    bound, out = bind(call), arguments.out
    plan = Plan(name, bound.transport, out, bound.run, bound.start, bound.free)
    plan.executor, plan.method, run_on = "native", bound.method, bound.run_on
    plan.deadline = lambda: transport.deadline
    if is_mean(arguments) and not bound.averages:
        plan = _chained(name, bound.transport, out, [plan], divide_mean(transport, arguments))
        like = replace(arguments, x=None, out=None)
        run_on = run_on and partial(_run_and_divide, run_on, transport, like)
    plan.run_on = run_on
    return plan


def _run_and_divide(
    run_on: RunOn, transport: Transport, arguments: Arguments, x: Array | None, out: Array | None
) -> None:
    """Run a sum on other arrays, and make it a mean."""
    run_on(x, out)
    for divide in divide_mean(transport, replace(arguments, out=out)):
        divide()


def compose(transport: Transport, arguments: Arguments, text: str) -> Plan:
    """Bind two native collectives that together are the one called.

    Raises:
        Unavailable: the library lacks one of the two.
        Unsupported: `counts` was given.
    """
    if arguments.counts is not None:
        raise Unsupported(f"{text} takes equal rows only, not counts")
    if text == FOLDED:
        return _gather_and_fold(transport, arguments)
    first, second = text.removeprefix("native:").split("+")
    x, out, is_root = arguments.x, arguments.out, transport.rank == arguments.root
    prologue: list[Thunk] = []
    epilogue: list[Thunk] = []
    final = between = out
    if second == "scatter":
        between = empty(transport, arguments, arguments.shape("input")) if is_root else None
    elif second != "broadcast":
        x, between, final = _as_rows(transport, arguments, prologue, epilogue)
    source = between if is_root or second in ("allgather", "gather") else None
    plans = [
        _part(transport, arguments, first, x, between),
        _part(transport, arguments, second, source, final),
    ]
    return _chained(text, "native", out, plans, epilogue, prologue)


def _gather_and_fold(transport: Transport, arguments: Arguments) -> Plan:
    """Gather the vectors of all ranks on each, which folds those that it needs in rank order."""
    assert arguments.row is not None
    arrays, out = transport.arrays, transport.arrays.flat(arguments.out)
    rows = empty(transport, arguments, (transport.size, *arguments.row))
    plan = _part(transport, arguments, "allgather", arguments.x, rows)
    epilogue: list[Thunk] = []
    for rank, _ in arguments.collective.output_contents(arguments.place()).get(0, ()):
        row = arrays.flat(rows[rank : rank + 1])
        fold = arrays.folder(arguments.op, out, row, out)
        epilogue.append(fold if epilogue else arrays.copier(out, row))
    epilogue += divide_mean(transport, arguments)
    return _chained(FOLDED, "native", arguments.out, [plan], epilogue)


def _as_rows(
    transport: Transport, arguments: Arguments, prologue: list[Thunk], epilogue: list[Thunk]
) -> tuple[Array | None, Array, Array | None]:
    """Cut a vector into one equal row per rank, padded (and copied) where it does not divide."""
    assert arguments.row is not None
    count, size = prod(arguments.row), transport.size
    width = -(-count // size)
    row = empty(transport, arguments, (width,))
    arrays, whole = transport.arrays, (size, width)

    def rows(array: Array | None) -> Array | None:
        if array is None or count == size * width:
            return array if array is None else arrays.flat(array).reshape(whole)
        padded = empty(transport, arguments, whole)
        arrays.from_host(padded, 0)
        return padded

    x, out = rows(arguments.x), rows(arguments.out)
    if count != size * width:
        if x is not None:
            prologue.append(arrays.copier(arrays.flat(x)[:count], arrays.flat(arguments.x)))
        if out is not None:
            epilogue.append(arrays.copier(arrays.flat(arguments.out), arrays.flat(out)[:count]))
    return x, row, out


def _part(
    transport: Transport, arguments: Arguments, name: str, x: Array | None, out: Array | None
) -> Plan:
    """Bind the native collective `name` with the operator and root of a call."""
    part = check_arguments(
        transport.arrays, transport.rank, transport.size, name, x,
        out=out, op=arguments.op, root=arguments.root, counts=None, algorithm="native",
    )  # fmt: skip
    part = replace(part, private_comm=arguments.private_comm, unbound=arguments.unbound)
    return plan_native(transport, part)


def _chained(
    algorithm: str, transport: str, out: Array | None, plans: Sequence[Plan],
    epilogue: Sequence[Thunk], prologue: Sequence[Thunk] = (),
) -> Plan:  # fmt: skip
    """Make a plan that runs plans one after the other, between two lists of local work."""

    def run() -> None:
        for thunk in prologue:
            thunk()
        for plan in plans:
            plan.run()
        for thunk in epilogue:
            thunk()

    def free() -> None:
        for plan in plans:
            plan.free()

    chain = Plan(algorithm, transport, out, run, lambda: _Chain(plans, epilogue, prologue), free)
    chain.executor = "native"
    return chain


class _Chain:
    """Plans under way, one after the other."""

    def __init__(
        self, plans: Sequence[Plan], epilogue: Sequence[Thunk], prologue: Sequence[Thunk]
    ) -> None:
        self.remaining = iter(plans)
        self.epilogue = epilogue
        self.current: Request | None = None
        for thunk in prologue:
            thunk()
        self._next()

    def _next(self) -> None:
        plan = next(self.remaining, None)
        self.current = plan.start() if plan else None
        if plan is None:
            for thunk in self.epilogue:
                thunk()

    def test(self) -> bool:
        while self.current is not None and self.current.test():
            self._next()
        return self.current is None

    def wait(self) -> None:
        while self.current is not None:
            self.current.wait()
            self._next()
