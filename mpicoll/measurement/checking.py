"""Run-time checks: inputs, poison, expected results, and the wrong elements of a result.

Inputs depend on rank and index through a hash, so that a wrong block, a swapped rank and
a missing or repeated fold all show. They are small integers on which every operator is
exact on every dtype in any order of folding, so results are compared for equality.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpicoll.interfaces import Array, Arrays
from mpicoll.notation.contract import Collective, Place
from mpicoll.notation.elements import ReduceOp, kind_of
from mpicoll.notation.schedule import Block

Values = np.ndarray[Any, Any]

_FOLDS = {
    "sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
    "land": np.logical_and, "lor": np.logical_or,
}  # fmt: skip
_EXACT = {
    "float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53,
    "complex64": 2**24, "complex128": 2**53,
}  # fmt: skip
_LARGEST_VALUE = 100
_PERIOD = 65521  # a prime: no block of the field's algorithms is a multiple of it


@dataclass(frozen=True)
class Wrong:
    """The wrong elements of one rank's array: how many, and the first of them."""

    rank: int
    count: int
    index: int
    expected: Any
    got: Any
    where: str = "output"

    def __str__(self) -> str:
        return (
            f"rank {self.rank}, {self.where} index {self.index}: expected {self.expected}, "
            f"got {self.got} ({self.count} wrong)"
        )


class CheckedCall(NamedTuple):
    """The call that is checked: its collective, the rank, and the elements of one block."""

    what: Collective
    place: Place
    width: int
    dtype: str
    op: ReduceOp

    @classmethod
    def of(
        cls, what: Collective, rank: int, size: int, root: int, width: int, dtype: str, op: ReduceOp
    ) -> CheckedCall:
        """Return the call of `rank`; `width` is the length of a vector, or of one row."""
        return cls(what, Place(rank, size, root, 1), width, dtype, op)


def host_dtype(dtype: str) -> str:
    """Return the NumPy dtype that carries a dtype's values on the host."""
    return "float32" if dtype == "bfloat16" else dtype


def inputs(call: CheckedCall, seed: int = 0) -> Values | None:
    """Return this rank's input, flat; None where it gives none."""
    blocks = len(call.what.before(call.place))
    if not blocks:
        return None
    return _values(call, call.place.rank, 0, blocks * call.width, seed)


def expected(call: CheckedCall, seed: int = 0) -> Values | None:
    """Return the right output of this rank, flat; None where it is undefined."""
    parts = [
        _fold(call.op, list(_contributed(call, contributions, seed)), call.dtype)
        for contributions in call.what.after(call.place).values()
    ]
    return np.concatenate(parts) if parts else None


def _contributed(
    call: CheckedCall, contributions: tuple[tuple[int, Block], ...], seed: int
) -> Iterator[Values]:
    for rank, block in contributions:
        at = call.what.before(call.place._replace(rank=rank)).index(block)
        yield _values(call, rank, at * call.width, call.width, seed)


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


# -- inputs ---------------------------------------------------------------------------


def _values(call: CheckedCall, rank: int, start: int, count: int, seed: int) -> Values:
    """Return elements `start` to ``start + count`` of a rank's input."""
    tile = _tile(call.op.name, call.what.reduces, call.dtype, rank, call.place.size, seed)
    if start + count <= _PERIOD:
        return tile[start : start + count].copy()
    return np.resize(np.roll(tile, -(start % _PERIOD)), count)


@lru_cache(maxsize=64)
def _tile(op: str, reduces: bool, dtype: str, rank: int, size: int, seed: int) -> Values:
    """Return one period of a rank's input."""
    make = _PATTERNS.get(op, _any_value) if reduces else _any_value
    values = make(dtype, rank, size, seed)
    return np.asarray(values).astype(host_dtype(dtype))


def _hash(rank: int, seed: int, salt: int = 0) -> Values:
    """Return one period of 32 random-looking bits each (Wellons' lowbias32)."""
    start = (rank * 0x9E3779B1 + seed * 0x85EBCA6B + salt * 0xC2B2AE35) % 2**32
    bits = np.arange(_PERIOD, dtype=np.uint32) * np.uint32(0x27D4EB2F) + np.uint32(start)
    bits ^= bits >> np.uint32(16)
    bits *= np.uint32(0x7FEB352D)
    bits ^= bits >> np.uint32(15)
    bits *= np.uint32(0x846CA68B)
    return bits ^ (bits >> np.uint32(16))


def _limit(dtype: str) -> int:
    """Return the largest integer up to which all are exact."""
    if dtype in _EXACT:
        return _EXACT[dtype]
    return 1 if dtype == "bool" else int(np.iinfo(dtype).max)


def _between(bits: Values, dtype: str, most: int) -> Values:
    """Map hashes to integers from ``-most`` (0 for unsigned) to ``most``."""
    least = 0 if kind_of(dtype) in "ub" else -most
    return (bits % np.uint32(most - least + 1)).astype(np.int64) + least


def _plain(dtype: str, rank: int, seed: int, most: int) -> Values:
    real = _between(_hash(rank, seed), dtype, most)
    if kind_of(dtype) != "c":
        return real
    return real + 1j * _between(_hash(rank, seed, 1), dtype, most)


def _any_value(dtype: str, rank: int, size: int, seed: int) -> Values:
    return _plain(dtype, rank, seed, min(_LARGEST_VALUE, _limit(dtype)))


