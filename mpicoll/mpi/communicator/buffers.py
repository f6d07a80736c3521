"""Read what mpi4py accepts as a buffer into flat arrays.

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

from mpicoll.c_extension import _compiled

_compiled.place_handles(MPI._addressof(MPI.SUM) - id(MPI.SUM), MPI._sizeof(MPI.SUM))
Flat = np.ndarray[Any, np.dtype[Any]]
"""A C-contiguous array of one axis."""


class Unreadable(Exception):
    """NumPy cannot view a buffer, or MPI does not fold its datatype by the operator."""


class Refused(Unreadable):
    """mpi4py refuses a call before it calls MPI, so that no other rank hears of it."""


class WrongLength(Unreadable):
    """Two buffers of this rank have lengths that do not fit together."""


def _of(*names: str) -> list[MPI.Datatype]:
    mpi_types = (getattr(MPI, name, MPI.DATATYPE_NULL) for name in names)
    return [mpi_type for mpi_type in mpi_types if mpi_type != MPI.DATATYPE_NULL]


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
    dtypes = {mpi_type.handle: np.dtype(f"V{mpi_type.Get_size()}") for mpi_type in _MOVED}
    for kind, datatypes in (("i", _SIGNED), ("u", _UNSIGNED), ("f", _FLOATS), ("c", _COMPLEX)):
        dtypes |= {
            mpi_type.handle: np.dtype(f"{kind}{mpi_type.Get_size()}") for mpi_type in datatypes
        }
    for mpi_type in _of("C_BOOL"):
        dtypes[mpi_type.handle] = np.dtype(bool)
    return dtypes


def known_datatypes() -> list[tuple[MPI.Datatype, np.dtype[Any]]]:
    """Return MPI's predefined datatypes, each with NumPy's dtype of its elements."""
    datatypes = (*_SIGNED, *_UNSIGNED, *_FLOATS, *_COMPLEX, *_of("C_BOOL"), *_MOVED)
    return [(mpi_type, _dtypes()[mpi_type.handle]) for mpi_type in datatypes]


_INFERRED = frozenset(map(np.dtype, "?bhilqBHILQfdFDg"))
"""The dtypes whose datatype mpi4py infers as we do."""


def block(spec: Any, blocks: int = 0, *, written: bool) -> Flat:
    """Return the elements of a buffer with at most one count.

    Args:
        blocks: the count is that of one of so many blocks, which follow each other.
        written: it is received into.

    Raises:
        Unreadable: only MPI can read the buffer; other errors, too, where mpi4py refuses it.
    """
    flat, count, displacement = _read(spec, list | tuple, written=written)
    start = operator.index(displacement or 0)
    if count is not None:
        stop = start + operator.index(count) * max(blocks, 1)
    else:
        stop = flat.size
        if blocks and (stop - start) % blocks:
            raise Unreadable(f"{stop - start} elements are no {blocks} blocks")
    if not 0 <= start <= stop <= flat.size:
        raise Unreadable(f"elements {start} to {stop} of {flat.size}")
    return flat[start:stop]


def vector(spec: Any, blocks: int, *, written: bool) -> tuple[Flat, list[int]]:
    """Return the elements of a buffer with a count for each block, and these counts.

    Raises:
        Unreadable: as in `block`, and where blocks do not follow each other.
    """
    flat, counts, displacements = _read(spec, tuple, written=written)
    counts = shares(flat.size, blocks) if counts is None else numbers(counts, blocks)
    starts = list(accumulate(counts, initial=0))
    if displacements is not None:
        begins = strided(displacements, blocks)
        first = begins[0] if blocks else 0
        # The displacement of a block without elements has no meaning.
        if any(count and start + first != begin for count, start, begin in
               zip(counts, starts, begins, strict=False)):  # fmt: skip
            raise Unreadable("there are gaps between the blocks")
        starts = [first + start for start in starts]
    if not 0 <= starts[0] <= starts[-1] <= flat.size:
        raise Unreadable(f"elements {starts[0]} to {starts[-1]} of {flat.size}")
    return flat[starts[0] : starts[-1]], counts


def shares(total: int, blocks: int) -> list[int]:
    """Return the lengths of blocks without counts, as mpi4py divides a buffer."""
    quotient, remainder = divmod(total, blocks)
    return [quotient + (index < remainder) for index in range(blocks)]


def datatype(spec: Any) -> MPI.Datatype:
    """Return the datatype of a buffer that mpi4py accepts."""
    memory, _, _, kind = parts(spec, sequences=())
    if isinstance(kind, MPI.Datatype):
        return kind
    if kind is None:
        kind = "B" if memory is None else _code(memory)
    return MPI.Datatype.fromcode(kind)


def _code(memory: Any) -> str:
    """Return the code by which mpi4py infers the datatype of an array."""
    try:
        return _array(memory).dtype.char
    except TypeError:  # no buffer of Python's
        interface = getattr(memory, "__cuda_array_interface__", None)
        dtype = np.from_dlpack(memory).dtype if interface is None else interface["typestr"]
        return np.dtype(dtype).char


def dtype_of(kind: MPI.Datatype) -> np.dtype[Any] | None:
    """Return NumPy's dtype of a predefined datatype, None of another."""
    return _dtypes().get(kind.handle)


