"""Collectives composed of the library's own: ``native:reduce+broadcast`` and the like."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from mpicoll.errors import Unsupported
from mpicoll.interfaces import Array, Thunk
from mpicoll.runtime.arguments import Request
from mpicoll.runtime.plan import Plan, chained

if TYPE_CHECKING:
    from mpicoll.collectives import Collectives

COMPOSITIONS: dict[str, tuple[str, ...]] = {
    "allreduce": ("reduce+broadcast", "reduce_scatter+allgather"),
    "reduce": ("reduce_scatter+gather",),
    "broadcast": ("scatter+allgather",),
    "allgather": ("gather+broadcast",),
    "reduce_scatter": ("reduce+scatter",),
}
"""For each collective the pairs of natives that do the same."""


def compose(group: Collectives, request: Request, text: str) -> Plan:
    """Bind two natives that do together what `request` asks for.

    Raises:
        Unavailable: the library lacks one of the two.
        Unsupported: `counts` was given.
    """
    if request.counts is not None:
        raise Unsupported(f"{text} takes equal rows only, not counts")
    first, second = text.removeprefix("native:").split("+")
    x, out, is_root = request.x, request.out, group.rank == request.root
    before: list[Thunk] = []
    after: list[Thunk] = []
    if second == "broadcast":
        between = final = out
    elif second == "scatter":
        between, final = group.empty(request, request.shape("input")) if is_root else None, out
    else:
        x, between, final = _as_rows(group, request, before, after)
    source = between if is_root or second in ("allgather", "gather") else None
    plans = [
        group.subplan(request, first, x, between),
        group.subplan(request, second, source, final),
    ]
    return chained(text, "native", out, plans, after, before)


def _as_rows(
    group: Collectives, request: Request, before: list[Thunk], after: list[Thunk]
) -> tuple[Array | None, Array, Array | None]:
    """Cut a vector into one equal row per rank, padded (and copied) where it does not divide."""
    assert request.row is not None
    count, size = prod(request.row), group.size
    width = -(-count // size)
    row = group.empty(request, (width,))
    arrays, whole = group.transport.arrays, (size, width)

    def rows(array: Array | None) -> Array | None:
        if array is None or count == size * width:
            return array if array is None else arrays.flat(array).reshape(whole)
        padded = group.empty(request, whole)
        arrays.from_host(padded, 0)
        return padded

    x, out = rows(request.x), rows(request.out)
    if count != size * width:
        if x is not None:
            before.append(arrays.copier(arrays.flat(x)[:count], arrays.flat(request.x)))
        if out is not None:
            after.append(arrays.copier(arrays.flat(request.out), arrays.flat(out)[:count]))
    return x, row, out
