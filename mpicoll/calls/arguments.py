"""The arguments of a collective call, checked by each rank."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from math import prod
from types import FunctionType, MethodType
from typing import Any, TypedDict, cast

from mpicoll.backend import Array, Arrays
from mpicoll.errors import ArgumentError, brief
from mpicoll.lowering.messages import cut, offsets
from mpicoll.notation.contract import Collective, Counts, Place, Shape, Side, collective
from mpicoll.notation.elements import OPS, ReduceOp, check_op, itemsize, kind_of, reduce_op
from mpicoll.notation.schedule import Block

Signature = TypedDict(
    "Signature",
    {
        "collective": str, "algorithm": str, "op": str | None, "root": int | None,
        "counts": tuple[int | tuple[int, ...], ...] | str, "dtype": str | None,
        "device": str | None, "shape": tuple[int, ...] | None, "in place": bool | None,
    },
)  # fmt: skip
"""The arguments that must be equal on every rank that knows them."""


@dataclass(frozen=True)
class Arguments:
    """One rank's checked arguments of a collective call.

    Attributes:
        row: the shape of a vector, or of one row of a row-wise collective; None where
            this rank has no array. `dtype` likewise.
        in_place: `x` and `out` share memory, each block at its own place.
        device: ``host`` or ``gpu``, where the arrays lie; None as for `row`.
        unbound: the plan is to run on other arrays of this signature, too, where it can.
    """

    collective: Collective
    algorithm: str
    op: ReduceOp
    root: int
    counts: Counts | None
    x: Array | None
    out: Array | None
    row: Shape | None
    dtype: str | None
    rank: int
    size: int
    in_place: bool = False
    device: str | None = None
    unbound: bool = False

    @property
    def array(self) -> Array | None:
        """One of its arrays, which lie on one device; None where this rank gives and gets none."""
        return self.out if self.x is None else self.x

    def place(self, blocks: int = 1) -> Place:
        """Return this rank's place, the vector cut into `blocks`."""
        return Place(self.rank, self.size, self.root, blocks)

    @property
    def signature(self) -> Signature:
        """The arguments that must be equal on every rank that knows them."""
        return {
            "collective": self.collective.name,
            "algorithm": self.algorithm,
            "op": _description(self.op) if self.collective.reduces else None,
            "root": self.root if self.collective.rooted else None,
            "counts": cast("Any", self.counts) or "equal",
            "dtype": self.dtype,
            "device": self.device,
            "shape": self.row,
            "in place": None if self.collective.rooted or self.counts else self.in_place,
        }

    @property
    def key(self) -> tuple[Any, ...]:
        """The key of the cached plan for this call."""
        function_key, signature = _function_key(self.op.function), self.signature
        if self.is_any_length:
            signature["shape"] = None
        return (*signature.values(), self.in_place, self.op.name, function_key)

    @property
    def is_any_length(self) -> bool:
        """Whether a plan serves such calls of any length: the library's own."""
        return self.algorithm == "native" and self.device == "host" and self.counts is None

    @property
    def is_complete(self) -> bool:
        """Whether this rank can make a plan without asking the others."""
        return self.dtype is not None or self.collective.unit == "none"

    def digest(self, plan: object) -> int:
        """Return 64 bits, equal where ranks make the same call and would run the same plan."""
        return digest_of(repr((plan, *self.signature.values())))

    @property
    def is_mean(self) -> bool:
        """Whether a sum is to be divided in the end, as the operator is ``avg``."""
        return self.collective.reduces and self.op.name == "avg" and self.op.function is None

    @property
    def has_output(self) -> bool:
        """Whether this rank gets an array."""
        return self.collective.has_output(self.rank, self.root)

    @property
    def bytes_per_row(self) -> int:
        """Bytes of a vector, or of one row."""
        return prod(self.row or ()) * itemsize(self.dtype) if self.dtype else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the larger of input and output, as far as these are equal rows."""
        return self.bytes_per_row * (1 if self.collective.unit == "vector" else self.size)

    def sizes(self, blocks: int) -> dict[Block, int]:
        """Return the elements of every block of the collective."""
        if self.row is None:
            return {}
        width = prod(self.row)
        if self.collective.unit == "vector":
            return dict(enumerate(cut(width, blocks)))
        whole = {block: rows * width for block, rows in _rows(self).items()}
        parts = self.place(blocks).parts
        if self.collective.unit == "pairs" or parts == 1:
            return whole
        pieces = (cut(length, parts) for length in whole.values())
        return dict(enumerate(chain.from_iterable(pieces)))

    def blocks(self, count: int) -> tuple[dict[Block, int], Sequence[Block], list[Block]]:
        """Return the elements of each block, and this rank's blocks of input and output, in order.

        Args:
            count: into how many blocks a vector is cut.
        """
        contract, place = self.collective, self.place(count)
        return (
            self.sizes(count),
            contract.input_blocks(place),
            list(contract.output_contents(place)),
        )

    def shape(self, side: Side) -> Shape:
        """Return the shape of this rank's input or output."""
        assert self.row is not None
        return self.collective.shape(side, self.row, self.rank, self.size, self.counts)


