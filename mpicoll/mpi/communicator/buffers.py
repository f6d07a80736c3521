"""MPI's datatypes and operators as NumPy and C know them, and the parts of a buffer.

mpi4py's rules (its ``msgbuffer.pxi``): a buffer, or a list or tuple of a buffer with count,
displacement and datatype, any of which it infers where they are left out.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.c_extension import _compiled, numpy_layout
from mpicoll.engine.channels import Forms

_compiled.place_handles(MPI._addressof(MPI.SUM) - id(MPI.SUM), MPI._sizeof(MPI.SUM))
Flat = np.ndarray[Any, np.dtype[Any]]
"""A C-contiguous array of one axis."""


class Unreadable(Exception):
    """NumPy cannot view a buffer, or MPI does not fold its datatype by the operator."""


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


_OPS = (
    (MPI.SUM, "sum", "iufc"), (MPI.PROD, "prod", "iufc"), (MPI.MIN, "min", "iuf"),
    (MPI.MAX, "max", "iuf"), (MPI.BAND, "band", "iu"), (MPI.BOR, "bor", "iu"),
    (MPI.BXOR, "bxor", "iu"), (MPI.LAND, "land", "biu"), (MPI.LOR, "lor", "biu"),
    (MPI.LXOR, "bxor", "b"),
)  # fmt: skip
"""MPI's operators, our name of each, and the kinds of dtype on which MPI defines it."""
OPS = {op.handle: (name, kinds) for op, name, kinds in _OPS}
_LAYOUT = numpy_layout()
_DTYPES = tuple(
    (dtype.name, dtype.kind, np.zeros(1, dtype))
    for dtype, *_ in _LAYOUT[1] if dtype.char != "e"  # MPI has no half floats
)  # fmt: skip
_NAMES = tuple(name for name, *_ in _DTYPES)
_MOST_BYTES = 1 << 22
"""Of an element whose layout channels learn: that takes six times its memory, once."""


def _learn_layout(kind: MPI.Datatype) -> None:
    """Have channels read buffers of a datatype, until it is freed.

    MPI packs bytes that say where they are.
    """
    try:
        size, (start, extent), high = kind.Get_size(), kind.Get_true_extent(), kind.Get_extent()[1]
        nbytes = max(start + extent, high)
        if min(start, size - 1, high - 1) < 0 or nbytes > _MOST_BYTES:
            return
        digits = _digits_of_places(nbytes.bit_length())
        packed = bytearray(size * len(digits))
        position = 0
        for digit in digits:
            position = kind.Pack(digit[:high], packed, position, MPI.COMM_SELF)
        kind.Set_attr(_key(), None)
    except MPI.Exception:
        return
    _compiled.add_layout(kind, size, high, digits, packed)


@cache
def _digits_of_places(bits: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return a row for each byte that a place of so many bits has, the lowest byte first."""
    places = np.arange(1 << bits, dtype="<u4").view("u1").reshape(-1, 4)
    return places.T[: -(-bits // 8)].copy()


@cache
def _key() -> int:
    return MPI.Datatype.Create_keyval(delete_fn=lambda kind, *_: _compiled.forget_layout(kind))


@cache
def prepare_forms() -> Forms:
    """Return what C reads of arrays, operators and datatypes."""
    places: dict[np.dtype[Any], int] = {}
    for place, (_, _, sample) in enumerate(_DTYPES):
        places.setdefault(sample.dtype, place)
    datatypes = []
    for mpi_type in (*_SIGNED, *_UNSIGNED, *_FLOATS, *_COMPLEX, *_of("C_BOOL"), *_MOVED):
        dtype = _dtypes()[mpi_type.handle]
        if dtype in places:
            datatypes.append((mpi_type, places[dtype]))
        if nbytes := dtype.itemsize:
            row = bytes(range(nbytes))  # each byte lies at its own place
            _compiled.add_layout(mpi_type, nbytes, nbytes, row, row)
    return Forms(
        _compiled.prepare_channels(
            _LAYOUT, _DTYPES, _OPS, tuple(datatypes), MPI.IN_PLACE, MPI.Datatype, MPI.Op,
            _learn_layout,
        ),
        _NAMES, tuple(sample.nbytes for *_, sample in _DTYPES), tuple(name for _, name, _ in _OPS),
    )  # fmt: skip


def folds(op: object, dtype: np.dtype[Any]) -> bool:
    """Whether channels fold elements of a dtype by an operator of MPI's."""
    kinds = OPS.get(op.handle, ("", ""))[1] if isinstance(op, MPI.Op) else ""
    return dtype.name in _NAMES and dtype.kind in kinds


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
        return np.asarray(memoryview(memory)).dtype.char
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
        Unreadable: a count is negative, there is another number of them, or they are no integers.
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
        raise Unreadable(str(error)) from error
    if len(integers) != blocks:
        raise Unreadable(f"{len(integers)} numbers for {blocks} blocks")
    return integers


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


def is_in_place(buffer: Any) -> bool:
    """Whether a rank's own block lies in its other buffer."""
    return buffer is None or buffer is MPI.IN_PLACE


def is_on_gpu(spec: Any) -> bool:
    """Whether the memory of a buffer is that of a GPU, which MPI may read itself."""
    memory = spec[0] if isinstance(spec, list | tuple) and spec else spec
    return hasattr(memory, "__cuda_array_interface__")
