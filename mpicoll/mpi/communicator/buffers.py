"""What mpi4py accepts as a buffer, as flat arrays of ours; None where MPI alone can read it.

mpi4py's rules (its ``msgbuffer.pxi``): a buffer, or a list or tuple of a buffer with count,
displacement and datatype, any of which it infers where they are left out.
"""

from __future__ import annotations

import operator
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI

Flat = np.ndarray[Any, np.dtype[Any]]
"""A C-contiguous array of one axis."""


def _of(*names: str) -> list[MPI.Datatype]:
    found = (getattr(MPI, name, MPI.DATATYPE_NULL) for name in names)
    return [each for each in found if each != MPI.DATATYPE_NULL]


_SIGNED = _of("SIGNED_CHAR", "SHORT", "INT", "LONG", "LONG_LONG", "INT8_T", "INT16_T", "INT32_T",
              "INT64_T", "AINT", "OFFSET", "COUNT", "INTEGER", "INTEGER1", "INTEGER2", "INTEGER4",
              "INTEGER8")  # fmt: skip
_UNSIGNED = _of("UNSIGNED_CHAR", "UNSIGNED_SHORT", "UNSIGNED", "UNSIGNED_LONG",
                "UNSIGNED_LONG_LONG", "UINT8_T", "UINT16_T", "UINT32_T", "UINT64_T")  # fmt: skip
_FLOATS = _of("FLOAT", "DOUBLE", "REAL", "DOUBLE_PRECISION", "REAL4", "REAL8")
_COMPLEX = _of("C_FLOAT_COMPLEX", "C_DOUBLE_COMPLEX", "COMPLEX", "DOUBLE_COMPLEX", "COMPLEX8",
               "COMPLEX16", "CXX_FLOAT_COMPLEX", "CXX_DOUBLE_COMPLEX")  # fmt: skip
_MOVED = _of("BYTE", "PACKED", "CHAR", "CHARACTER", "WCHAR", "LONG_DOUBLE", "LOGICAL", "CXX_BOOL",
             "C_LONG_DOUBLE_COMPLEX", "LOGICAL1", "LOGICAL2", "LOGICAL4", "LOGICAL8")  # fmt: skip


@cache
def _dtypes() -> dict[int, np.dtype[Any]]:
    """Return NumPy's dtype of every predefined datatype, by handle; raw bytes where NumPy has none.

    Raw ones are moved, and never folded. Not at import: a program may start MPI after it.
    """
    found = {each.handle: np.dtype(f"V{each.Get_size()}") for each in _MOVED}
    for kind, datatypes in (("i", _SIGNED), ("u", _UNSIGNED), ("f", _FLOATS), ("c", _COMPLEX)):
        found |= {each.handle: np.dtype(f"{kind}{each.Get_size()}") for each in datatypes}
    for each in _of("C_BOOL"):
        found[each.handle] = np.dtype(bool)
    return found


_INFERRED = frozenset(map(np.dtype, "?bhilqBHILQfdFDg"))
"""The dtypes whose datatype mpi4py infers as we do."""


def block(spec: Any, blocks: int = 0, *, written: bool) -> Flat | None:
    """Return the elements that a buffer with at most one count stands for.

    Args:
        blocks: the count is that of one of so many blocks, which follow each other.
        written: it is received into.
    """
    read = _read(spec, list | tuple, written=written)
    if read is None:
        return None
    flat, count, displacement = read
    start = operator.index(displacement or 0)
    if count is not None:
        stop = start + operator.index(count) * max(blocks, 1)
    else:
        stop = flat.size
        if blocks and (stop - start) % blocks:
            return None
    if not 0 <= start <= stop <= flat.size:
        return None
    return flat[start:stop]


