"""Make arrays over memory that is known by its address."""

from __future__ import annotations

from ctypes import c_char

from mpicoll.backend import Array, Arrays
from mpicoll.notation.elements import itemsize


def array_at(arrays: Arrays, address: int, dtype: str, length: int, owner: object) -> Array:
    """Return a flat array over memory of the host.

    Args:
        owner: lives as long as the array, and keeps the memory.
    """
    memory = (c_char * (length * itemsize(dtype))).from_address(address)
    memory.owner = owner  # type: ignore[attr-defined]
    return arrays.over(memoryview(memory).cast("B"), dtype, (length,))
