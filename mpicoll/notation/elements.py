"""The elements of arrays: their dtypes by name, and the operators that fold them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mpicoll.errors import ArgumentError, UnknownName
from mpicoll.notation.contract import Collective

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip

_KINDS = {
    "bool": "b", "int": "i", "uint": "u", "float": "f", "bfloat": "f", "complex": "c",
}  # fmt: skip


def kind_of(dtype: str) -> str:
    """Return a dtype name's kind: b, i, u, f or c.

    >>> kind_of("bfloat16"), kind_of("uint8")
    ('f', 'u')

    Raises:
        UnknownName: no backend carries this dtype.
    """
    if dtype not in DTYPES:
        raise UnknownName("dtype", dtype, DTYPES)
    return _KINDS[dtype.rstrip("0123456789")]


def itemsize(dtype: str) -> int:
    """Return the bytes of one element.

    >>> itemsize("bfloat16"), itemsize("complex128"), itemsize("bool")
    (2, 16, 1)
    """
    digits = "".join(filter(str.isdigit, dtype))
    return int(digits) // 8 if digits else 1


@dataclass(frozen=True, repr=False)
class ReduceOp:
    """An associative operator.

    >>> import numpy as np
    >>> user_op(np.maximum, commutative=True)
    <ReduceOp maximum>

    Attributes:
        name: one of the predefined names, or the name of the user's function.
        kinds: the kinds of dtype it is defined on: b(ool), i(nteger), u(nsigned),
            f(loat), c(omplex).
        commutative: whether the order of the operands is arbitrary.
        function: the user's ``function(left, right) -> array``, elementwise and associative.
    """

    name: str
    kinds: str = "biufc"
    commutative: bool = True
    function: Callable[[Any, Any], Any] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


OPS = {
    op.name: op
    for op in (
        ReduceOp("sum", "iufc"),
        ReduceOp("prod", "iufc"),
        ReduceOp("min", "iuf"),
        ReduceOp("max", "iuf"),
        ReduceOp("avg", "fc"),
        ReduceOp("band", "biu"),
        ReduceOp("bor", "biu"),
        ReduceOp("bxor", "biu"),
        ReduceOp("land", "biu"),
        ReduceOp("lor", "biu"),
    )
}

_OP_ALIASES = {"mean": "avg", "average": "avg", "product": "prod", "add": "sum"}
_KIND_NAMES = {
    "b": "bool", "i": "signed integers", "u": "unsigned integers", "f": "floats", "c": "complex",
}  # fmt: skip


def user_op(function: Callable[[Any, Any], Any], *, commutative: bool = False) -> ReduceOp:
    """Make an operator of an elementwise associative ``function(left, right) -> array``.

    Both arguments and the result have the shape and dtype of the folded arrays.

    >>> import mpicoll, numpy as np
    >>> longest = mpicoll.user_op(np.maximum, commutative=True)
    >>> mpicoll.threads(3)(lambda c: c.allreduce(np.full(2, c.rank), longest))[0]
    array([2, 2])

    Args:
        commutative: whether the order of the operands is arbitrary, so that more algorithms fit.
    """
    name = str(getattr(function, "__name__", "function"))
    return ReduceOp(name, "biufc", commutative, function)


def unfit(
    op: ReduceOp, result: object, shape: object, dtype: object, out: tuple[object, object]
) -> ArgumentError:
    """Return the error for a user's function whose return value is no result of a fold."""
    description = f"a {type(result).__name__}" if shape is None else f"{shape} of {dtype}"
    return ArgumentError(
        f"the operator {op.name} returned {description}: folds here need {out[0]} of {out[1]}"
    )


def reduce_op(op: str | ReduceOp | Callable[[Any, Any], Any]) -> ReduceOp:
    """Look an operator up by name; a bare function is taken as not commutative.

    Raises:
        UnknownName: there is no such operator.
    """
    if isinstance(op, ReduceOp):
        return op
    if callable(op):
        return user_op(op)
    name = str(op).lower()
    name = _OP_ALIASES.get(name, name)
    if name not in OPS:
        raise UnknownName("op", op, OPS)
    return OPS[name]


def check_op(op: ReduceOp, dtype: str, contract: Collective) -> None:
    """Raise ArgumentError where an operator is not defined on a dtype or for a collective."""
    if kind_of(dtype) not in op.kinds:
        fits = ", ".join(_KIND_NAMES[kind] for kind in op.kinds)
        raise ArgumentError(f"op {op.name!r} is not defined on {dtype}: it takes {fits}")
    if op.name == "avg" and op.function is None and contract.name in ("scan", "exscan"):
        raise ArgumentError(
            f"{contract.name} has no op 'avg': a mean has no prefix form; use 'sum'"
        )