def _turn(rank: int, most: int, size: int) -> Values:
    """Whether it is this rank's turn to differ: at each index that of at most `most` ranks."""
    stride = -(-size // max(1, most))
    return np.asarray((np.arange(_PERIOD) + rank) % stride == 0)


def _sum(dtype: str, rank: int, size: int, seed: int) -> Values:
    """Keep the sum of the sizes exact: fewer ranks contribute where the dtype is short."""
    most = max(1, min(_LARGEST_VALUE, _limit(dtype) // size))
    values = _plain(dtype, rank, seed, most)
    return np.where(_turn(rank, _limit(dtype), size), values, 0)


def _avg(dtype: str, rank: int, size: int, seed: int) -> Values:
    """Make the sum a multiple of the ranks: one value for all, and differences that cancel.

    bfloat16 carries this for up to 250 ranks.
    """
    most = max(1, min(_LARGEST_VALUE, _limit(dtype) // (3 * size)))
    common = _plain(dtype, size, seed + 1, most)
    mine, before = (_plain(dtype, each % size, seed, most) for each in (rank, rank - 1))
    return common + mine - before


def _prod(dtype: str, rank: int, size: int, seed: int) -> Values:
    """Return units, and at most six factors of two over all ranks."""
    bits = _hash(rank, seed)
    kind = kind_of(dtype)
    units = np.array({"u": [1], "c": [1, 1j, -1, -1j]}.get(kind, [1, -1]))
    twos = _turn(rank, 6, size) & (bits & np.uint32(16) > 0)
    return np.asarray(units[bits % len(units)] * np.where(twos, 2, 1))


def _bits(dtype: str, rank: int, seed: int) -> Values:
    if dtype == "bool":
        return _hash(rank, seed) & np.uint32(1)
    wide = _hash(rank, seed, 1).astype(np.uint64) << np.uint64(32)
    return wide | _hash(rank, seed)


def _bxor(dtype: str, rank: int, size: int, seed: int) -> Values:
    return _bits(dtype, rank, seed)


def _bor(dtype: str, rank: int, size: int, seed: int) -> Values:
    """Set bits on a few ranks only, so that the result is not all ones."""
    return np.where(_turn(rank, 2, size), _bits(dtype, rank, seed), np.uint64(0))


def _band(dtype: str, rank: int, size: int, seed: int) -> Values:
    everything = np.uint64(1 if dtype == "bool" else 2**64 - 1)
    return everything - _bor(dtype, rank, size, seed)


def _lor(dtype: str, rank: int, size: int, seed: int) -> Values:
    truth = _hash(rank, seed) % np.uint32(1 if dtype == "bool" else 3) + 1
    return np.where(_rarely(rank, size, seed), truth, 0)


def _land(dtype: str, rank: int, size: int, seed: int) -> Values:
    truth = _hash(rank, seed) % np.uint32(1 if dtype == "bool" else 3) + 1
    return np.where(_rarely(rank, size, seed), 0, truth)


def _rarely(rank: int, size: int, seed: int) -> Values:
    """Return True about once over all ranks."""
    return np.asarray(_hash(rank, seed, 2) % np.uint32(size + 1) == 0)


_PATTERNS = {
    "sum": _sum, "avg": _avg, "prod": _prod, "min": _any_value, "max": _any_value,
    "bxor": _bxor, "bor": _bor, "band": _band, "lor": _lor, "land": _land,
}  # fmt: skip


# -- outputs --------------------------------------------------------------------------


def poison(good: Values) -> Values:
    """Return values unlike the expected ones everywhere: NaN, or the complement."""
    if good.dtype.kind in "fc":
        return np.full_like(good, np.nan)
    return ~good


def compare(rank: int, got: Values, good: Values, where: str = "output") -> Wrong | None:
    """Return the wrong elements of a result, None without any; NaN is always wrong."""
    got = got.reshape(-1)
    if got.size != good.size:
        return Wrong(rank, good.size, 0, f"{good.size} elements", f"{got.size} elements", where)
    equal = got == good
    if equal.all():
        return None
    first = int(np.argmin(equal))
    count = int(equal.size - np.count_nonzero(equal))
    return Wrong(rank, count, first, good[first].item(), got[first].item(), where)


class Check:
    """One call's expected results, and the arrays to check against them.

    Call `prepare`, run the collective on `x` and `out`, call `verify`.
    """

    def __init__(
        self, call: CheckedCall, arrays: Arrays, x: Array | None, out: Array | None
    ) -> None:
        self.call, self.arrays, self.x, self.out = call, arrays, x, out
        self.given, self.good = inputs(call), expected(call)
        apart = x is not None and (out is None or not _shared(arrays, x, out))
        self.keeps_input = apart

    def prepare(self) -> None:
        """Poison the output, then write the input (in place they share memory)."""
        if self.out is not None and self.good is not None:
            self._write(self.out, poison(self.good))
        if self.x is not None and self.given is not None:
            self._write(self.x, self.given)

    def verify(self) -> Wrong | None:
        """Return the wrong elements of the output, or of an input that was overwritten."""
        rank = self.call.place.rank
        wrong = None
        if self.out is not None and self.good is not None:
            self.arrays.synchronize(self.out)
            wrong = compare(rank, self._read(self.out), self.good)
        if wrong is None and self.keeps_input and self.given is not None:
            wrong = compare(rank, self._read(self.x), self.given, "input")
        return wrong

    def rest(self) -> None:
        """Write zeros over an input that repeated runs in place would make overflow."""
        if self.x is not None and not self.keeps_input and self.given is not None:
            self._write(self.x, np.zeros_like(self.given))

    def _write(self, array: Array, values: Values) -> None:
        self.arrays.from_host(self.arrays.flat(array), values)

    def _read(self, array: Array) -> Values:
        return np.asarray(self.arrays.to_host(self.arrays.flat(array)))


def _shared(arrays: Arrays, x: Array, out: Array) -> bool:
    (start, stop), (out_start, out_stop) = arrays.span(x), arrays.span(out)
    return start < out_stop and out_start < stop
