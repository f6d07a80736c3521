"""Load the C extension, which has the numbers that Python and C share."""

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
