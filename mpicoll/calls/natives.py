"""Plans of the library's own collectives, and of two of them that together are a third."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import NamedTuple

from mpicoll.backend import (
    Array,
    CompletedRequest,
    Native,
    NativeCall,
    Request,
    RunOn,
    Thunk,
    Transport,
)
from mpicoll.calls.allocation import empty
from mpicoll.calls.arguments import Arguments, check_arguments
from mpicoll.engine.plan import Plan
from mpicoll.engine.runs import Followed
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
    )  # fmt: skip
    bound, out = bind(call), arguments.out
    plan = Plan(name, bound.transport, out, bound.run, bound.start, bound.free)
    plan.executor, plan.method, run_on = "native", bound.method, bound.run_on
    plan.deadline = lambda: transport.deadline
    if arguments.is_mean and not bound.averages:
        plan = _chained(name, bound.transport, out, [plan], _divisions(transport, arguments, out))
        like = replace(arguments, x=None, out=None)
        run_on = run_on and partial(_run_and_divide, run_on, transport, like)
    plan.run_on = run_on
    return plan


def _run_and_divide(
    run_on: RunOn, transport: Transport, arguments: Arguments, x: Array | None, out: Array | None
) -> None:
    """Run a sum on other arrays, and make it a mean."""
    run_on(x, out)
    _run_in_turn(_divisions(transport, arguments, out))


def _divisions(transport: Transport, arguments: Arguments, out: Array | None) -> list[Thunk]:
    """Return the division that makes a sum a mean, where this rank gets one."""
    if out is None or not arguments.is_mean:
        return []
    return [transport.arrays.divider(transport.arrays.flat(out), transport.size)]


def compose(transport: Transport, arguments: Arguments, text: str) -> Plan:
    """Bind two native collectives that together are the one called.

    Raises:
        Unavailable: the library lacks one of the two.
        Unsupported: `counts` was given.
    """
    if arguments.counts is not None:
        raise Unsupported(f"{text} takes equal rows only, not counts")
    place = _parts(transport, arguments, *text.removeprefix("native:").split("+"))
    calls, prologue, epilogue = place(arguments.x, arguments.out)
    plans = [_part(transport, arguments, *call) for call in calls]

    def run_on(x: Array | None, out: Array | None) -> None:
        calls, prologue, epilogue = place(x, out)
        runs = (
            partial(run_part_on, *arrays)
            for run_part_on, (_, *arrays) in zip(runs_on, calls, strict=True)
        )
        _run_in_turn((*prologue, *runs, *epilogue))

    chain = _chained(text, "native", arguments.out, plans, epilogue, prologue)
    runs_on = [plan.run_on for plan in plans if plan.run_on is not None]
    chain.run_on = run_on if len(runs_on) == len(plans) else None
    return chain


class _Parts(NamedTuple):
    """The calls of a composition on the arrays of one call, and the local work around them.

    Attributes:
        calls: the name, the input and the output of each.
    """

    calls: Sequence[tuple[str, Array | None, Array | None]]
    prologue: Sequence[Thunk] = ()
    epilogue: Sequence[Thunk] = ()


def _parts(
    transport: Transport, arguments: Arguments, first: str, second: str
) -> Callable[[Array | None, Array | None], _Parts]:
    """Return a function from the arrays of a call to the parts of a composition."""
    is_root = transport.rank == arguments.root
    if second == "broadcast":

        def through_root(x: Array | None, out: Array | None) -> _Parts:
            root_array = out if is_root else None
            return _Parts([(first, x, root_array), (second, root_array, out)])

        return through_root
    if second == "fold":
        return _parts_by_folds(transport, arguments)
    if second != "scatter":
        return _parts_by_rows(transport, arguments, first, second)
    between = empty(transport, arguments, arguments.shape("input")) if is_root else None
    return lambda x, out: _Parts([(first, x, between), (second, between, out)])


def _parts_by_folds(
    transport: Transport, arguments: Arguments
) -> Callable[[Array | None, Array | None], _Parts]:
    """Gather the vectors of all ranks on each, which folds those that it needs in rank order."""
    assert arguments.row is not None
    arrays, kind = transport.arrays, replace(arguments, x=None, out=None)
    rows = empty(transport, arguments, (transport.size, *arguments.row))
    needed = arguments.collective.output_contents(arguments.place()).get(0, ())

    def parts(x: Array | None, out: Array | None) -> _Parts:
        flat, folds = arrays.flat(out), list[Thunk]()
        for rank, _ in needed:
            row = arrays.flat(rows[rank : rank + 1])
            fold = arrays.folder(kind.op, flat, row, flat)
            folds.append(fold if folds else arrays.copier(flat, row))
        folds += _divisions(transport, kind, out)
        return _Parts([("allgather", x, rows)], epilogue=folds)

    return parts


def _parts_by_rows(
    transport: Transport, arguments: Arguments, first: str, second: str
) -> Callable[[Array | None, Array | None], _Parts]:
    """Cut a vector into one equal row per rank, padded (and copied) where it does not divide."""
    assert arguments.row is not None
    arrays, count, size = transport.arrays, prod(arguments.row), transport.size
    width = -(-count // size)
    row, whole = empty(transport, arguments, (width,)), (size, width)

    def padded(array: Array | None) -> Array | None:
        if array is None or count == size * width:
            return None
        rows = empty(transport, arguments, whole)
        arrays.from_host(rows, 0)
        return rows

    x_rows, out_rows = padded(arguments.x), padded(arguments.out)

    def rows(array: Array | None, copy: Array | None) -> Array | None:
        return copy if array is None or copy is not None else arrays.flat(array).reshape(whole)

    def parts(x: Array | None, out: Array | None) -> _Parts:
        prologue, epilogue = list[Thunk](), list[Thunk]()
        if x_rows is not None:
            prologue.append(arrays.copier(arrays.flat(x_rows)[:count], arrays.flat(x)))
        if out_rows is not None:
            epilogue.append(arrays.copier(arrays.flat(out), arrays.flat(out_rows)[:count]))
        calls = (first, rows(x, x_rows), row), (second, row, rows(out, out_rows))
        return _Parts(calls, prologue, epilogue)

    return parts


def _part(
    transport: Transport, arguments: Arguments, name: str, x: Array | None, out: Array | None
) -> Plan:
    """Bind the native collective `name` with the operator and root of a call."""
    part = check_arguments(
        transport.arrays, transport.rank, transport.size, name, x,
        out=out, op=arguments.op, root=arguments.root, counts=None, algorithm="native",
    )  # fmt: skip
    return plan_native(transport, replace(part, unbound=arguments.unbound))


def _chained(
    algorithm: str, transport: str, out: Array | None, plans: Sequence[Plan],
    epilogue: Sequence[Thunk], prologue: Sequence[Thunk] = (),
) -> Plan:  # fmt: skip
    """Make a plan that runs plans one after the other, between two lists of local work.

    The library matches the collectives of two ranks by the order in which they start. So a start
    of several plans runs them all: the second one would start where a rank waits for the first.
    """
    run = partial(_run_in_turn, (*prologue, *(plan.run for plan in plans), *epilogue))

    def start() -> Request:
        if len(plans) > 1:
            run()
            return CompletedRequest()
        _run_in_turn(prologue)
        return Followed(plans[0].start(), complete)

    def complete(error: BaseException | None) -> None:
        if error is None:
            _run_in_turn(epilogue)

    def free() -> None:
        for plan in plans:
            plan.free()

    chain = Plan(algorithm, transport, out, run, start, free)
    chain.executor = "native"
    return chain


def _run_in_turn(steps: Sequence[Thunk]) -> None:
    for step in steps:
        step()