def numbers(counts: Any, blocks: int) -> list[int]:
    """Return one count per rank.

    Raises:
        Unreadable: a count is negative.
        Refused: there is another number of counts, or they are no integers.
    """
    try:
        rows = [operator.index(counts)] * blocks
    except TypeError:
        rows = indices(counts, blocks)
    if min(rows) < 0:
        raise Unreadable(f"{rows} are no counts")
    return rows


def indices(values: Any, blocks: int) -> list[int]:
    """Return one integer per rank; mpi4py takes no other number of them."""
    try:
        integers = list(map(operator.index, values))
    except Exception as error:
        raise Refused(str(error)) from error
    if len(integers) != blocks:
        raise Refused(f"{len(integers)} numbers for {blocks} blocks")
    return integers


def _read(spec: Any, sequences: Any, *, written: bool) -> tuple[Flat, Any, Any]:
    """Return the elements of a buffer, its count and its displacement.

    Args:
        sequences: the types of a pair of count and displacement.
        written: it is received into.
    """
    memory, count, displacement, kind = parts(spec, sequences=sequences)
    return _memory(memory, kind, written=written), count, displacement


def parts(spec: Any, sequences: Any) -> tuple[Any, Any, Any, Any]:
    """Return memory, count, displacement and datatype of a buffer.

    Args:
        sequences: the types of a pair of count and displacement.
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
        raise Unreadable(f"a buffer of {len(spec)} parts")
    if isinstance(count, sequences) and len(spec) < 4:
        count, displacement = count
    return memory, count, displacement, kind


def _memory(memory: Any, kind: Any, *, written: bool) -> Flat:
    """Return memory as elements of a datatype, by default of its dtype's."""
    if memory is None:
        if kind is None:
            raise Unreadable("neither memory nor a datatype")
        flat = np.empty(0, "uint8")
    else:
        flat = _array(memory)
    if written and not flat.flags.writeable:
        raise Unreadable("the memory is read-only")
    if kind is None and flat.dtype not in _INFERRED:
        raise Unreadable(f"no datatype is known for {flat.dtype}")
    if flat.flags.c_contiguous:
        flat = flat.reshape(-1)
    elif flat.flags.f_contiguous:
        flat = flat.T.reshape(-1)  # mpi4py takes its elements as they lie in memory
    else:
        raise Unreadable("the memory has gaps")
    if isinstance(kind, str):
        kind = MPI.Datatype.fromcode(kind)
    dtype = flat.dtype if kind is None else dtype_of(kind)
    if dtype is None or flat.nbytes % dtype.itemsize:
        raise Unreadable("a derived datatype, or a part of an element")
    flat = flat if flat.dtype == dtype else flat.view(dtype)
    if not flat.flags.aligned:
        raise Unreadable("folds read aligned elements, and mpi4py infers no others")
    return flat


def is_on_gpu(spec: Any) -> bool:
    """Whether the memory of a buffer is that of a GPU, which MPI may read itself."""
    memory = spec[0] if isinstance(spec, list | tuple) and spec else spec
    return hasattr(memory, "__cuda_array_interface__")


def _array(memory: Any) -> Flat:
    return memory if type(memory) is np.ndarray else np.asarray(memoryview(memory))


def strided(displacements: Any, blocks: int) -> list[int]:
    """Return the displacement of each block, given all of them or the distance between two."""
    try:
        return [operator.index(displacements) * index for index in range(blocks)]
    except TypeError:
        return indices(displacements, blocks)
