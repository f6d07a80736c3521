"""Run-time checks: write inputs and poison, and compare results with the expected ones.

All of it is done a piece at a time, so that a check takes no memory of the size of the arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from mpicoll.backend import Array, Arrays
from mpicoll.measurement.patterns import CheckedCall, Repeated, Values, host_dtype, values
from mpicoll.notation.elements import ReduceOp
from mpicoll.notation.schedule import Block

_FOLDS = {
    "sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
    "land": np.logical_and, "lor": np.logical_or,
}  # fmt: skip


@dataclass(frozen=True)
class Wrong:
    """The wrong elements of one rank's array: how many, and the first of them."""

    rank: int
    count: int
    index: int
    expected: Any
    got: Any
    array: str = "output"

    def __str__(self) -> str:
        return (
            f"rank {self.rank}, {self.array} index {self.index}: expected {self.expected}, "
            f"got {self.got} ({self.count} wrong)"
        )


def inputs(call: CheckedCall, seed: int = 0) -> Repeated | None:
    """Return this rank's input; None where it gives none."""
    blocks = len(call.contract.input_blocks(call.place))
    return values(call, call.place.rank, 0, blocks * call.width, seed) if blocks else None


def expected(call: CheckedCall, seed: int = 0) -> list[Repeated]:
    """Return the right output of this rank, block by block; none where it is undefined."""
    return [
        Repeated(
            _fold(call.op, list(_contributed(call, contributions, seed)), call.dtype), call.width
        )
        for contributions in call.contract.output_contents(call.place).values()
    ]


def _contributed(
    call: CheckedCall, contributions: tuple[tuple[int, Block], ...], seed: int
) -> Iterator[Values]:
    for rank, block in contributions:
        at = call.contract.input_blocks(call.place._replace(rank=rank)).index(block)
        yield values(call, rank, at * call.width, call.width, seed).period


def _fold(op: ReduceOp, parts: list[Values], dtype: str) -> Values:
    """Fold in rank order, in the dtype itself."""
    host = host_dtype(dtype)
    function = op.function or _FOLDS[op.name]
    folded = parts[0]
    for part in parts[1:]:
        folded = np.asarray(function(folded, part)).astype(host, copy=False)
    if op.name == "avg" and op.function is None and len(parts) > 1:
        folded = (folded / len(parts)).astype(host)
    return folded


def poison(good: Values) -> Values:
    """Return values unlike the expected ones everywhere: NaN, or the complement."""
    if good.dtype.kind in "fc":
        return np.full_like(good, np.nan)
    return ~good


def compare(
    rank: int, pieces: Iterable[tuple[Values, Values]], array: str = "output"
) -> Wrong | None:
    """Return the wrong elements of a result, None without any; NaN is always wrong.

    Args:
        pieces: the values of each piece of the result, and those that it must have.
    """
    first, count, start = None, 0, 0
    for got, good in pieces:
        equal = got == good
        if not equal.all():
            at = int(np.argmin(equal))
            first = first or (start + at, good[at].item(), got[at].item())
            count += int(equal.size - np.count_nonzero(equal))
        start += good.size
    return Wrong(rank, count, *first, array) if first else None


class Check:
    """One call's expected results, and the arrays to check against them.

    Call `prepare`, run the collective on `x` and `out`, call `verify`.
    """

    def __init__(
        self, call: CheckedCall, arrays: Arrays, x: Array | None, out: Array | None
    ) -> None:
        self.rank, self.arrays, self.x, self.out = call.place.rank, arrays, x, out
        values_in = inputs(call)
        self.inputs = [values_in] if x is not None and values_in else []
        self.good = expected(call) if out is not None else []
        self.keeps_input = x is not None and (out is None or not _shared(arrays, x, out))

    def prepare(self) -> None:
        """Poison the output, then write the input (in place they share memory)."""
        for part, good in self._parts(self.out, self.good):
            self.arrays.from_host(part, poison(good))
        for part, values_in in self._parts(self.x, self.inputs):
            self.arrays.from_host(part, values_in)

    def verify(self) -> Wrong | None:
        """Return the wrong elements of the output, or of an input that was overwritten."""
        if self.good:
            self.arrays.synchronize(self.out)
        wrong = compare(self.rank, self._read(self.out, self.good))
        if wrong is None and self.keeps_input:
            wrong = compare(self.rank, self._read(self.x, self.inputs), "input")
        return wrong

    def zero_input(self) -> None:
        """Write zeros over an input that repeated runs in place would make overflow."""
        if self.inputs and not self.keeps_input:
            self.arrays.from_host(self.x, 0)

    def _parts(self, array: Array | None, blocks: list[Repeated]) -> Iterator[tuple[Array, Values]]:
        """Yield each part of an array with its values."""
        if array is None or not blocks:
            return
        flat, start = self.arrays.flat(array), 0
        for piece in chain.from_iterable(block.pieces() for block in blocks):
            yield flat[start : start + piece.size], piece
            start += piece.size

    def _read(self, array: Array | None, blocks: list[Repeated]) -> Iterator[tuple[Values, Values]]:
        for part, good in self._parts(array, blocks):
            yield np.asarray(self.arrays.to_host(part)), good


def _shared(arrays: Arrays, x: Array, out: Array) -> bool:
    (start, stop), (out_start, out_stop) = arrays.span(x), arrays.span(out)
    return start < out_stop and out_start < stop
