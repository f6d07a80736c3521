"""Load the C extension, which has the numbers that Python and C share; how it reads arrays."""

from __future__ import annotations

from typing import Any


def _load() -> Any:
    try:
        import mpicoll.engine._compiled as extension
    except ImportError as error:
        raise ImportError(
            f"mpicoll's C extension cannot be loaded ({error}): install a C compiler and the "
            "headers of this Python, then run pip install mpicoll, or in a source tree "
            "python -c 'from setuptools import setup; setup()' build_ext --inplace"
        ) from error
    return extension


_compiled = _load()
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
"""DLPack's codes of NumPy's kinds of dtypes."""


def numpy_layout() -> tuple[Any, tuple[tuple[Any, int, int], ...]]:
    """Return an example array of NumPy, and its dtypes with their itemsizes and DLPack codes."""
    import numpy as np  # the communicators of a program without arrays do without

    dtypes = map(np.dtype, "?bhilqBHILQefdFD")  # C's long and long long are two, though equal
    dtype_table = tuple((dtype, dtype.itemsize, _CODES[dtype.kind]) for dtype in dtypes)
    return np.zeros((2, 3), "float32"), dtype_table
