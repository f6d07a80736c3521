"""How the executor and the channels read NumPy's arrays, also where nothing else of NumPy's is."""

from __future__ import annotations

from typing import Any

import numpy as np

_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
"""DLPack's codes of NumPy's kinds of dtypes."""


def numpy_layout() -> tuple[Any, tuple[tuple[np.dtype[Any], int, int], ...]]:
    """Return an example array, and dtypes with their itemsizes and DLPack codes."""
    dtypes = map(np.dtype, "?bhilqBHILQefdFD")  # C's long and long long are two, though equal
    dtype_table = tuple((dtype, dtype.itemsize, _CODES[dtype.kind]) for dtype in dtypes)
    return np.zeros((2, 3), "float32"), dtype_table
