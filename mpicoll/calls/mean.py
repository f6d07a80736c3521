"""The division that makes a sum a mean, for the operator ``avg``."""

from __future__ import annotations

from mpicoll.backend import Thunk, Transport
from mpicoll.calls.arguments import Arguments


def is_mean(arguments: Arguments) -> bool:
    """Whether a sum is to be divided in the end, as the operator is ``avg``."""
    op = arguments.op
    return op.name == "avg" and op.function is None and arguments.collective.reduces


def divide_mean(transport: Transport, arguments: Arguments) -> list[Thunk]:
    """Return the division that makes a sum a mean, where the operator is ``avg``."""
    out = arguments.out
    if out is None or not is_mean(arguments):
        return []
    return [transport.arrays.divider(transport.arrays.flat(out), transport.size)]