def _function_key(function: Any) -> Any:
    """Return a key that is equal for functions of the same code and values, as of one `lambda`.

    A plan keeps its function alive, and so all that the key names by `id`.
    """
    if isinstance(function, FunctionType):
        values = (*(function.__closure__ or ()), *(function.__defaults__ or ()))
        alike = function.__code__, id(function.__globals__), *map(id, values)
        return id(function) if function.__kwdefaults__ or function.__dict__ else alike
    # Every access to a bound method makes another one, equal to the others.
    return function if isinstance(function, MethodType) else id(function)


def _description(op: ReduceOp) -> str:
    """Describe an operator by the properties that an algorithm is chosen by.

    Two functions of one name cannot be distinguished.
    """
    if op.function is None:
        return op.name
    return f"{op.name} (a function{', commutative' if op.commutative else ''})"


def _rows(arguments: Arguments) -> dict[Any, int]:
    """Return the rows of each block; one each without counts."""
    ranks = range(arguments.size)
    if arguments.collective.unit == "pairs":
        return {
            (source, target): arguments.counts[source][target] if arguments.counts else 1  # type: ignore[index]
            for source in ranks
            for target in ranks
        }
    return {rank: arguments.counts[rank] if arguments.counts else 1 for rank in ranks}  # type: ignore[misc]


def digest_of(text: str) -> int:
    """Return a signed number of 64 bits for a text."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def check_arguments(
    arrays: Arrays, rank: int, size: int, name: str, x: Array | None, *,
    out: Array | None, op: Any, root: Any, counts: Any, algorithm: str,
) -> Arguments:  # fmt: skip
    """Check one rank's arguments.

    Raises:
        ArgumentError: naming what was given and what would do.
    """
    contract = collective(name)
    root = check_rank(root, size, "root") if contract.rooted else 0
    reducing = reduce_op(op) if contract.reduces else OPS["sum"]
    x = x if contract.has_input(rank, root) or contract.name == "broadcast" else None
    out = out if contract.has_output(rank, root) else None
    if x is None and contract.has_input(rank, root):
        raise ArgumentError(f"{contract.name} needs an array from rank {rank}, not None")
    for label, array in (("x", x), ("out", out)):
        if array is not None:
            check_array(arrays, label, array)
    arguments = Arguments(
        contract, algorithm, reducing, root, _check_counts(contract, counts, size),
        x, out, None, None, rank, size,
    )  # fmt: skip
    return _check_arrays(arguments, arrays)


def check_array(arrays: Arrays, label: str, array: Any) -> Array:
    """Return the array ``x`` or ``out`` as a flat view, or raise ArgumentError."""
    if not arrays.owns(array):
        type_name = f"{type(array).__module__}.{type(array).__name__}"
        raise ArgumentError(f"{label} is a {type_name}, not an array of this backend")
    if reason := arrays.unfit(array, written=label == "out"):
        raise ArgumentError(f"{label} {reason}")
    return arrays.flat(array)


def check_rank(value: Any, size: int, label: str) -> int:
    """Return `value` as a rank of the group, or raise ArgumentError."""
    rank = _index(value)
    if rank is None:
        raise ArgumentError(f"{label} must be a rank, not {brief(value)}")
    if not 0 <= rank < size:
        raise ArgumentError(
            f"{label}={brief(rank)} is out of range: this group has ranks 0 to {size - 1}"
        )
    return rank


def check_tag(value: Any) -> None:
    """Raise ArgumentError where `value` is not the tag of a message."""
    if not isinstance(value, int) or not 0 <= value < 32768:
        raise ArgumentError(f"tag must be a number from 0 to 32767, not {brief(value)}")


def check_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple, or raise ArgumentError."""
    try:
        lengths = (int(shape),) if isinstance(shape, int) else tuple(map(operator.index, shape))
    except TypeError:
        lengths = (-1,)
    if any(length < 0 for length in lengths):
        raise ArgumentError(f"a shape is numbers of elements, not {brief(shape)}")
    return lengths


def check_dtype(dtype: Any) -> str:
    """Return the name of a dtype given as such, as NumPy's or as torch's, or raise UnknownName."""
    name = str(getattr(dtype, "__name__", None) or dtype).removeprefix("torch.")
    kind_of(name)
    return name


def check_number(label: str, value: Any, within: range) -> int | None:
    """Return `value` as a whole number, None as None, or raise ArgumentError."""
    number = _index(value)
    if value is not None and (number is None or number not in within):
        raise ArgumentError(
            f"{label} is None or a whole number from {within[0]} to {within[-1]}, "
            f"not {brief(value)}"
        )
    return number


