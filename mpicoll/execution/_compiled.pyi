"""What runs programs over host memory, compiled; absent where no compiler was at install.

Buffers are C-contiguous; dtypes and operators are named as in `mpicoll.notation.elements`.
"""

from typing_extensions import Buffer

def fold(op: str, dtype: str, out: Buffer, left: Buffer, right: Buffer, /) -> None:
    """Write left op right to `out`, which may be one of them.

    Raises:
        ValueError: the operator is not defined on the dtype, or the sizes differ.
    """

def fold_many(op: str, dtype: str, out: Buffer, operands: tuple[Buffer, ...], /) -> None:
    """Fold 1 to 64 operands in their order into `out`, which may be one of them.

    Raises:
        ValueError: the operator is not defined on the dtype, or the sizes differ.
    """

def divide(dtype: str, x: Buffer, divisor: float, /) -> None:
    """Divide in place.

    Raises:
        ValueError: the dtype is neither a float nor complex.
    """

def copy(target: Buffer, source: Buffer, streams: bool = ..., /) -> None:
    """Copy between areas that do not overlap.

    `streams` says that the target will not be read soon: a large one is written past the caches.

    Raises:
        ValueError: the sizes differ.
    """

def target(name: str = ..., /) -> str:
    """Return which instructions run: avx512, avx2, neon or baseline; change them by name.

    Raises:
        ValueError: the processor lacks them.
    """
