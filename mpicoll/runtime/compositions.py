"""Collectives composed of two of the library's own, such as ``native:reduce+broadcast``."""

from __future__ import annotations

from math import prod

from mpicoll.errors import Unsupported
from mpicoll.interfaces import Array, Thunk, Transport
from mpicoll.runtime.allocation import empty
from mpicoll.runtime.arguments import Arguments
from mpicoll.runtime.natives import plan_part
from mpicoll.runtime.plan import Plan, chained

COMPOSITIONS: dict[str, tuple[str, ...]] = {
    "allreduce": ("reduce+broadcast", "reduce_scatter+allgather"),
    "reduce": ("reduce_scatter+gather",),
    "broadcast": ("scatter+allgather",),
    "allgather": ("gather+broadcast",),
    "reduce_scatter": ("reduce+scatter",),
}
"""For each collective the pairs of native collectives that it is equal to."""


def compose(transport: Transport, arguments: Arguments, text: str) -> Plan:
    """Bind two native collectives that together are the one called.

    Raises:
        Unavailable: the library lacks one of the two.
        Unsupported: `counts` was given.
    """
    if arguments.counts is not None:
        raise Unsupported(f"{text} takes equal rows only, not counts")
    first, second = text.removeprefix("native:").split("+")
    x, out, is_root = arguments.x, arguments.out, transport.rank == arguments.root
    before: list[Thunk] = []
    after: list[Thunk] = []
    if second == "broadcast":
        between = final = out
    elif second == "scatter":
        between, final = (
            empty(transport, arguments, arguments.shape("input")) if is_root else None,
            out,
        )
    else:
        x, between, final = _as_rows(transport, arguments, before, after)
    source = between if is_root or second in ("allgather", "gather") else None
    plans = [
        plan_part(transport, arguments, first, x, between),
        plan_part(transport, arguments, second, source, final),
    ]
    return chained(text, "native", out, plans, after, before)


def _as_rows(
    transport: Transport, arguments: Arguments, before: list[Thunk], after: list[Thunk]
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
            before.append(arrays.copier(arrays.flat(x)[:count], arrays.flat(arguments.x)))
        if out is not None:
            after.append(arrays.copier(arrays.flat(arguments.out), arrays.flat(out)[:count]))
    return x, row, out