def _index(value: Any) -> int | None:
    try:
        return int(operator.index(value))
    except TypeError:
        return None


def _check_counts(contract: Collective, counts: Any, size: int) -> Counts | None:
    if counts is None:
        return None
    if contract.unit not in ("rows", "pairs"):
        raise ArgumentError(f"{contract.name} takes no counts: every rank gives a whole vector")
    text, by_rank = brief(counts), contract.unit == "rows"
    try:
        rows = [counts] if by_rank else [*islice(counts, size + 1)]
        table = [tuple(map(operator.index, islice(row, size + 1))) for row in rows]
    except TypeError:
        form = "one number per rank" if by_rank else "a matrix, counts[source][target]"
        raise ArgumentError(f"counts of {contract.name} is {form}, not {text}") from None
    if len(table) != (1 if by_rank else size) or any(len(row) != size for row in table):
        raise ArgumentError(f"counts {text} does not match the {size} ranks of this group")
    if min(chain.from_iterable(table)) < 0:
        raise ArgumentError(f"counts {text} has a negative number")
    return table[0] if by_rank else tuple(table)


def _check_arrays(arguments: Arguments, arrays: Arrays) -> Arguments:
    contract, x, out = arguments.collective, arguments.x, arguments.out
    first = x if x is not None else out
    if first is None or contract.unit == "none":
        return replace(arguments, x=None, out=None)
    dtype = arrays.dtype(first)
    kind_of(dtype)
    if contract.reduces:
        check_op(arguments.op, dtype, contract)
    row = _row(arguments, tuple(first.shape), "input" if x is not None else "output")
    device = "host" if arrays.is_on_host(first) else "gpu"
    arguments = replace(arguments, dtype=dtype, row=row, device=device)
    sides: list[tuple[str, Side, Array | None]] = [("x", "input", x), ("out", "output", out)]
    for label, side, array in sides:
        if array is None:
            continue
        expected = arguments.shape(side)
        if tuple(array.shape) != expected:
            raise ArgumentError(
                f"{label} of {contract.name} has shape {tuple(array.shape)}: "
                f"rank {arguments.rank} of {arguments.size} needs {expected}"
            )
        if arrays.dtype(array) != dtype:
            raise ArgumentError(f"out is {arrays.dtype(array)} where x is {dtype}: they must agree")
    if x is not None and out is not None:
        x_place, out_place = (_place(arrays, side_array) for side_array in (x, out))
        if x_place and out_place and x_place != out_place:
            raise ArgumentError(
                f"out lies on {out_place} where x lies on {x_place}: give both on one"
            )
    if contract.name == "broadcast" and arguments.rank != arguments.root:
        return replace(arguments, x=None)
    return replace(arguments, in_place=_in_place(arguments, arrays))


def _place(arrays: Arrays, x: Array) -> str:
    """Return the device of an array; empty for one without elements, which nobody reads."""
    start, stop = arrays.span(x)
    if start == stop:
        return ""
    return "the host" if arrays.is_on_host(x) else f"GPU {arrays.gpu(x)}"


def _row(arguments: Arguments, shape: Shape, side: Side) -> Shape:
    contract = arguments.collective
    if contract.unit == "vector":
        return shape
    if arguments.counts is not None and not shape:
        raise ArgumentError(f"{contract.name} with counts needs an array with rows, not a scalar")
    is_stacked = side in contract.stacks
    if arguments.counts is None and is_stacked and shape[:1] != (arguments.size,):
        label = "x" if side == "input" else "out"
        raise ArgumentError(
            f"{label} of {contract.name} has shape {shape}: its first axis is one row per rank, "
            f"({arguments.size}, ...)"
        )
    return shape[1:] if is_stacked or arguments.counts is not None else shape


def _in_place(arguments: Arguments, arrays: Arrays) -> bool:
    """Whether every shared block has one address; other overlaps are an error."""
    if arguments.x is None or arguments.out is None:
        return False
    (start, stop), (out_start, out_stop) = arrays.span(arguments.x), arrays.span(arguments.out)
    if start >= out_stop or out_start >= stop:
        return False
    assert arguments.dtype is not None
    place, sizes = arguments.place(), arguments.sizes(1)
    source = offsets(arguments.collective.input_blocks(place), sizes)
    target = offsets(arguments.collective.output_contents(place), sizes)
    width = itemsize(arguments.dtype)
    if arguments.collective.unit == "rows":
        shared = [block for block in source if block in target]
        aligned = all(start + width * source[b] == out_start + width * target[b] for b in shared)
    else:
        aligned = start == out_start
    if aligned:
        return True
    how = {"input": "out is x's own row, x[rank]", "output": "x is out's own row, out[rank]"}
    sides = [side for side in how if side in arguments.collective.stacks]
    form = how[sides[0]] if len(sides) == 1 else "out is x"
    raise ArgumentError(f"x and out of {arguments.collective.name} overlap: in place, {form}")
