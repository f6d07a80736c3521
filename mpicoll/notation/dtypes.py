"""Element types by name, the same for NumPy, CuPy, torch and MPI."""

from __future__ import annotations

from mpicoll.errors import UnknownName

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