def vector(spec: Any, blocks: int, *, written: bool) -> tuple[Flat, list[int]] | None:
    """Return the elements of a buffer with a count for each block, and these counts.

    None, too, where the blocks do not follow each other.
    """
    read = _read(spec, tuple, written=written)
    if read is None:
        return None
    flat, counts, displacements = read
    if counts is None:
        each, more = divmod(flat.size, blocks)
        counts = [each + (index < more) for index in range(blocks)]
    else:
        counts = _numbers(counts, blocks)
    starts = list(accumulate(counts, initial=0))
    if displacements is not None:
        given = _strided(displacements, blocks)
        first = given[0] if blocks else 0
        # Where a block without elements is said to begin says nothing.
        if any(count and start + first != at for count, start, at in
               zip(counts, starts, given, strict=False)):  # fmt: skip
            return None
        starts = [first + start for start in starts]
    if len(counts) != blocks or min(counts) < 0 or not 0 <= starts[0] <= starts[-1] <= flat.size:
        return None
    return flat[starts[0] : starts[-1]], counts


def datatype(spec: Any) -> MPI.Datatype:
    """Return the datatype of a buffer that `block` reads."""
    parts = _parts(spec, list | tuple)
    assert parts is not None
    memory, _, _, kind = parts
    if isinstance(kind, MPI.Datatype):
        return kind
    if kind is None:
        kind = _array(memory).dtype.char
    return MPI.Datatype.fromcode(kind)


def numbers(given: Any, blocks: int) -> list[int] | None:
    """Return one count per rank, None where there is another number of them."""
    found = _numbers(given, blocks)
    return found if len(found) == blocks and min(found) >= 0 else None


def _read(spec: Any, sequences: Any, *, written: bool) -> tuple[Flat, Any, Any] | None:
    """Return the elements of a buffer, and what is given as count and displacement.

    Args:
        sequences: the types of what stands for count and displacement together.
        written: it is received into.
    """
    parts = _parts(spec, sequences=sequences)
    if parts is None:
        return None
    memory, count, displacement, kind = parts
    flat = _memory(memory, kind, written=written)
    return None if flat is None else (flat, count, displacement)


def _parts(spec: Any, sequences: Any) -> tuple[Any, Any, Any, Any] | None:
    """Return buffer, count, displacement and datatype.

    Args:
        sequences: the types of what stands for count and displacement together.
    """
    count = displacement = kind = None
    if not isinstance(spec, list | tuple):
        memory = spec
    elif len(spec) == 2:
        memory, count = spec
        if isinstance(count, MPI.Datatype | str):
            count, kind = None, count
    elif len(spec) == 3:
        memory, count, kind = spec
    elif len(spec) == 4:
        memory, count, displacement, kind = spec
    else:
        return None
    if isinstance(count, sequences) and len(spec) < 4:
        count, displacement = count
    return memory, count, displacement, kind


def _memory(memory: Any, kind: Any, *, written: bool) -> Flat | None:
    """Return memory as elements of a datatype, its own where none is given."""
    if memory is None:
        if kind is None:
            return None
        flat = np.empty(0, "uint8")
    else:
        flat = _array(memory)
    if written and not flat.flags.writeable:
        return None
    if kind is None and flat.dtype not in _INFERRED:
        return None
    if flat.flags.c_contiguous:
        flat = flat.reshape(-1)
    elif flat.flags.f_contiguous:
        flat = flat.T.reshape(-1)  # mpi4py takes its elements as they lie in memory
    else:
        return None
    if kind is None:
        return flat
    if isinstance(kind, str):
        kind = MPI.Datatype.fromcode(kind)
    dtype = _dtypes().get(kind.handle)
    if dtype is None or flat.nbytes % dtype.itemsize:
        return None
    return flat if flat.dtype == dtype else flat.view(dtype)


def _array(memory: Any) -> Flat:
    return memory if type(memory) is np.ndarray else np.asarray(memoryview(memory))


def _numbers(given: Any, blocks: int) -> list[int]:
    try:
        return [operator.index(given)] * blocks
    except TypeError:
        return list(map(operator.index, given))


def _strided(given: Any, blocks: int) -> list[int]:
    try:
        return [operator.index(given) * index for index in range(blocks)]
    except TypeError:
        return list(map(operator.index, given))
