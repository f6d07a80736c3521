"""Inputs that depend on rank and index, and on which every operator is exact.

They are small integers, so that folds in any order give the same bits on every dtype, and results
are compared for equality. A hash of rank and index makes a wrong block, a swapped rank and a
missing or repeated fold all show. All values repeat after `PERIOD`, and so do folds of them: an
array of any size is described by one period.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpicoll.notation.contract import Collective, Place
from mpicoll.notation.elements import ReduceOp, kind_of

Values = np.ndarray[Any, Any]

PERIOD = 65521  # a prime: no block of the field's algorithms is a multiple of it
_EXACT = {
    "float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53,
    "complex64": 2**24, "complex128": 2**53,
}  # fmt: skip
_LARGEST_VALUE = 100


class CheckedCall(NamedTuple):
    """The call that is checked: its collective, the rank, and the elements of one block."""

    contract: Collective
    place: Place
    width: int
    dtype: str
    op: ReduceOp

    @classmethod
    def of(
        cls,
        contract: Collective,
        rank: int,
        size: int,
        root: int,
        width: int,
        dtype: str,
        op: ReduceOp,
    ) -> CheckedCall:
        """Return the call of `rank`; `width` is the length of a vector, or of one row."""
        return cls(contract, Place(rank, size, root, 1), width, dtype, op)


@dataclass(frozen=True)
class Repeated:
    """The `count` values that one period makes when it is repeated."""

    period: Values
    count: int

    def pieces(self) -> Iterator[Values]:
        """Yield the values, a period at a time."""
        for start in range(0, self.count, max(1, len(self.period))):
            yield self.period[: self.count - start]


def host_dtype(dtype: str) -> str:
    """Return the NumPy dtype that carries a dtype's values on the host."""
    return "float32" if dtype == "bfloat16" else dtype


def values(call: CheckedCall, rank: int, start: int, count: int, seed: int) -> Repeated:
    """Return elements `start` to ``start + count`` of a rank's input."""
    tile = _tile(call.op.name, call.contract.reduces, call.dtype, rank, call.place.size, seed)
    at = start % PERIOD
    if at + count <= PERIOD:
        return Repeated(tile[at : at + count].copy(), count)
    return Repeated(np.roll(tile, -at)[:count] if at else tile, count)


@lru_cache(maxsize=64)
def _tile(op: str, reduces: bool, dtype: str, rank: int, size: int, seed: int) -> Values:
    """Return the first period of a rank's input."""
    make = _PATTERNS.get(op, _any_value) if reduces else _any_value
    values = make(dtype, rank, size, seed)
    return np.asarray(values).astype(host_dtype(dtype))


def _hash(rank: int, seed: int, salt: int = 0) -> Values:
    """Return one period of 32 random-looking bits each (Wellons' lowbias32)."""
    start = (rank * 0x9E3779B1 + seed * 0x85EBCA6B + salt * 0xC2B2AE35) % 2**32
    bits = np.arange(PERIOD, dtype=np.uint32) * np.uint32(0x27D4EB2F) + np.uint32(start)
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


def _between(bits: Values, dtype: str, largest: int) -> Values:
    """Map hashes to integers from ``-largest`` (0 for unsigned) to ``largest``."""
    smallest = 0 if kind_of(dtype) in "ub" else -largest
    return (bits % np.uint32(largest - smallest + 1)).astype(np.int64) + smallest


def _plain(dtype: str, rank: int, seed: int, largest: int) -> Values:
    real = _between(_hash(rank, seed), dtype, largest)
    if kind_of(dtype) != "c":
        return real
    return real + 1j * _between(_hash(rank, seed, 1), dtype, largest)


def _any_value(dtype: str, rank: int, size: int, seed: int) -> Values:
    return _plain(dtype, rank, seed, min(_LARGEST_VALUE, _limit(dtype)))


def _turn(rank: int, ranks: int, size: int) -> Values:
    """Return a mask of the indices where this rank differs; at most `ranks` do at each index."""
    stride = -(-size // max(1, ranks))
    return np.asarray((np.arange(PERIOD) + rank) % stride == 0)


def _sum(dtype: str, rank: int, size: int, seed: int) -> Values:
    """Keep the sum of the sizes exact: fewer ranks contribute where the dtype is short."""
    largest = max(1, min(_LARGEST_VALUE, _limit(dtype) // size))
    values = _plain(dtype, rank, seed, largest)
    return np.where(_turn(rank, _limit(dtype), size), values, 0)


def _avg(dtype: str, rank: int, size: int, seed: int) -> Values:
    """Make the sum a multiple of the ranks: one value for all, and differences that cancel.

    bfloat16 carries this for up to 250 ranks.
    """
    largest = max(1, min(_LARGEST_VALUE, _limit(dtype) // (3 * size)))
    common = _plain(dtype, size, seed + 1, largest)
    mine, previous = (_plain(dtype, source % size, seed, largest) for source in (rank, rank - 1))
    return common + mine - previous


def _prod(dtype: str, rank: int, size: int, seed: int) -> Values:
    """Return units, and at most six factors of two over all ranks."""
    bits = _hash(rank, seed)
    kind = kind_of(dtype)
    units = np.array({"u": [1], "c": [1, 1j, -1, -1j]}.get(kind, [1, -1]))
    twos = _turn(rank, 6, size) & (bits & np.uint32(16) > 0)
    return np.asarray(units[bits % len(units)] * np.where(twos, 2, 1))


def _bits(dtype: str, rank: int, size: int, seed: int) -> Values:
    if dtype == "bool":
        return _hash(rank, seed) & np.uint32(1)
    wide = _hash(rank, seed, 1).astype(np.uint64) << np.uint64(32)
    return wide | _hash(rank, seed)


def _bor(dtype: str, rank: int, size: int, seed: int) -> Values:
    """Set bits on a few ranks only, so that the result is not all ones."""
    return np.where(_turn(rank, 2, size), _bits(dtype, rank, size, seed), np.uint64(0))


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
    "bxor": _bits, "bor": _bor, "band": _band, "lor": _lor, "land": _land,
}  # fmt: skip
