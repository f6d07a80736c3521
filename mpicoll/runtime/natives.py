"""Plans of the library's own collectives."""

from __future__ import annotations

from mpicoll.interfaces import Array, NativeCall, Thunk, Transport
from mpicoll.runtime.arguments import Arguments, check_arguments
from mpicoll.runtime.plan import Plan, native_plan


def plan_native(transport: Transport, arguments: Arguments, *, persistent: bool = False) -> Plan:
    """Bind the library's own collective.

    Raises:
        Unavailable: the library has no such call for these arguments.
    """
    call = NativeCall(
        arguments.collective, arguments.x, arguments.out, arguments.op,
        arguments.root, arguments.counts, arguments.in_place, transport.rank,
    )  # fmt: skip
    bound = transport.native(call, persistent=persistent)
    finish = [] if bound.averages else divide_mean(transport, arguments)
    return native_plan(
        "native_persistent" if persistent else "native", arguments.out, bound, finish
    )


def plan_part(
    transport: Transport, arguments: Arguments, name: str, x: Array | None, out: Array | None
) -> Plan:
    """Bind the native collective `name` with the operator and root of a call."""
    part = check_arguments(
        transport.arrays, transport.rank, transport.size, name, x,
        out=out, op=arguments.op, root=arguments.root, counts=None, algorithm="native",
    )  # fmt: skip
    return plan_native(transport, part)


def divide_mean(transport: Transport, arguments: Arguments) -> list[Thunk]:
    """Return the division that makes a sum a mean, where the operator is ``avg``."""
    op, out = arguments.op, arguments.out
    if op.name != "avg" or op.function or out is None or not arguments.collective.reduces:
        return []
    return [transport.arrays.divider(transport.arrays.flat(out), transport.size)]
